"""What a run costs on each rung: by hand, and what must hold whatever the rate and the interval."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gangway.components.catalog.loader import load
from gangway.components.estimate.cost import CostComponent, paid_once, unknown_price
from gangway.components.estimate.spot import estimate_spot
from gangway.stacks.config.sections import EstimateConfig
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.run_costs import (
    pace,
    price_ladder,
    rung_lines,
    save_sec,
    taken,
)
from gangway.stacks.estimates.throughput import throughput
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import Plan, make_plan

Edited = Callable[[Callable[[dict[str, Any]], object]], StackConfig]
Change = Callable[[dict[str, Any]], object]


def line(name: str, hourly: float, *, standby: bool = False) -> CostComponent:
    return CostComponent(name, "hours", 1, hourly, hourly, "a list", "2026-09-06", "list-price", standby)


LINES = [
    line("edited-0-spot: nodes", 40),
    line("edited-1-on-demand: nodes", 110, standby=True),
    line("edited-lustre: disks", 5),
]


def estimate(**values: Any) -> Change:
    return lambda stack: stack.update({"gangway:estimate": values})


def test_the_demos_spot_rung_by_hand(demo_plan: Plan) -> None:
    """10 % a month on 2 nodes, one in 3,416.8 h; failures one in 6,334.6 node-hours; together one in 1,643.7 h. 20 kimg
    of 150 at the projected speed: so many seconds to a checkpoint, which costs what 0.9 GB/s make of it. The nodes
    start for ten minutes.
    """
    spot, on_demand = demo_plan.rungs
    job = demo_plan.pace
    every = 20_000 / job.images_per_second
    saving = 1 + save_sec(demo_plan.config) / every
    hours = 150_000 / job.images_per_second / 3600
    between = 1 / (1 / 3416.84 + 2 * 419 / (54 * 24 * 2048))
    expected = 1 / 6 + hours * saving / (1 - (every / 2 + 600) / (between * 3600))
    assert spot.run_hours == pytest.approx(expected, rel=1e-6)
    assert spot.hourly == pytest.approx(demo_plan.cost.hourly)
    assert spot.run == pytest.approx(demo_plan.cost.hourly * expected, rel=1e-6)
    assert spot.monthly == pytest.approx(demo_plan.cost.monthly)
    assert spot.spot.mtbf_hours == pytest.approx(between, rel=1e-4) == pytest.approx(1643.7, abs=0.1)
    assert (on_demand.kind, on_demand.taken) == ("on-demand", None)
    steady = 1 / 6 + hours * saving / (1 - (every / 2 + 600) / (54 * 24 * 2048 / 419 / 2 * 3600))
    assert on_demand.run_hours == pytest.approx(steady, rel=1e-6)
    assert on_demand.run == pytest.approx(
        steady * (demo_plan.cost.hourly - (spot.nodes_hourly or 0) + 2 * 55.04 + (400 * 0.08 + 2 * 375 * 0.04) / 730),
        rel=1e-6,
    )


def test_64_nodes_for_a_month_lose_hours_on_demand_too(demo_config: StackConfig) -> None:
    """It was 720 h and nothing at risk; machines fail whoever rents them out."""
    job = demo_config.training.model_copy(update={"max_hours": 720.0})
    nodes = demo_config.cluster.nodes.model_copy(update={"min": 64, "max": 64})
    cluster = demo_config.cluster.model_copy(update={"nodes": nodes})
    job = job.model_copy(update={"kimg": 7000.0})
    measured = EstimateConfig(images_per_second=10)  # 194.4 h, a checkpoint each 2,000 s
    config = demo_config.model_copy(update={"job": job, "cluster": cluster, "stack": "edited", "estimate": measured})
    on_demand = price_ladder(config, load().machine("p5.48xlarge"), LINES, pace(config))[1]
    assert on_demand.spot.interruptions == pytest.approx(194.4 * 64 / 6334.6, rel=0.05)
    assert on_demand.run_hours is not None
    assert on_demand.run_hours > 194.4 + 1.9 * 600 / 3600
    assert on_demand.to_json()["failures_per_node_hour"]["value"] == pytest.approx(1 / 6334.6, rel=1e-4)


def test_the_ladder_as_a_whole_is_between_its_rungs(demo_plan: Plan) -> None:
    """64 % of the time spot and 36 % on demand, with checkpoints on both, by hand."""
    spot, on_demand = (rung.run or 0.0 for rung in demo_plan.rungs)
    usd, hourly = demo_plan.ladder.usd, [rung.hourly or 0.0 for rung in demo_plan.rungs]
    assert usd is not None
    hours = demo_plan.rungs[0].run_hours or 0.0
    assert usd == pytest.approx(hours * (0.64 * hourly[0] + 0.36 * hourly[1]), rel=1e-3)
    assert demo_plan.ladder.usd_low is not None
    assert demo_plan.ladder.usd_high is not None
    assert spot < demo_plan.ladder.usd_low < usd < demo_plan.ladder.usd_high < on_demand
    written = demo_plan.to_json()["ladder"]
    assert written["usd"] == usd
    assert "spot is available 64% of the time (17% to 90%)" in written["assumptions"]


def test_a_ladder_whose_spot_nobody_knows_has_ends_alone(gcp_plans: dict[str, Plan]) -> None:
    ladder = gcp_plans["gcp-a3-spot"].ladder
    assert (ladder.usd, ladder.hours) == (None, None)
    assert ladder.usd_low is not None
    assert ladder.usd_high is not None
    assert 0 < ladder.usd_low < ladder.usd_high


@pytest.mark.slow
def test_a_stated_rate_leaves_no_doubt_about_it(edited: Edited) -> None:
    """Then only how often spot is there, and failures, are open."""
    loose, stated = (
        make_plan(edited(change)).ladder for change in (lambda stack: None, estimate(taken_percent_per_month=10))
    )
    assert stated.usd == pytest.approx(loose.usd)
    assert stated.hours_high < loose.hours_high


def test_energy_and_carbon_are_of_the_expected_run_and_at_most_of_max_hours(demo_plan: Plan) -> None:
    run = demo_plan.expected
    assert run.hours is not None
    assert (demo_plan.energy.hours, demo_plan.energy.hours_most) == (run.hours.mid, demo_plan.config.work.max_hours)
    assert demo_plan.embodied.gco2e == pytest.approx(2 * 7_011_000 * run.hours.mid / 35040)
    assert demo_plan.sci.g_per_kimg == pytest.approx(
        ((demo_plan.carbon.gco2e or 0) + (demo_plan.embodied.gco2e or 0)) / 150
    )
    assert run.throughput.waiting is not None
    assert demo_plan.energy.waiting == run.throughput.waiting[1]


def test_the_stack_files_own_rate_wins_over_the_catalogues(edited: Edited) -> None:
    machine = load().machine("p5.48xlarge")
    fact = taken(edited(estimate(taken_percent_per_month=25)), machine)
    assert (fact.value, fact.source, fact.confidence) == (
        0.25, "gangway:estimate.taken_percent_per_month", "stated",
    )  # fmt: skip
    assert taken(edited(lambda stack: None), machine).value == 0.10


def test_the_pace_is_assumed_or_measured(edited: Edited) -> None:
    assumed = pace(edited(lambda stack: None))
    assert assumed.interval_sec == pytest.approx(480)
    assert assumed.source == "assumed: job.kimg in just job.max_hours"
    measured = pace(edited(estimate(images_per_second=100)))
    assert (measured.interval_sec, measured.source) == (200, "gangway:estimate.images_per_second")
    seldom = pace(edited(lambda stack: stack["gangway:job"].update(checkpoint_kimg=1e6)))
    assert seldom.interval_sec == 3600, "the end is a checkpoint too"


def test_what_surrounds_the_nodes_is_paid_on_every_rung(edited: Edited) -> None:
    config, machine = edited(lambda stack: None), load().machine("p5.48xlarge")
    spot, on_demand = price_ladder(config, machine, [*LINES, paid_once("block", 1000, "file")], pace(config))
    assert (spot.nodes_hourly, spot.hourly) == (40, 45)
    assert (on_demand.nodes_hourly, on_demand.hourly) == (110, 115)
    assert on_demand.run == pytest.approx(115 * (on_demand.run_hours or 0) + 1000)
    assert on_demand.monthly == pytest.approx(115 * 730 + 1000)


def test_a_rung_without_a_price_has_interruptions_and_no_dollars(edited: Edited) -> None:
    lines = [unknown_price("edited-0-spot: nodes", 2, "nobody knows"), *LINES[1:]]
    config = edited(lambda stack: None)
    spot, on_demand = price_ladder(config, load().machine("p5.48xlarge"), lines, pace(config))
    assert (spot.nodes_hourly, spot.hourly, spot.monthly, spot.run) == (None, None, None, None)
    assert (spot.spot.usd, spot.spot.interruptions > 0) == (None, True)
    assert on_demand.run == pytest.approx(115 * (on_demand.run_hours or 0))


def test_spot_that_cannot_finish_has_no_end_and_is_an_error(edited: Edited) -> None:
    made = make_plan(edited(estimate(taken_percent_per_month=99.99, restart_sec=3600 * 100)))
    spot = made.rungs[0]
    assert (spot.run, spot.run_hours) == (None, None)
    assert not spot.spot.feasible
    (finding,) = [f for f in made.findings if f.code == "capacity.spot-infeasible"]
    assert made.has_errors
    assert finding.path == "gangway:cluster.capacity[0]"
    assert made.cost.run_hours == 1, "all of max_hours"
    assert made.to_json()["rungs"][0]["spot"]["hours"] is None


def test_slices_of_a_queued_request_are_their_rung(gcp_plans: dict[str, Plan]) -> None:
    made = gcp_plans["gcp-v5e-pod"]
    (rung,) = made.rungs
    (own,) = rung_lines(made.config, made.cost.components, 0)
    assert own.unit == "chip-hours"
    assert rung.nodes_hourly == own.hourly
    assert rung.taken is not None
    assert rung.taken.value is None
    assert rung.failures.confidence == "assumed", "nobody publishes how often TPUs fail"
    assert rung.spot.mtbf_hours == pytest.approx(1 / rung.failures.value)


def test_idle_nodes_cost_what_stays(demo_plan: Plan, gcp_plans: dict[str, Plan]) -> None:
    assert demo_plan.idle_hourly == pytest.approx(demo_plan.cost.hourly), "terminate_when_done is false"
    made = gcp_plans["gcp-a3-spot"]
    assert made.config.work.terminate_when_done
    assert made.idle_hourly == pytest.approx(made.cost.hourly - (made.rungs[0].nodes_hourly or 0))


@settings(max_examples=settings().max_examples * 2 // 3, suppress_health_check=[HealthCheck.too_slow])
@given(st.floats(0, 90), st.floats(0.1, 600), st.floats(0, 3600))
def test_spot_never_does_more_than_what_only_fails(
    demo_config: StackConfig, percent: float, checkpoint_sec: float, restart_sec: float
) -> None:
    own = EstimateConfig(taken_percent_per_month=percent, checkpoint_sec=checkpoint_sec, restart_sec=restart_sec)
    config = demo_config.model_copy(update={"estimate": own, "stack": "edited"})
    job = pace(config)
    spot, on_demand = price_ladder(config, load().machine("p5.48xlarge"), LINES, job)
    assert spot.spot == estimate_spot(
        2,
        20,
        1,
        percent / 100,
        failures_per_hour=spot.failures.value,
        interval_sec=job.interval_sec,
        save_sec=checkpoint_sec,
        restart_sec=restart_sec,
    )
    assert on_demand.run_hours == 1, "max_hours, and part of the images"
    assert spot.run_hours in (None, 1)
    assert spot.run in (None, pytest.approx(45))
    assert on_demand.share is not None
    assert spot.share is None or spot.share <= on_demand.share <= 1


@pytest.mark.slow
def test_each_rung_has_the_speed_failures_dollars_and_images_of_its_own_nodes(edited: Edited) -> None:
    """Four nodes of spot, two on demand: half the nodes, so twice as long and half as many failures. It was priced with
    the speed of four.
    """

    def change(values: dict[str, Any]) -> None:
        values["gangway:cluster"].update(nodes={"min": 2, "max": 4})
        values["gangway:job"].update(preset="r3gan-ffhq256", kimg=5000, max_hours=48, settings={})

    plan = make_plan(edited(change))
    spot, on_demand = plan.rungs
    assert (spot.num_nodes, on_demand.num_nodes) == (4, 2)
    assert on_demand.nodes_hourly == pytest.approx(2 * 55.04, rel=0.01)
    machine = load().machine("p5.48xlarge")
    four, two = (throughput(plan.config, machine, nodes).images_per_second for nodes in (4, 2))
    assert four is not None
    assert two is not None
    hours = [rung.undisturbed_hours or 0.0 for rung in (spot, on_demand)]
    assert hours[1] / hours[0] == pytest.approx(four.mid / two.mid)
    assert 1.7 < hours[1] / hours[0] <= 2
    assert on_demand.spot.mtbf_hours == pytest.approx(1 / (2 * on_demand.failures.value), rel=1e-6)
    ends = sorted(rung.run or 0.0 for rung in plan.rungs)
    assert ends[0] <= (plan.ladder.usd or 0.0) <= ends[1]


@pytest.mark.slow
def test_declared_groups_hold_as_many_nodes_as_each_rung_is_planned_with(repo: Path) -> None:
    for file in sorted((repo / "stacks").glob("Pulumi.*.yaml")):
        plan = make_plan(from_file(file))
        for rung in plan.rungs if plan.config.site is None else ():
            own = rung_lines(plan.config, plan.cost.components, rung.position)
            nodes = [line.quantity for line in own if line.unit == "hours"]
            if nodes and rung.in_reach:
                assert nodes[0] == rung.num_nodes, (plan.config.stack, rung.position)
