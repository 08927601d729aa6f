"""NodeLogs and Observability: the log group, the metrics out of log lines, and what the alarms are declared with."""

import json
import re
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.aws.alarms import events_group
from gangway.components.aws.budget import Budget
from gangway.components.aws.monitoring import (
    COLUMNS,
    RETENTION_DAYS,
    NodeLogs,
    Observability,
    check_retention,
    log_group_name,
    plan_dashboard,
    plan_filters,
    topic_policy,
)
from gangway.components.core.findings import InputError
from tests.components.fixture_types import Make

OF_NODES = {"JobsEndedBadly", "LaunchesHeld", "NodesGivenUp", "RecordsAtRisk"}
TICK = {"images": 4096, "step": 64, "images_per_sec": 812.5, "loss_g": 0.7, "loss_d": 1.1, "energy_joules": 9.5e4}


def matches(pattern: str, line: dict[str, Any]) -> bool:
    """The part of CloudWatch's filter grammar that our patterns use; anything else is an error here."""
    inner = re.fullmatch(r"\{ (.+) \}", pattern)
    assert inner, f"not a JSON pattern: {pattern}"
    # One kind of them a pattern; the grammar's precedence is not needed.
    both, word = (any, "||") if "||" in inner[1] else (all, "&&")
    return both(_term(term.strip().removeprefix("(").removesuffix(")"), line) for term in inner[1].split(word))


def _term(term: str, line: dict[str, Any]) -> bool:
    if match := re.fullmatch(r"\$\.(\w+) NOT EXISTS", term):
        return match[1] not in line
    if match := re.fullmatch(r"\$\.(\w+) >= (\d+)", term):
        value = line.get(match[1])
        return isinstance(value, int | float) and value >= float(match[2])
    if match := re.fullmatch(r"\$\.(\w+) != (\d+)", term):
        return match[1] in line and line[match[1]] != float(match[2])
    match = re.fullmatch(r'\$\.(\w+) = "([\w-]+)"', term)
    assert match, f"outside the grammar: {term}"
    return bool(line.get(match[1]) == match[2])


def published(line: dict[str, Any], *, of_nodes: bool = False) -> dict[str, float]:
    """What the filters make of one log line, of the job or of a node's scripts: metric -> value."""
    return {
        plan.metric: float(line[plan.value.removeprefix("$.")] if plan.value.startswith("$.") else plan.value)
        for plan in plan_filters()
        if plan.of_nodes == of_nodes and matches(plan.pattern, line)
    }


def test_a_statistics_line_becomes_its_metrics() -> None:
    assert published({**TICK, "gpu_utilisation": 0.93}) == {
        "ImagesPerSecond": 812.5, "Steps": 1.0, "GpuUtilisation": 0.93,
    }  # fmt: skip


@pytest.mark.parametrize("line", [{**TICK, "gpu_utilisation": None}, TICK], ids=["null", "absent"])
def test_no_utilisation_is_no_data_point_rather_than_an_idle_gpu(line: dict[str, Any]) -> None:
    assert published(line) == {"ImagesPerSecond": 812.5, "Steps": 1.0}


def test_an_idle_gpu_is_a_data_point() -> None:
    assert published({**TICK, "gpu_utilisation": 0})["GpuUtilisation"] == 0.0


@pytest.mark.parametrize(
    ("event", "metrics"),
    [
        ("start", {}),
        ("resume", {}),
        ("checkpoint", {"Checkpoints": 1.0}),
        ("interrupt", {"Interruptions": 1.0}),
        ("done", {}),
    ],
)
def test_events_are_counted_and_are_no_steps(event: str, metrics: dict[str, float]) -> None:
    assert published({"event": event, "images": 4096, "step": 64}) == metrics


@pytest.mark.parametrize(
    ("line", "metrics"),
    [
        ({"event": "node-given-up", "instance_id": "i-1", "reason": 'no "space" left'}, {"NodesGivenUp": 1.0}),
        ({"event": "launches-held", "instance_id": "i-1", "reason": "no GPU"}, {"LaunchesHeld": 1.0}),
        ({"event": "head-not-ready", "reason": "cannot mount"}, {"RecordsAtRisk": 1.0}),
        ({"event": "end-not-told", "reason": "tried for 3600 s"}, {"RecordsAtRisk": 1.0}),
        ({"event": "record-not-put", "reason": "AccessDenied"}, {"RecordsAtRisk": 1.0}),
        ({"event": "record-put", "reason": "s3://runs/x"}, {}),
        ({"event": "job-ended", "exit_status": 0}, {}),
        ({"event": "job-ended", "exit_status": 3}, {"JobsEndedBadly": 1.0}),
        ({"event": "job-ended"}, {}),
        ({"event": "other", "exit_status": 3}, {}),
    ],
)
def test_what_the_nodes_scripts_send_is_counted(line: dict[str, Any], metrics: dict[str, float]) -> None:
    assert published(line, of_nodes=True) == metrics
    assert published(line) == {}, "the job printed it"


