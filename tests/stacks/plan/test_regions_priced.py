"""The p5 plan in six regions: each has its own price or another's, marked, and what is marked is never "at most"."""

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
from gangway.report.plans.show import Detail
from gangway.report.plans.side_by_side import StackSummary, side_by_side
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.difference import compare
from gangway.stacks.plan.plan import Plan, make_plan
from tests.gangway.report.plans.test_show import all_of

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
def plan(gcp_edited: Callable[..., StackConfig]) -> Plan:
    job = {"autoscale": {"budget_usd": 900}, "controller": {"bounds": {"usd_per_hour": 60}}}
    cluster = {"capacity": [{"kind": "spot"}, {"kind": "on-demand"}], "nodes": {"min": 1, "max": 4}}
    return make_plan(gcp_edited("aws-p5-spot", region=REGION, cluster=cluster, job=job, budget={"monthly_usd": 900}))


def test_findings_mark_what_they_print_in_dollars(plan: Plan) -> None:
    printed = [
        each
        for each in plan.findings
        if _DOLLARS.search(each.message) and (each.code in _OWN or each.code.startswith("budget."))
    ]
    assert {"budget.below-estimate", "budget.below-run", "autoscale.begins"} <= {each.code for each in printed}
    for each in printed:
        assert MARK in each.message, each
        assert not re.search(r"at most [\d.,]+ USD", each.message), each


def test_so_do_the_comparisons_of_plans(plan: Plan) -> None:
    document: dict[str, Any] = json.loads(json.dumps(plan.to_json()))
    money = [each.what for each in compare(document, document).figures if each.unit == "USD"]
    assert money
    assert all(MARK in what for what in money)
    text = io.StringIO()
    Console(file=text, width=200).print(side_by_side([StackSummary.from_plan(plan)]))
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
