"""The shipped stack on OpenStack, its plan, and copies of it with sections changed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import Plan, make_plan

NAME = "openstack-gpu"


@pytest.fixture(scope="session")
def config(repo: Path) -> StackConfig:
    return from_file(repo / "stacks" / f"Pulumi.{NAME}.yaml")


@pytest.fixture(scope="session")
def made(config: StackConfig) -> Plan:
    return make_plan(config)


@pytest.fixture(scope="session")
def edited(gcp_edited: Callable[..., StackConfig]) -> Callable[..., StackConfig]:
    """The shipped stack with sections changed: None removes, a mapping is merged."""
    return lambda **sections: gcp_edited(NAME, **sections)


@pytest.fixture(scope="session")
def alone() -> dict[str, Any]:
    """Changes that leave one node, nothing shared and no fabric."""
    return {
        "cluster": {"nodes": {"min": 1, "max": 1}},
        "storage": None,
        "head": None,
        "site": {"fabric": None},
        "openstack": {"rdma_network_id": None, "share_type": None, "head_image": None},
    }