def test_a_filter_has_no_dimensions_so_that_counts_have_a_zero(make: Make) -> None:
    """AWS refuses both at once; the stack is told apart by the namespace."""
    filters = make(NodeLogs).of("LogMetricFilter")
    assert len(filters) == len(plan_filters()) == 9
    zeros = {}
    for made in filters:
        metric = made.inputs["metricTransformation"]
        assert "dimensions" not in metric
        assert metric["namespace"] == "Gangway/test"
        group = "/gangway/test/events" if metric["name"] in OF_NODES else "/gangway/test"
        assert made.inputs["logGroupName"] == group
        assert len(made.inputs["pattern"]) <= 1024
        zeros[metric["name"]] = metric.get("defaultValue")
    assert zeros == {
        "Checkpoints": "0", "GpuUtilisation": None, "ImagesPerSecond": None, "Interruptions": "0",
        "JobsEndedBadly": "0", "LaunchesHeld": "0", "NodesGivenUp": "0", "RecordsAtRisk": "0", "Steps": "0",
    }  # fmt: skip


def test_log_groups_end_and_are_encrypted_where_a_key_is_given(make: Make) -> None:
    groups = [made.inputs for made in make(NodeLogs, retention_days=14).of("LogGroup")]
    lines = log_group_name("test")
    assert sorted(group["name"] for group in groups) == [lines, events_group(lines)] == [lines, "/gangway/test/events"]
    for group in groups:
        assert group["retentionInDays"] == 14
        assert group["kmsKeyId"].startswith("arn:aws:kms:")


PARTS = {"demo-nodes-up", "demo-steps-absent"}
ALARMS = [
    "demo-gpu-idle", "demo-interruptions", "demo-job-ended-badly", "demo-launches-held", "demo-nodes-given-up",
    "demo-nodes-missing", "demo-record-at-risk",
]  # fmt: skip


def test_alarms_tell_the_topic_and_stay_quiet_without_data(make: Make) -> None:
    alarms = make(Observability).of("MetricAlarm")
    assert [alarm.name for alarm in alarms if alarm.name not in PARTS] == ALARMS
    for alarm in alarms:
        told = [] if alarm.name in PARTS else ["${Topic.demo-alarms.arn}"]
        assert alarm.inputs.get("alarmActions", []) == told
        missing = "breaching" if alarm.name == "demo-steps-absent" else "notBreaching"
        assert alarm.inputs["treatMissingData"] == missing
        assert sum(query["returnData"] for query in alarm.inputs["metricQueries"]) == 1


def test_no_steps_rings_while_both_of_its_parts_do(make: Make) -> None:
    composite = make(Observability).one("CompositeAlarm").inputs
    rule = 'ALARM("${MetricAlarm.demo-steps-absent.arn}") AND ALARM("${MetricAlarm.demo-nodes-up.arn}")'
    assert composite["alarmRule"] == rule
    assert composite["alarmName"] == "gangway-test-no-steps"
    assert composite["alarmActions"] == ["${Topic.demo-alarms.arn}"]
    assert "raise steps_alarm_minutes" in composite["alarmDescription"]


def test_without_gpus_no_alarm_waits_for_them(make: Make) -> None:
    names = {alarm.name for alarm in make(Observability, expect_gpu=False).of("MetricAlarm")}
    assert names == {*ALARMS, *PARTS} - {"demo-gpu-idle"}


def test_the_dashboard_shows_every_alarm_and_group(make: Make) -> None:
    made = make(Observability)
    dashboard = made.one("Dashboard").inputs
    body = json.loads(dashboard["dashboardBody"])
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,255}", dashboard["dashboardName"])
    (shown,) = [widget["properties"]["alarms"] for widget in body["widgets"] if widget["type"] == "alarm"]
    told = [f"${{MetricAlarm.{name}.arn}}" for name in ALARMS]
    assert sorted(shown) == ["${CompositeAlarm.demo-no-steps.arn}", *told]
    assert {"JobsEndedBadly", "NodesGivenUp"} <= set(re.findall(r"\w+", dashboard["dashboardBody"]))
    assert {"test-0-spot", "test-1-on-demand"} <= set(re.findall(r"[\w-]+", dashboard["dashboardBody"]))


@given(st.integers(-5, 1000))
def test_retention_is_one_that_aws_offers_or_the_fix_is(days: int) -> None:
    if days in RETENTION_DAYS:
        check_retention(days)
        return
    with pytest.raises(InputError) as caught:
        check_retention(days)
    fix = int(caught.value.fix.rpartition(" ")[2])
    check_retention(fix)
    assert fix >= min(days, RETENTION_DAYS[-1])


def test_a_wrong_retention_declares_nothing(make: Make) -> None:
    with pytest.raises(InputError, match="retention_days: 14"):
        make(NodeLogs, retention_days=10)


