"""Infracost's shape: its keys, decimal strings that add up, prices nobody knows, and the difference."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import jsonschema
import pytest

from stacks.planning.infracost import infracost
from stacks.planning.plan import Plan

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
COST = {"type": ["string", "null"], "pattern": r"^-?[0-9]+(\.[0-9]+)?$"}
COMPONENT = {
    "type": "object",
    "required": [
        "name", "unit", "hourlyQuantity", "monthlyQuantity", "price", "hourlyCost", "monthlyCost", "priceNotFound",
    ],
    "properties": {
        "name": {"type": "string"}, "unit": {"type": "string"}, "usageBased": {"type": "boolean"},
        "priceNotFound": {"type": "boolean"}, "price": {"type": "string"},
        "hourlyQuantity": COST, "monthlyQuantity": COST, "hourlyCost": COST, "monthlyCost": COST,
    },
    "additionalProperties": False,
}  # fmt: skip
RESOURCE = {
    "type": "object",
    "required": ["name", "metadata", "hourlyCost", "monthlyCost"],
    "properties": {
        "name": {"type": "string"}, "resourceType": {"type": "string"}, "metadata": {"type": "object"},
        "hourlyCost": COST, "monthlyCost": COST, "costComponents": {"type": "array", "items": COMPONENT},
    },
    "additionalProperties": False,
}  # fmt: skip
BREAKDOWN = {
    "type": "object",
    "required": ["resources", "totalHourlyCost", "totalMonthlyCost"],
    "properties": {
        "resources": {"type": "array", "items": RESOURCE}, "totalHourlyCost": COST, "totalMonthlyCost": COST,
    },
    "additionalProperties": False,
}  # fmt: skip
TOTALS = [f"{word}{span}Cost" for word in ("total", "pastTotal", "diffTotal") for span in ("Hourly", "Monthly")]
SCHEMA = {
    "type": "object",
    "required": ["version", "currency", "projects", "timeGenerated", "summary", *TOTALS],
    "properties": {
        **dict.fromkeys(TOTALS, COST),
        "version": {"const": "0.2"},
        "currency": {"const": "USD"},
        "timeGenerated": {"type": "string"},
        "summary": {"type": "object"},
        "projects": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "metadata", "pastBreakdown", "breakdown", "diff", "summary"],
                "properties": dict.fromkeys(("pastBreakdown", "breakdown", "diff"), BREAKDOWN),
            },
        },
    },
    "additionalProperties": False,
}


def plain(plan: Plan) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(json.dumps(plan.to_json()))
    return data


def component(data: Mapping[str, Any], resource: str, position: int) -> Mapping[str, Any]:
    (project,) = data["projects"]
    (found,) = [r for r in project["breakdown"]["resources"] if r["name"] == resource]
    line: Mapping[str, Any] = found["costComponents"][position]
    return line


@pytest.mark.parametrize("name", ["aws-demo", "gcp-a3-spot", "gcp-v5e-pod", "azure-nc-dev"])
def test_the_shape_is_infracosts(
    name: str, demo_plan: Plan, gcp_plans: dict[str, Plan], azure_plans: dict[str, Plan]
) -> None:
    plan = {"aws-demo": demo_plan, **gcp_plans, **azure_plans}[name]
    data = infracost(plain(plan))
    jsonschema.validate(data, SCHEMA)
    (project,) = data["projects"]
    assert float(data["totalHourlyCost"]) == pytest.approx(plan.cost.hourly)
    assert float(data["totalMonthlyCost"]) == pytest.approx(plan.cost.monthly)
    for resource in project["breakdown"]["resources"]:
        # Of these a line of the bill is about several.
        several = ("interface endpoints", "query alarms")
        assert "resourceType" in resource or resource["name"] in several, resource["name"]
    summary = data["summary"]
    assert summary["totalDetectedResources"] == summary["totalSupportedResources"] + summary["totalNoPriceResources"]


def test_the_demos_nodes_by_hand(demo_plan: Plan) -> None:
    data = infracost(plain(demo_plan), now=NOW)
    assert data["timeGenerated"] == "2026-11-21T12:00:00+00:00"
    assert component(data, "aws-demo-0-spot", 0) == {
        "name": "2 x p5.48xlarge, spot",
        "unit": "hours",
        "hourlyQuantity": "2",
        "monthlyQuantity": "1460",
        "price": "22.98",
        "hourlyCost": "45.96",
        "monthlyCost": "33550.8",
        "priceNotFound": False,
    }
    volumes = component(data, "aws-demo-0-spot", 1)
    assert (volumes["monthlyQuantity"], volumes["monthlyCost"], volumes["hourlyCost"]) == ("400", "32", "0.0438356164")
    types = {r["name"]: r["resourceType"] for r in data["projects"][0]["breakdown"]["resources"]}
    assert types == {
        "aws-demo-0-spot": "aws:autoscaling/group:Group",
        "aws-demo-head": "aws:ec2/instance:Instance",
        "aws-demo-lustre": "aws:fsx/lustreFileSystem:LustreFileSystem",
        "aws-demo-nat": "aws:ec2/natGateway:NatGateway",
    }, "standby rungs are not billed"


def test_an_unknown_price_is_not_found_and_not_zero(gcp_plans: dict[str, Plan]) -> None:
    data = infracost(plain(gcp_plans["gcp-a3-spot"]))
    line = component(data, "gcp-a3-spot-lustre", 0)
    assert line["priceNotFound"]
    assert (line["price"], line["hourlyCost"], line["monthlyCost"]) == ("0", None, None)
    assert line["monthlyQuantity"] == "18000"


def test_what_is_bought_or_passes_once_has_no_hour() -> None:
    shared = {"standby": False, "hourly": 0.0}
    lines = [
        {**shared, "name": "capacity block cbo-1", "unit": "purchase", "quantity": 1, "price": 16000.0},
        {**shared, "name": "log lines, a run", "unit": "GiB", "quantity": 2.0, "price": 0.5},
    ]
    data = infracost({"stack": "s", "resources": [], "cost": {"currency": "USD", "components": lines}})
    bought, logs = component(data, "capacity block cbo-1", 0), component(data, "log lines, a run", 0)
    assert (bought["hourlyCost"], bought["monthlyCost"]) == (None, "16000")
    assert (logs["hourlyCost"], logs["monthlyCost"], logs["usageBased"]) == (None, "1", True)
    assert (data["totalHourlyCost"], data["totalMonthlyCost"]) == (None, "16001")


def test_an_earlier_plan_is_the_past(demo_plan: Plan) -> None:
    now, past = plain(demo_plan), plain(demo_plan)
    nodes = next(c for c in past["cost"]["components"] if c["name"].startswith("aws-demo-0-spot: 2 x"))
    nodes.update(quantity=4, hourly=91.92)
    past["cost"]["components"] = [c for c in past["cost"]["components"] if not c["name"].startswith("aws-demo-nat")]
    data = infracost(now, past)
    jsonschema.validate(data, SCHEMA)
    (project,) = data["projects"]
    changes = {r["name"]: r["hourlyCost"] for r in project["diff"]["resources"]}
    assert changes == {"aws-demo-0-spot": "-45.96", "aws-demo-nat": "0.045"}
    assert Decimal(data["diffTotalHourlyCost"]) == Decimal("-45.915")
    assert Decimal(data["pastTotalMonthlyCost"]) + Decimal(data["diffTotalMonthlyCost"]) == pytest.approx(
        Decimal(data["totalMonthlyCost"]), abs=Decimal("1e-6")
    )


def test_without_an_earlier_plan_everything_is_new(demo_plan: Plan) -> None:
    data = infracost(plain(demo_plan))
    (project,) = data["projects"]
    assert project["pastBreakdown"] == {"resources": [], "totalHourlyCost": "0", "totalMonthlyCost": "0"}
    assert data["diffTotalHourlyCost"] == data["totalHourlyCost"]
