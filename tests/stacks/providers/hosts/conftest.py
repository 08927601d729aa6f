"""The shipped stack on existing machines, and copies of it with changes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gangway.components.core.findings import InputError
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import Plan, make_plan

NAME = "hosts-lab"


@pytest.fixture(scope="session")
def lab(repo: Path) -> StackConfig:
    return from_file(repo / "stacks" / f"Pulumi.{NAME}.yaml")


@pytest.fixture(scope="session")
def lab_plan(lab: StackConfig) -> Plan:
    return make_plan(lab)


@pytest.fixture(scope="session")
def edited_lab(gcp_edited: Callable[..., StackConfig]) -> Callable[..., StackConfig]:
    """The stack with sections changed: None removes, a mapping is merged."""
    return lambda **sections: gcp_edited(NAME, **sections)


@pytest.fixture(scope="session")
def told(edited_lab: Callable[..., StackConfig]) -> Callable[..., dict[str, InputError]]:
    """What is wrong with such a copy, by config path."""

    def run(**sections: Any) -> dict[str, InputError]:
        with pytest.raises(ExceptionGroup) as caught:
            edited_lab(**sections)
        mistakes = [mistake for mistake in caught.value.exceptions if isinstance(mistake, InputError)]
        assert all(mistake.fix for mistake in mistakes)
        return {mistake.place.rpartition(": ")[2]: mistake for mistake in mistakes}

    return run


@pytest.fixture(scope="session")
def one_machine() -> Callable[..., dict[str, Any]]:
    """An existing machine, as in a stack file."""

    def make(**changes: Any) -> dict[str, Any]:
        return {"address": "10.20.0.11", "accept_unknown_host_key": True, **changes}

    return make


@pytest.fixture(scope="session")
def alone(edited_lab: Callable[..., StackConfig], one_machine: Callable[..., dict[str, Any]]) -> StackConfig:
    """One machine of which only the least is said."""
    site = {"fabric": None, "usd_per_node_hour": None, "intensity_g_per_kwh": None, "pue": None, "country": None}
    hosts = {
        "machines": [one_machine()], "shared_dir": None, "data_dir": None, "user": None, "run_store": "/srv/results",
        "private_key": {"secure": "v1:abc:def"}, "container_engine": "podman",
    }  # fmt: skip
    cluster = {"machine_type": None, "accelerator": "H100x8", "nodes": {"min": 1, "max": 1}}
    return edited_lab(site=site, hosts=hosts, cluster=cluster, head={"prometheus_image": None})
