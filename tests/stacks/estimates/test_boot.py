"""The minutes until a node's job can start: which steps count, what they cost, and for whom nothing is said."""

from collections.abc import Callable
from typing import Any

import pytest

from gangway.components.catalog.boot import load_boot
from gangway.components.catalog.loader import load
from gangway.components.catalog.schema import MachineType
from gangway.components.core.findings import Severity
from gangway.components.estimate.cost import CostComponent, CostEstimate, estimate
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.boot import boot_findings, boot_steps

Edited = Callable[[Callable[[dict[str, Any]], object]], StackConfig]


def machine(name: str = "p5.48xlarge") -> MachineType:
    return load().machine(name)


def bill(hourly: float | None) -> CostEstimate:
    """Of the two nodes of the demo's first rung."""
    line = CostComponent("edited-0-spot: 2 nodes", "hours", 2, hourly, hourly, "a list", "2026-09-06", "list-price")
    return estimate([line], 1)


def test_every_step_is_marked_with_what_it_rests_on() -> None:
    facts = load_boot().model_dump().values()
    assert {fact["confidence"] for fact in facts} <= {"assumed", "secondary"}, "nothing was measured"
    assert all(fact["source"] for fact in facts)


def test_a_machine_image_saves_what_is_installed_and_pulled(demo_config: StackConfig) -> None:
    without, with_image = boot_steps(demo_config, machine())
    assert set(without) == {"boot", "Lustre client", "container"}
    assert set(with_image) == {"boot", "first read of the container's files"}
    assert without["boot"] == with_image["boot"]
    table = load_boot()
    assert without["container"].value == table.container_gib.value * table.container_minutes_per_gib.value
    assert without["container"].confidence == "assumed", "the container's size is"


def test_the_line_has_both_times_their_basis_and_the_dollars_of_a_nodes_start(edited: Edited) -> None:
    config = edited(lambda values: values["gangway:job"].update(max_hours=1))
    (finding,) = boot_findings(config, machine(), bill(120.0))
    without, with_image = (sum(fact.value for fact in steps.values()) for steps in boot_steps(config, machine()))
    assert (finding.severity, finding.path) == (Severity.INFO, "gangway:cluster.machine_image")
    assert f"about {without:.0f} minutes" in finding.message
    assert f"after {with_image:.0f}: boot 10 (assumed)" in finding.message
    assert "At 60.00 USD an hour" in finding.message, "one of two nodes"
    assert f"costs {with_image:.2f} instead of {without:.2f} USD" in finding.message, "a dollar a minute"
    assert "machine_image: {keep: 3}" in finding.fix


@pytest.mark.parametrize("cost", [None, bill(None)])
def test_without_a_price_there_are_no_dollars(demo_config: StackConfig, cost: CostEstimate | None) -> None:
    (finding,) = boot_findings(demo_config, machine(), cost)
    assert "USD" not in finding.message


def test_small_machines_start_sooner_than_whole_hosts(demo_config: StackConfig) -> None:
    small, _ = boot_steps(demo_config, machine("g5.xlarge"))
    assert small["boot"].value < boot_steps(demo_config, machine())[0]["boot"].value


def test_an_image_of_ones_own_is_unknown(edited: Edited) -> None:
    config = edited(lambda values: values["gangway:cluster"].update(image_id="ami-0123456789abcdef0"))
    assert list(boot_findings(config, machine(), None)) == []


def test_a_stack_with_a_machine_image_is_not_told_to_add_one(edited: Edited) -> None:
    config = edited(lambda values: values["gangway:cluster"].update(machine_image={"keep": 3}))
    (finding,) = boot_findings(config, machine(), None)
    assert finding.fix == ""
