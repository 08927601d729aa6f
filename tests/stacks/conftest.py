"""Stack files to plan: the demo's, and copies of it with a mistake in them."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from stacks.config import StackConfig, from_file
from stacks.plan import Plan, make_plan

Edit = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="session")
def demo_values(demo_file: Path) -> dict[str, Any]:
    """The demo's `config:` mapping as written, keys with their namespace. Copy before you change it."""
    values: dict[str, Any] = yaml.safe_load(demo_file.read_text("utf-8"))["config"]
    return values


@pytest.fixture(scope="session")
def demo_config(demo_file: Path) -> StackConfig:
    return from_file(demo_file)


@pytest.fixture(scope="session")
def demo_plan(demo_config: StackConfig) -> Plan:
    return make_plan(demo_config)


@pytest.fixture
def stack_file(tmp_path: Path, demo_values: dict[str, Any]) -> Callable[[Edit], Path]:
    """Writes the demo's stack file with one change and gives its path."""

    def write(edit: Edit) -> Path:
        values = deepcopy(demo_values)
        edit(values)
        path = tmp_path / "Pulumi.edited.yaml"
        path.write_text(yaml.safe_dump({"config": values}), "utf-8")
        return path

    return write


@pytest.fixture
def edited(stack_file: Callable[[Edit], Path]) -> Callable[[Edit], StackConfig]:
    """The demo's configuration with one change."""
    return lambda edit: from_file(stack_file(edit))