def test_only_one_service_may_publish_and_only_for_the_account() -> None:
    (statement,) = topic_policy("arn:aws:sns:us-east-2:1234:x", "s.amazonaws.com", "arn:{partition}:s::{account}:*")[
        "Statement"
    ]
    assert statement["Principal"] == {"Service": "s.amazonaws.com"}
    assert (statement["Effect"], statement["Action"]) == ("Allow", "SNS:Publish")
    assert statement["Resource"] == "arn:aws:sns:us-east-2:1234:x"
    assert statement["Condition"] == {
        "StringEquals": {"aws:SourceAccount": "1234"},
        "ArnLike": {"aws:SourceArn": "arn:aws:s::1234:*"},
    }


def test_budgets_and_alarms_have_topics_of_their_own(make: Make) -> None:
    publishers = {
        component: json.loads(made.inputs["policy"])["Statement"][0]["Principal"]["Service"]
        for component in (Budget, Observability)
        for made in make(component).of("TopicPolicy")
    }
    assert publishers == {Budget: "budgets.amazonaws.com", Observability: "cloudwatch.amazonaws.com"}


def test_everybody_hears_of_an_alarm(make: Make) -> None:
    made = make(Observability, emails=["a@example.com", "b@example.com"])
    heard = [(s.inputs["topic"], s.inputs["protocol"], s.inputs["endpoint"]) for s in made.of("TopicSubscription")]
    topic = "${Topic.demo-alarms.arn}"
    assert heard == [(topic, "email", "a@example.com"), (topic, "email", "b@example.com")]


GROUPS = ["demo-0-spot", "demo-1-on-demand"]
ALARM_ARNS = ["arn:aws:cloudwatch:us-east-2:1:alarm:a", "arn:aws:cloudwatch:us-east-2:1:alarm:b"]


@pytest.fixture
def body() -> dict[str, Any]:
    return plan_dashboard("demo", "us-east-2", "/gangway/demo", GROUPS, ALARM_ARNS)


def of_type(body: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [widget["properties"] for widget in body["widgets"] if widget["type"] == kind]


def metrics(body: dict[str, Any]) -> list[list[Any]]:
    return [metric for widget in of_type(body, "metric") for metric in widget["metrics"]]


@given(groups=st.lists(st.text("abcdef-", min_size=1), max_size=9, unique=True))
def test_widgets_lie_within_the_grid_and_do_not_overlap(groups: list[str]) -> None:
    widgets = plan_dashboard("demo", "us-east-2", "/gangway/demo", groups, ALARM_ARNS)["widgets"]
    places = [{(w["x"] + x, w["y"] + y) for x in range(w["width"]) for y in range(w["height"])} for w in widgets]
    assert all(0 <= x < COLUMNS for place in places for x, _ in place)
    assert all(not one & other for one, other in combinations(places, 2))
    assert {w["type"] for w in widgets} == {"text", "alarm", "metric", "log"}


def test_every_graph_names_its_region_title_and_period(body: dict[str, Any]) -> None:
    graphs = of_type(body, "metric")
    assert {graph["region"] for graph in [*graphs, *of_type(body, "log")]} == {"us-east-2"}
    assert len({graph["title"] for graph in graphs}) == len(graphs)
    assert all(graph["period"] % 60 == 0 and graph["stat"] in ("Average", "Sum") for graph in graphs)


def test_what_the_filters_publish_is_what_the_graphs_show(body: dict[str, Any]) -> None:
    shown = {name for namespace, name, *_ in metrics(body) if namespace == "Gangway/demo"}
    assert shown == {plan.metric for plan in plan_filters()} - {"Steps"}, "steps are for the alarm"


def test_every_rung_has_its_nodes_and_its_network(body: dict[str, Any]) -> None:
    for group in GROUPS:
        mine = {name for _, name, *dimensions in metrics(body) if dimensions[:2] == ["AutoScalingGroupName", group]}
        assert mine == {"GroupInServiceInstances", "GroupDesiredCapacity", "NetworkOut"}


def test_the_losses_come_from_the_log(body: dict[str, Any]) -> None:
    (log,) = of_type(body, "log")
    assert log["query"].startswith("SOURCE '/gangway/demo' | filter ")
    assert {"loss_g", "loss_d"} <= set(re.findall(r"avg\((\w+)\)", log["query"]))


def test_the_alarms_and_the_budget_are_on_top(body: dict[str, Any]) -> None:
    text, alarms = body["widgets"][:2]
    assert alarms["properties"]["alarms"] == ALARM_ARNS
    assert re.search(r"\[Budgets\]\(https://\S+/budgets\)", text["properties"]["markdown"])
    assert "EFA" in text["properties"]["markdown"], "what the network graph leaves out is said"


def test_the_body_is_json(body: dict[str, Any]) -> None:
    assert json.loads(json.dumps(body)) == body
