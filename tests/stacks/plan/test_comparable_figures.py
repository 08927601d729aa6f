"""The same run has the same dollars, hours, energy and carbon in its plan, in a quote and in its record."""

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from gangway.cli import main
from gangway.components.catalog.loader import load
from gangway.components.estimate.offers import Offer, find_offers, get_carriers
from gangway.components.estimate.quotes import Job, quote
from gangway.report.plans.show import Detail
from gangway.report.plans.side_by_side import StackSummary, side_by_side
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.run_context import cloud_context
from gangway.stacks.plan.difference import compare
from gangway.stacks.plan.plan import Plan, make_plan
from gangway.trainer.records.cost_carbon import carbon, energy
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import CarbonRecord, EnergyRecord, SessionRecord
from tests.gangway.report.plans.test_show import all_of

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


ON_DEMAND = {
    "us-east-1": 55.04,
    "us-east-2": 55.04,
    "ap-northeast-1": 68.8,
    "ap-south-1": 66.048,
    "eu-north-1": 58.8928,
    # No list has a price of p5.48xlarge in Sao Paulo, where it is sold.
    "sa-east-1": 55.04,
}
"""As SkyPilot's list has them."""


@pytest.fixture(scope="module")
def plan_in(gcp_edited: Callable[..., StackConfig]) -> Callable[[str], Plan]:
    def made(region: str) -> Plan:
        cluster = {"capacity": [{"kind": "on-demand"}]}
        return make_plan(gcp_edited("aws-p5-spot", region=region, cluster=cluster, budget={"monthly_usd": 900_000}))

    return made


@pytest.mark.slow
@pytest.mark.parametrize("region", ["us-east-1", "ap-northeast-1", "sa-east-1"])
def test_a_plan_has_its_regions_price_or_marks_anothers(plan_in: Callable[[str], Plan], region: str) -> None:
    check(plan_in(region), region)


@pytest.mark.slow
@pytest.mark.parametrize("region", ["us-east-2", "ap-south-1", "eu-north-1"])
def test_so_has_the_plan_of_the_other_regions(plan_in: Callable[[str], Plan], region: str) -> None:
    check(plan_in(region), region)


def check(plan: Plan, region: str) -> None:
    nodes = next(line for line in plan.cost.components if "p5.48xlarge" in line.name)
    assert nodes.price == ON_DEMAND[region]
    assert nodes.priced_in == ("us-east-1" if region == "sa-east-1" else "")
    foreign = {line.priced_in for line in plan.cost.components if line.priced_in}
    data = json.loads(json.dumps(plan.to_json()))["cost"]
    assert set(data["run_most"]["foreign_regions"]) == foreign
    texts = [" ".join(all_of(plan, detail).split()) for detail in Detail]
    if foreign:
        assert (data["bound"], data["run_most"]["bound"]) == ("", "")
    for text in texts:
        assert (f"${plan.most_usd:,.2f} at most" in text) is not bool(foreign)
        assert (f"${plan.most_usd:,.2f}*" in text) is bool(foreign)
        assert ("* in part at the prices of" in text) is bool(foreign)


REGION = "sa-east-1"
"""Where p5.48xlarge is sold, and no list has its price."""
MARK = "in part at the prices of us-east-1"
_DOLLARS = re.compile(r"\$\d|\d USD")
_OWN = "autoscale.begins", "autoscale.missed", "controller.usd-per-hour"
"""Findings that print what nodes cost, beside those of the budget."""


@pytest.fixture(scope="module")
def foreign_plan(gcp_edited: Callable[..., StackConfig]) -> Plan:
    job = {"autoscale": {"budget_usd": 900}, "controller": {"bounds": {"usd_per_hour": 60}}}
    cluster = {"capacity": [{"kind": "spot"}, {"kind": "on-demand"}], "nodes": {"min": 1, "max": 4}}
    return make_plan(gcp_edited("aws-p5-spot", region=REGION, cluster=cluster, job=job, budget={"monthly_usd": 900}))


def test_findings_mark_what_they_print_in_dollars(foreign_plan: Plan) -> None:
    printed = [
        each
        for each in foreign_plan.findings
        if _DOLLARS.search(each.message) and (each.code in _OWN or each.code.startswith("budget."))
    ]
    assert {"budget.below-estimate", "budget.below-run", "autoscale.begins"} <= {each.code for each in printed}
    for each in printed:
        assert MARK in each.message, each
        assert not re.search(r"at most [\d.,]+ USD", each.message), each


def test_so_do_the_comparisons_of_plans(foreign_plan: Plan) -> None:
    document: dict[str, Any] = json.loads(json.dumps(foreign_plan.to_json()))
    money = [each.what for each in compare(document, document).figures if each.unit == "USD"]
    assert money
    assert all(MARK in what for what in money)
    text = io.StringIO()
    Console(file=text, width=200).print(side_by_side([StackSummary.from_plan(foreign_plan)]))
    assert f"* {MARK}: no bound" in text.getvalue()


@pytest.mark.parametrize(("region", "is_marked"), [(REGION, True), ("us-east-1", False)])
def test_a_simulation_marks_its_dollars(tmp_path: Path, region: str, is_marked: bool) -> None:
    (tmp_path / "jobs.csv").write_text("name,submit_hours,gpus,hours,group,deadline_hours\na,0,8,10,x,\n", "utf-8")
    machine = f"{{provider: aws, machine_type: p5.48xlarge, region: {region}}}"
    scenario = f"cluster:\n  machine: {machine}\n  capacity: [{{kind: on-demand, nodes: 1}}]\ntrace: jobs.csv\n"
    (tmp_path / "one.yaml").write_text(scenario, "utf-8")
    asked = ["simulate", str(tmp_path / "one.yaml"), "--policy", "fifo"]
    text = " ".join(CliRunner().invoke(main.app, asked).output.split())
    assert (f"* {MARK}: no bound" in text) is is_marked
    assert bool(re.search(r"\$[\d,]+\*", text)) is is_marked
    assert ("(price of us-east-1)" in text) is is_marked
    found = json.loads(CliRunner().invoke(main.app, [*asked, "--json"]).stdout)
    assert found["foreign_regions"] == (["us-east-1"] if is_marked else [])
