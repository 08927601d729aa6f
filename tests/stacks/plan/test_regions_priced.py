"""The p5 plan in six regions: each has its own price or another's, marked, and what is marked is never "at most"."""

import json
from collections.abc import Callable

import pytest

from gangway.report.plans.show import Detail
from gangway.stacks.config.stack_config import StackConfig
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
