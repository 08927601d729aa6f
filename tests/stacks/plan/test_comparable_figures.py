"""The same run has the same dollars, hours, energy and carbon in its plan, in a quote and in its record."""

from collections.abc import Callable
from typing import Any

import pytest

from gangway.components.catalog.loader import load
from gangway.components.estimate.offers import Offer, find_offers, get_carriers
from gangway.components.estimate.quotes import Job, quote
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.run_context import cloud_context
from gangway.stacks.plan.plan import Plan, make_plan
from gangway.trainer.records.cost_carbon import carbon, energy
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import CarbonRecord, EnergyRecord, SessionRecord

Edited = Callable[[Callable[[dict[str, Any]], object]], StackConfig]
_KIMG = 36_000.0


@pytest.fixture
def plan(edited: Edited) -> Plan:
    """Two nodes on demand for ten hours, at a measured speed: nothing of it waits."""

    def edit(values: dict[str, Any]) -> None:
        values["gangway:region"] = "us-east-1"
        values["gangway:cluster"].update(capacity=[{"kind": "on-demand"}], zone=None)
        values["gangway:job"].update(kimg=_KIMG, max_hours=24, checkpoint_kimg=5000)
        values["gangway:estimate"] = {"images_per_second": 1000, "checkpoint_sec": 10}

    return make_plan(edited(edit))


@pytest.fixture
def waiting_plan(edited: Edited) -> Plan:
    """Many workers for a small batch, at a projected speed: most of a step waits."""

    def edit(values: dict[str, Any]) -> None:
        values["gangway:region"] = "us-east-1"
        values["gangway:cluster"].update(capacity=[{"kind": "on-demand"}], zone=None)
        values["gangway:job"].update(kimg=_KIMG, max_hours=672, checkpoint_kimg=5000)
        values.pop("gangway:estimate", None)

    return make_plan(edited(edit))


def offered(plan: Plan) -> Offer:
    offers = find_offers(get_carriers("H100x8", {"aws": load()}))
    return next(each for each in offers if (each.region, each.kind) == (plan.config.region, "on-demand"))


def recorded(plan: Plan) -> tuple[EnergyRecord, CarbonRecord]:
    """By the trainer's own arithmetic, of nodes that draw what their launcher says and no meter measures."""
    machine, region = load().machine("p5.48xlarge"), load().region(plan.config.region, "aws")
    context = cloud_context(plan.config, machine, region, load().get_prices(machine.name), "sha256:0")
    hours, nodes = plan.energy.hours or 0.0, plan.config.cluster.nodes.max
    assert context.accelerator_watts is not None
    assert context.accelerator_utilisation is not None
    assert context.host_watts is not None
    board = (context.accelerator_watts.value or 0.0) * (context.accelerator_utilisation.value or 0.0)
    node_watts = (context.accelerators_per_node or 0) * board + (context.host_watts.value or 0.0)
    joules = Quantity.measured(nodes * node_watts * hours * 3600, "J", "a model")
    session = SessionRecord(
        start="2026-10-05T10:00:00+00:00", end="2026-10-05T20:00:00+00:00", world_size=16, num_nodes=nodes,
        images_from=0, images_to=int(_KIMG * 1000), ended_by="done", wall_sec=hours * 3600, backend="nccl",
        device="H100", it_joules=joules,
    )  # fmt: skip
    used = energy({"node0/gpu0": joules}, {0: session}, {0: context})
    return used, carbon(used, {0: session}, int(_KIMG * 1000), {0: context})


def test_a_quote_of_the_same_hours_comes_to_the_same(plan: Plan) -> None:
    expected, rung = plan.expected.hours, plan.rungs[0]
    assert expected is not None
    job = Job(plan.config.cluster.nodes.max, 10.0, kimg=_KIMG)
    quoted = quote(offered(plan), job)
    # A quote saves as often as is best, a plan as often as the trainer does.
    assert quoted.hours == pytest.approx(expected.mid, rel=0.01)
    assert (quoted.usd or 0.0) / quoted.hours == pytest.approx(2 * 55.04)
    assert rung.nodes_hourly == pytest.approx(2 * 55.04, rel=0.01), "and its disks"
    assert quoted.footprint is not None
    assert quoted.footprint.sci.g_per_kimg == pytest.approx(plan.sci.g_per_kimg, rel=0.01)
    assert (quoted.footprint.sci.g_per_kimg_most or 0.0) > (quoted.footprint.sci.g_per_kimg or 0.0)
    for of_quote, of_plan in ((quoted.kwh, plan.energy.kwh), (quoted.gco2e, plan.carbon.gco2e)):
        assert (of_quote or 0.0) / quoted.hours == pytest.approx((of_plan or 0.0) / expected.mid)


def test_a_record_of_the_expected_run_comes_to_the_same(plan: Plan) -> None:
    used, emitted = recorded(plan)
    assert (used.facility_joules.value or 0.0) / 3.6e6 == pytest.approx(plan.energy.kwh)
    assert (used.it_joules.value or 0.0) / 3.6e6 == pytest.approx(plan.energy.it_kwh)
    assert emitted.gco2e.value == pytest.approx(plan.carbon.gco2e)
    assert emitted.embodied_gco2e.value == pytest.approx(plan.embodied.gco2e)
    assert emitted.sci_g_per_kimg.value == pytest.approx(plan.sci.g_per_kimg)


def test_a_record_without_a_meter_counts_waiting_as_the_plan_does(waiting_plan: Plan) -> None:
    assert waiting_plan.energy.waiting > 0.3
    used, emitted = recorded(waiting_plan)
    assert (used.it_joules.value or 0.0) / 3.6e6 == pytest.approx(waiting_plan.energy.it_kwh)
    assert emitted.sci_g_per_kimg.value == pytest.approx(waiting_plan.sci.g_per_kimg)
    machine, region = load().machine("p5.48xlarge"), load().region(waiting_plan.config.region, "aws")
    share = cloud_context(waiting_plan.config, machine, region, [], "").accelerator_utilisation
    assert share is not None
    assert share.provenance == "estimated"
    assert "waits" in share.source


def test_max_hours_change_what_it_may_come_to_alone(plan: Plan, edited: Edited) -> None:
    def of(max_hours: float) -> Plan:
        return make_plan(
            edited(
                lambda values: (
                    values["gangway:job"].update(kimg=3600, max_hours=max_hours),
                    values.update({"gangway:estimate": {"images_per_second": 1000}}),
                )
            )
        )

    short, long = of(2), of(672)
    assert short.sci.g_per_kimg == pytest.approx(long.sci.g_per_kimg)
    assert short.energy.kwh == pytest.approx(long.energy.kwh)
    assert (long.energy.kwh_most or 0.0) == pytest.approx((short.energy.kwh_most or 0.0) * 336)
    assert (plan.energy.kwh_most or 0.0) > (plan.energy.kwh_high or 0.0) > (plan.energy.kwh or 0.0)
