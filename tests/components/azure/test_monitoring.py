"""Lines, alarms and the workbook: what is asked for, of what, and who hears."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.azure.monitoring import (
    ALIVE_EVENT,
    COLUMNS,
    LOOK_EVENT,
    REFUSED_EVENT,
    TABLE,
    AlarmPlan,
    NodeLogs,
    Observability,
    check_retention,
    plan_alarms,
    plan_dashboard,
)
from gangway.components.core.findings import InputError
from gangway.components.core.limits import STEPS_ALARM_MINUTES
from gangway.images.node.azure import fallback as azure_fallback
from gangway.images.node.azure.logs import get_row
from tests.components.fixture_types import Make, Mistakes

NAMES = {"no-steps", "gpu-idle", "interruptions", "nodes-missing", "no-nodes", "nodes-refused", "node-given-up",
         "launches-held", "job-failed", "record-at-risk"}  # fmt: skip
# Of Microsoft.Insights/scheduledQueryRules: documented for the query's range, the window and the frequency.
ALLOWED_TIMES = {"PT1M", "PT5M", "PT10M", "PT15M", "PT30M", "PT45M", "PT1H", "PT2H", "PT3H", "PT4H", "PT5H", "PT6H",
                 "P1D", "P2D"}  # fmt: skip
REFUSED = ("bag_unpack", "pivot", "narrow", "AggregatedValue", "search ", "ingestion_time")


def balanced(query: str) -> bool:
    """Whether each bracket is closed."""
    plain = re.sub(r'"[^"]*"', "", query)
    return all(plain.count(a) == plain.count(b) for a, b in ("()", "[]", "{}")) and query.count('"') % 2 == 0


OF_THE_JOB = {"gpu-idle", "interruptions"}
"""Alarms that go by what the job prints alone."""


def get_columns(query: str) -> set[str]:
    """The columns that a query names of the table's."""
    return {name for name, _ in COLUMNS if re.search(rf"\b{name}\b", query)}


@given(st.integers(1, 1000), st.sampled_from(STEPS_ALARM_MINUTES), st.integers(1, 100), st.booleans())
def test_every_alarm_asks_the_one_table_within_its_time(nodes: int, minutes: int, per_hour: int, gpu: bool) -> None:
    plans = plan_alarms(nodes, minutes, per_hour, expect_gpu=gpu)
    assert {plan.name for plan in plans} == (NAMES if gpu else NAMES - {"gpu-idle"})
    for plan in plans:
        assert TABLE in plan.query
        assert balanced(plan.query), plan.query
        assert not [word for word in REFUSED if word in plan.query]
        assert "TimeGenerated" in get_columns(plan.query)
        assert ("Line.printed." if plan.name in OF_THE_JOB else "Event") in plan.query
        # Azure looks back two days at most, and takes literals only.
        for number, unit in re.findall(r"ago\((\w+?)([mhd])\)", plan.query):
            assert int(number) * {"m": 1, "h": 60, "d": 1440}[unit] <= 2 * 1440
        assert "ago(" in plan.query
        assert plan.severity in range(4)
        assert plan.description.endswith(".")


def by_name(**changes: Any) -> dict[str, AlarmPlan]:
    told = {"num_nodes": 4, "steps_alarm_minutes": 30, "interruptions_per_hour": 3, "expect_gpu": True, **changes}
    expect_gpu = told.pop("expect_gpu")
    return {plan.name: plan for plan in plan_alarms(**told, expect_gpu=expect_gpu)}


def test_thresholds_are_where_they_are_meant() -> None:
    plans = by_name()
    assert "countif(coalesce(Nodes, 0) < 4)" in plans["nodes-missing"].query
    assert "where Missing >= 6" in plans["nodes-missing"].query
    assert "where Times > 3" in plans["interruptions"].query
    assert "First < ago(30m)" in plans["no-steps"].query
    assert "where Busy < 0.1" in plans["gpu-idle"].query
    assert "toint(Line.exit_status) != 0" in plans["job-failed"].query
    assert '"head-not-ready", "record-not-put", "end-not-told", "ladder-not-kept"' in plans["record-at-risk"].query
    assert plans["record-at-risk"].query.endswith('| where Event != "ladder-not-kept" or Times >= 5')


def test_nodes_that_never_come_ring_while_the_head_asks_for_them() -> None:
    """No scale set fails an `up`, for all are made empty; nor has a node that never lived a line in the table."""
    never, refused = by_name()["no-nodes"].query, by_name()["nodes-refused"].query
    assert f'Event == "{LOOK_EVENT}"' in never
    assert never.endswith("| where First < ago(30m) and Last > ago(10m) and living == 0")
    assert f'Event == "{REFUSED_EVENT}"' in refused
    assert refused.endswith("| where Times >= 3")
    assert (LOOK_EVENT, REFUSED_EVENT) == (azure_fallback.LOOKED, azure_fallback.REFUSED), "what the head says"


def test_what_the_job_prints_is_no_event_of_its_node() -> None:
    """It stands in `Line.printed`, and a job that prints an event of a node's has none in the column of alarms."""
    said = {"event": "node-given-up", "exit_status": 3, "step": 1}
    unit = {"MESSAGE": json.dumps(said), "__REALTIME_TIMESTAMP": "1", "_SYSTEMD_UNIT": "gangway-trainer.service"}
    row = get_row("demo_3", "worker", unit)
    assert (row["Event"], row["Line"]) == ("", {"printed": said})
    for name, plan in by_name().items():
        assert ("Line.printed." in plan.query) == (name in OF_THE_JOB | {"no-steps", "nodes-missing"})
    dashboard = json.dumps(plan_dashboard("demo", "westus"))
    assert "isempty(tostring(Line.printed.event)) and isnotnull(Line.printed.images_per_sec)" in dashboard


