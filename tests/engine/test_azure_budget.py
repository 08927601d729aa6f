"""The month in which Azure's budget begins, over several months: under the real engine, over a stand-in of Azure."""

import json
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

PROGRAM = """
import datetime, json, pathlib, pulumi
import pulumi_azure_native as azure
from gangway.components.azure import budget
args = json.loads(pathlib.Path("args.json").read_text())
month = datetime.date.fromisoformat(args["month"])
budget.this_month = lambda: month
subscription = "00000000-0000-0000-0000-000000000000"
made = azure.Provider("dev", location="eastus", subscription_id=subscription)
budget.Budget("dev", {
    "subscription_id": subscription, "resource_group_name": "lab", "location": "eastus", "tags": {},
    "monthly_usd": 100.0, "starts_on": args["starts_on"], "emails": ["a@example.com"], "alert_percent": [args["alert"]],
    "tag_key": "gangway-stack", "tag_value": "dev",
}, pulumi.ResourceOptions(providers={"azure-native": made}))
"""


def test_a_budget_keeps_its_first_month_unless_another_is_set(
    make_program_engine: Callable[[str, dict[str, Any]], Any],
) -> None:
    engine = make_program_engine(PROGRAM, {})

    def up(month: str, starts_on: str | None, alert: float = 50) -> tuple[dict[str, int], str]:
        """How many resources changed, by kind of step, and the start that the budget then has."""
        args = {"month": month, "starts_on": starts_on, "alert": alert}
        (engine.project / "args.json").write_text(json.dumps(args), "utf-8")
        changes = {kind: number for kind, number in engine.applied("up").changes.items() if kind != "same"}
        [made] = [each for each in engine.resources() if each["type"].endswith(":Budget")]
        return changes, made["inputs"]["timePeriod"]["startDate"]

    assert up("2027-01-01", None)[1] == "2027-01-01T00:00:00Z"
    assert up("2027-02-01", None) == ({}, "2027-01-01T00:00:00Z")
    assert up("2027-03-01", None, alert=60) == ({"update": 1}, "2027-01-01T00:00:00Z")
    assert up("2027-04-01", "2027-05-01", alert=60)[1] == "2027-05-01T00:00:00Z"
    assert up("2027-06-01", None, alert=60) == ({}, "2027-05-01T00:00:00Z")
