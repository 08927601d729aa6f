"""Plans of shipped stacks, each made once."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import Plan, make_plan

STACKS = Path(__file__).resolve().parents[4] / "stacks"


@cache
def _plan(name: str) -> Plan:
    return make_plan(from_file(STACKS / f"Pulumi.{name}.yaml"))


@pytest.fixture
def shipped_plan() -> Callable[[str], Plan]:
    """The plan of a shipped stack, by its name."""
    return _plan