def test_nodes_are_those_that_say_they_live() -> None:
    for name in ("no-steps", "nodes-missing", "no-nodes"):
        assert f'Role == "node" and Event == "{ALIVE_EVENT}"' in by_name()[name].query


@pytest.mark.parametrize(("minutes", "nearest"), [(9, 10), (1441, 1440), (0, 10)])
def test_a_window_in_which_nothing_can_be_told_is_refused(minutes: int, nearest: int) -> None:
    with pytest.raises(InputError) as caught:
        by_name(steps_alarm_minutes=minutes)
    assert caught.value.fix == f"set steps_alarm_minutes: {nearest}"


@pytest.mark.parametrize(("days", "nearest"), [(29, 30), (731, 730), (1, 30)])
def test_a_time_that_log_analytics_does_not_offer_is_refused(days: int, nearest: int) -> None:
    with pytest.raises(InputError) as caught:
        check_retention(days, "gangway:observe.retention_days")
    assert caught.value.fix == f"set retention_days: {nearest}"


@pytest.fixture
def lines(place: dict[str, Any]) -> dict[str, Any]:
    return {**{key: place[key] for key in ("resource_group_name", "location", "tags")}, "retention_days": 30}


def test_a_table_and_the_way_into_it(make: Make, lines: dict[str, Any], arm_mistakes: Mistakes) -> None:
    made = make(NodeLogs, lines)
    assert arm_mistakes(made) == []
    schema = made.one("Table").inputs["schema"]
    assert schema["name"] == made.one("Table").inputs["tableName"] == TABLE
    rule = made.one("DataCollectionRule")
    ((stream, declared),) = rule.inputs["streamDeclarations"].items()
    assert stream == "Custom-Gangway"
    assert declared["columns"] == [{"name": name, "type": kind} for name, kind in COLUMNS]
    assert [column["name"] for column in schema["columns"]] == [name for name, _ in COLUMNS]
    assert [column["type"].lower() for column in schema["columns"]] == [kind for _, kind in COLUMNS]
    (flow,) = rule.inputs["dataFlows"]
    assert flow["streams"] == [stream]
    assert flow["outputStream"] == f"Custom-{TABLE}"
    assert made.one("Table").urn in rule.dependencies, "it may name the table only when there is one"
    assert made.one("Workspace").inputs["features"] == {"disableLocalAuth": True}
    names = {"_ResourceId", "id", "_SubscriptionId", "TenantId", "Type", "UniqueId", "Title"}
    assert names.isdisjoint(name for name, _ in COLUMNS), "Azure keeps these for itself"


def test_an_existing_workspace_gets_the_table(make: Make, lines: dict[str, Any], arm_mistakes: Mistakes) -> None:
    id_ = "/subscriptions/s/resourceGroups/spoke/providers/Microsoft.OperationalInsights/workspaces/logs"
    workspace = {"id": id_, "name": "logs", "resource_group_name": "spoke"}
    made = make(NodeLogs, {**lines, "workspace": workspace})
    assert arm_mistakes(made) == []
    assert not made.of("Workspace")
    table = made.one("Table").inputs
    assert (table["resourceGroupName"], table["workspaceName"]) == ("spoke", "logs")
    (destination,) = made.one("DataCollectionRule").inputs["destinations"]["logAnalytics"]
    assert destination["workspaceResourceId"] == id_


@pytest.fixture
def watched(place: dict[str, Any]) -> dict[str, Any]:
    wanted = ("subscription_id", "resource_group_name", "location", "stack", "tags")
    return {
        **{key: place[key] for key in wanted},
        "workspace_id": "/workspace", "num_nodes": 4, "emails": ["a@example.com"],
        "steps_alarm_minutes": 30, "expect_gpu": True,
    }  # fmt: skip


def test_alarms_ring_at_the_people_named(make: Make, watched: dict[str, Any], arm_mistakes: Mistakes) -> None:
    made = make(Observability, watched)
    assert arm_mistakes(made) == []
    rules = made.of("ScheduledQueryRule")
    assert {rule.name for rule in rules} == {f"demo-{name}" for name in NAMES}
    for rule in rules:
        inputs = rule.inputs
        assert inputs["scopes"] == ["/workspace"]
        assert inputs["actions"] == {"actionGroups": ["${ActionGroup.demo-alarms.id}"]}
        assert {inputs["evaluationFrequency"], inputs["windowSize"], inputs["overrideQueryTimeRange"]} <= ALLOWED_TIMES
        (rings,) = inputs["criteria"]["allOf"]
        assert (rings["timeAggregation"], rings["operator"], rings["threshold"]) == ("Count", "GreaterThan", 0)
        assert inputs["autoMitigate"] is True
    assert not make(Observability, {**watched, "expect_gpu": False}).of("ScheduledQueryRule")[0].name.endswith("idle")


def test_the_workbook_asks_the_stacks_workspace(make: Make, watched: dict[str, Any]) -> None:
    book = make(Observability, watched).one("Workbook").inputs
    assert book["sourceId"] == "/workspace"
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", book["resourceName"])
    assert json.loads(book["serializedData"]) == plan_dashboard("demo", "eastus")


def test_each_part_of_the_workbook_has_a_name_and_a_query() -> None:
    items = plan_dashboard("demo", "eastus")["items"]
    assert len({item["name"] for item in items}) == len(items)
    heading, *queries = items
    assert heading["content"]["json"].startswith("# demo")
    for item in queries:
        query = item["content"]["query"]
        assert query.startswith(TABLE)
        assert balanced(query)
        assert item["content"]["visualization"] in ("timechart", "table")
        assert item["content"]["visualization"] == "table" or "bin(TimeGenerated" in query
