"""Infracost's shape: its keys, decimal strings that add up, prices nobody knows, and the difference."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gangway.report.plans.infracost import infracost
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import Plan, make_plan

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
COST = {"type": ["string", "null"], "pattern": r"^-?[0-9]+(\.[0-9]+)?$"}
TEXT, WHOLE, FLAG, ANY = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}, {"type": "object"}


def shape(required: str, **fields: Any) -> dict[str, Any]:
    """An object that has these fields, all of `required` and no others."""
    return {"type": "object", "required": required.split(), "properties": fields, "additionalProperties": False}


def rows(of: Any) -> dict[str, Any]:
    return {"type": "array", "items": of}


def named(kind: Any, names: str) -> dict[str, Any]:
    return dict.fromkeys(names.split(), kind)


# What schema/infracost.schema.json of infracost/infracost asks for at 95ba4f4 (2026-08-21), of the fields that we
# write; stricter in two ways: costs are decimals, and a price is one or null.
COMPONENT = shape(
    "name unit hourlyQuantity monthlyQuantity price hourlyCost monthlyCost priceNotFound",
    **named(TEXT, "name unit"),
    **named(COST, "hourlyQuantity monthlyQuantity price hourlyCost monthlyCost"),
    **named(FLAG, "usageBased priceNotFound"),
)
RESOURCE = shape(
    "name metadata",
    **named(TEXT, "name resourceType"),
    **named(COST, "hourlyCost monthlyCost monthlyUsageCost"),
    metadata=ANY,
    costComponents=rows(COMPONENT),
)
BREAKDOWN = shape(
    "resources totalHourlyCost totalMonthlyCost totalMonthlyUsageCost",
    **named(rows(RESOURCE), "resources freeResources"),
    **named(COST, "totalHourlyCost totalMonthlyCost totalMonthlyUsageCost"),
)
NUMBERS = (
    "totalDetectedResources totalSupportedResources totalUnsupportedResources totalUsageBasedResources "
    "totalNoPriceResources"
)
COUNTS = "supportedResourceCounts unsupportedResourceCounts noPriceResourceCounts"
SUMMARY = shape("", **named(WHOLE, NUMBERS), **named({"type": "object", "additionalProperties": WHOLE}, COUNTS))
PROJECT = shape(
    "name displayName metadata pastBreakdown breakdown diff summary",
    **named(TEXT, "name displayName"),
    **named(BREAKDOWN, "pastBreakdown breakdown diff"),
    metadata=shape("path type", **named(TEXT, "path type")),
    summary=SUMMARY,
)
COMMIT = (
    "infracostCommand vcsBranch vcsCommitSha vcsCommitAuthorName vcsCommitAuthorEmail vcsCommitTimestamp "
    "vcsCommitMessage"
)
TIME = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)$"}
TOTALS = [f"{word}{span}Cost" for word in ("total", "pastTotal", "diffTotal") for span in ("Hourly", "Monthly")]
SCHEMA = shape(
    f"version metadata currency projects timeGenerated summary {' '.join(TOTALS)}",
    **named(COST, f"{' '.join(TOTALS)} totalMonthlyUsageCost pastTotalMonthlyUsageCost diffTotalMonthlyUsageCost"),
    version={"const": "0.2"},
    metadata=shape(COMMIT, **{**named(TEXT, COMMIT), "vcsCommitTimestamp": TIME}),
    currency={"const": "USD"},
    projects=rows(PROJECT),
    timeGenerated=TIME,
    summary=SUMMARY,
)
FILES = sorted((Path(__file__).resolve().parents[4] / "stacks").glob("Pulumi.*.yaml"))


def plain(plan: Plan) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(json.dumps(plan.to_json()))
    return data


def component(data: Mapping[str, Any], resource: str, position: int) -> Mapping[str, Any]:
    (project,) = data["projects"]
    (found,) = [r for r in project["breakdown"]["resources"] if r["name"] == resource]
    line: Mapping[str, Any] = found["costComponents"][position]
    return line


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_shape_is_infracosts(path: Path) -> None:
    plan = make_plan(from_file(path))
    for past in (None, plain(plan)):
        jsonschema.validate(infracost(plain(plan), past), SCHEMA)
    data = infracost(plain(plan))
    (project,) = data["projects"]
    assert float(data["totalHourlyCost"]) == pytest.approx(plan.cost.hourly)
    assert float(data["totalMonthlyCost"]) == pytest.approx(plan.cost.monthly)
    for resource in project["breakdown"]["resources"]:
        assert "resourceType" in resource or plan.config.provider == "hosts", resource["name"]
    summary = data["summary"]
    parts = ("totalSupportedResources", "totalNoPriceResources", "totalUnsupportedResources")
    assert summary["totalDetectedResources"] == sum(summary[part] for part in parts)
    assert summary["totalNoPriceResources"] == len(project["breakdown"]["freeResources"])
    assert summary["unsupportedResourceCounts"] == {}


def test_what_costs_something_is_not_counted_as_free(demo_plan: Plan) -> None:
    summary = infracost(plain(demo_plan))["summary"]
    paid = {
        *("aws:ec2/eip:Eip", "aws:route53/zone:Zone", "aws:cloudwatch/metricAlarm:MetricAlarm"),
        *("aws:cloudwatch/compositeAlarm:CompositeAlarm", "aws:cloudwatch/dashboard:Dashboard"),
        *("aws:cloudwatch/logMetricFilter:LogMetricFilter", "aws:s3/bucket:Bucket", "aws:ecr/repository:Repository"),
    }
    assert paid.isdisjoint(summary["noPriceResourceCounts"])
    assert paid <= set(summary["supportedResourceCounts"])
    assert summary["noPriceResourceCounts"]["aws:ec2/vpc:Vpc"] == 1


def test_what_is_paid_by_use_has_no_quantity_and_no_cost(demo_plan: Plan) -> None:
    line = component(infracost(plain(demo_plan)), "aws-demo-runs", 0)
    assert (line["name"], line["usageBased"]) == ("objects kept and requests", True)
    assert {line[key] for key in ("hourlyQuantity", "monthlyQuantity", "price", "hourlyCost", "monthlyCost")} == {None}


def test_a_resource_that_nobody_knows_is_unsupported() -> None:
    new = {"type": "aws:rds/instance:Instance", "name": "db", "inputs": {}}
    data = infracost({"stack": "s", "resources": [new], "cost": {"currency": "USD", "components": []}})
    assert data["summary"]["unsupportedResourceCounts"] == {"aws:rds/instance:Instance": 1}


def test_the_demos_nodes_by_hand(demo_plan: Plan) -> None:
    data = infracost(plain(demo_plan), now=NOW)
    assert data["timeGenerated"] == "2026-11-21T12:00:00+00:00"
    assert component(data, "aws-demo-0-spot", 0) == {
        "name": "2 x p5.48xlarge, spot",
        "unit": "hours",
        "hourlyQuantity": "2",
        "monthlyQuantity": "1460",
        "price": "14.0818",
        "hourlyCost": "28.1636",
        "monthlyCost": "20559.428",
        "priceNotFound": False,
    }
    volumes = component(data, "aws-demo-0-spot", 1)
    assert (volumes["monthlyQuantity"], volumes["monthlyCost"], volumes["hourlyCost"]) == ("400", "32", "0.0438356164")
    resources = data["projects"][0]["breakdown"]["resources"]
    paid = {(r["name"], r["resourceType"].rpartition(":")[2]) for r in resources if Decimal(r["monthlyCost"] or 0)}
    assert paid == {
        ("aws-demo-0-spot", "Group"),
        ("aws-demo-head", "Instance"),
        ("aws-demo-lustre", "LustreFileSystem"),
        ("aws-demo-nat", "NatGateway"),
        ("aws-demo-nat", "Eip"),
        ("aws-demo-private", "Zone"),
        ("aws-demo", "Dashboard"),
        ("CloudWatch", "MetricAlarm"),
        ("aws-demo-no-steps", "CompositeAlarm"),
        ("CloudWatch", "LogMetricFilter"),
    }
    standby = component(data, "aws-demo-1-on-demand", 0)
    assert standby["name"] == "2 x p5.48xlarge, on-demand (standby)"
    assert (standby["price"], standby["monthlyQuantity"], standby["monthlyCost"]) == ("55.04", "0", "0")


def test_an_unknown_price_is_not_found_and_not_zero(azure_plans: dict[str, Plan]) -> None:
    plan = plain(azure_plans["azure-ndv4"])
    for priced in plan["cost"]["components"]:
        if priced["name"].startswith("azure-ndv4-lustre"):
            priced.update(price=None, hourly=None)
    line = component(infracost(plan), "azure-ndv4-lustre", 0)
    assert line["priceNotFound"]
    assert (line["price"], line["hourlyCost"], line["monthlyCost"]) == ("0", None, None)
    assert line["monthlyQuantity"] == "16384"


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
    past["cost"]["components"] = [c for c in past["cost"]["components"] if c["name"] != "aws-demo-nat: NAT gateway"]
    data = infracost(now, past)
    jsonschema.validate(data, SCHEMA)
    (project,) = data["projects"]
    changes = {r["name"]: r["hourlyCost"] for r in project["diff"]["resources"]}
    assert changes == {"aws-demo-0-spot": "-28.1636", "aws-demo-nat": "0.045"}
    assert Decimal(data["diffTotalHourlyCost"]) == Decimal("-28.1186")
    assert Decimal(data["pastTotalMonthlyCost"]) + Decimal(data["diffTotalMonthlyCost"]) == pytest.approx(
        Decimal(data["totalMonthlyCost"]), abs=Decimal("1e-6")
    )


def test_without_an_earlier_plan_everything_is_new(demo_plan: Plan) -> None:
    data = infracost(plain(demo_plan))
    (project,) = data["projects"]
    past = project["pastBreakdown"]
    assert (past["resources"], past["freeResources"]) == ([], [])
    assert {past[key] for key in ("totalHourlyCost", "totalMonthlyCost", "totalMonthlyUsageCost")} == {"0"}
    assert data["diffTotalHourlyCost"] == data["totalHourlyCost"]
