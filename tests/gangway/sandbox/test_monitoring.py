"""Log groups, metric filters and dashboards on moto: read back equal, found when tampered with, refused when wrong."""

from typing import Any

import boto3
import pytest

from gangway.components.aws.monitoring import NodeLogs, Observability
from gangway.sandbox.cloud import MotoCloud
from gangway.sandbox.rows import SandboxRow, Status
from gangway.stacks.recording import record

GROUP = "aws:cloudwatch/logGroup:LogGroup"
FILTER = "aws:cloudwatch/logMetricFilter:LogMetricFilter"
COMPOSITE = "aws:cloudwatch/compositeAlarm:CompositeAlarm"
DASHBOARD = "aws:cloudwatch/dashboard:Dashboard"


def program() -> dict[str, Any]:
    NodeLogs("demo", {"stack": "demo", "retention_days": 30, "tags": {"team": "ml"}})
    Observability(
        "demo",
        {
            "stack": "demo",
            "region": "us-east-2",
            "group_names": ["demo-0-spot", "demo-1-on-demand"],
            "emails": ["a@example.com"],
            "steps_alarm_minutes": 30,
            "expect_gpu": True,
            "tags": {"team": "ml"},
        },
    )
    return {}


@pytest.fixture(scope="module")
def rows() -> tuple[SandboxRow, ...]:
    with MotoCloud("us-east-2") as cloud:
        record(program, cloud, "demo")
        return cloud.read_back()


@pytest.mark.slow
def test_everything_is_read_back_equal(rows: tuple[SandboxRow, ...]) -> None:
    topics = {f"aws:sns/{kind[0].lower()}{kind[1:]}:{kind}" for kind in ("Topic", "TopicPolicy", "TopicSubscription")}
    own = {GROUP, FILTER, COMPOSITE, DASHBOARD, "aws:cloudwatch/metricAlarm:MetricAlarm"}
    assert {row.type for row in rows} == own | topics
    (composite,) = [row for row in rows if row.type == COMPOSITE]
    assert (composite.status, composite.calls) == (Status.VALIDATED, ("cloudwatch:PutCompositeAlarm",))
    others = [row for row in rows if row is not composite]
    assert {row.status for row in others} == {Status.READ_BACK_EQUAL}
    assert {row.note for row in others if row.type not in topics} == {""}
    fields = {row.type: row.fields_compared for row in rows}
    assert {"logGroupName", "retentionInDays", "tags.team"} <= set(fields[GROUP])
    assert {"filterName", "filterPattern", "logGroupName"} <= set(fields[FILTER])
    assert "metricTransformations[0].metricNamespace" in fields[FILTER]
    assert "DashboardBody.widgets[2].properties.region" in fields[DASHBOARD]


def test_requests_are_those_of_the_provider(rows: tuple[SandboxRow, ...]) -> None:
    calls = {row.type: row.calls for row in rows}
    assert calls[GROUP] == ("logs:CreateLogGroup", "logs:PutRetentionPolicy")
    assert calls[FILTER] == ("logs:PutMetricFilter",)
    assert calls[DASHBOARD] == ("cloudwatch:PutDashboard",)


@pytest.mark.slow
def test_tampering_is_found() -> None:
    with MotoCloud("us-east-2") as cloud:
        record(program, cloud, "demo")
        logs: Any = boto3.client("logs")
        logs.put_retention_policy(logGroupName="/gangway/demo", retentionInDays=1)
        filters = logs.describe_metric_filters()["metricFilters"]
        (steps,) = [found["filterName"] for found in filters if "Steps" in found["filterName"]]
        logs.delete_metric_filter(filterName=steps, logGroupName="/gangway/demo")
        boto3.client("cloudwatch").put_dashboard(DashboardName="gangway-demo", DashboardBody='{"widgets": []}')
        different = {row.name: row.note for row in cloud.read_back() if row.status is Status.DIFFERENT}
    assert different["demo-nodes"] == "retentionInDays: declared 30, held 1"
    assert "held nothing" in different["demo-Steps"]
    assert "DashboardBody.widgets: declared '8 items', held '0 items'" in different["demo"]
    assert len(different) == 3


@pytest.mark.slow
def test_a_group_may_have_a_key_and_keep_logs_for_ever() -> None:
    with MotoCloud("us-east-2") as cloud:
        key = "arn:aws:kms:us-east-2:123456789012:key/11111111-2222-3333-4444-555555555555"
        id_, outputs = cloud(GROUP, "plain", {"skipDestroy": True, "kmsKeyId": key})
        (row,) = cloud.read_back()
    assert row.status is Status.READ_BACK_EQUAL
    assert row.calls == ("logs:CreateLogGroup",)
    assert "kmsKeyId" in row.fields_compared
    assert outputs["arn"] == f"arn:aws:logs:us-east-2:123456789012:log-group:{id_}"


TRANSFORMATION = {"name": "Steps", "namespace": "Gangway/demo", "value": "1"}


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (GROUP, {"name": "/gangway/demo", "retentionInDays": "long"}, "retentionInDays, value: long"),
    (GROUP, {"name": 5}, "Invalid type for parameter logGroupName"),
    (
        FILTER,
        {"logGroupName": "g", "pattern": "x", "metricTransformation": {**TRANSFORMATION, "unit": "Steps"}},
        "'Steps' is not a value botocore's model knows",
    ),
    (COMPOSITE, {"alarmName": "x"}, 'Missing required parameter in input: "AlarmRule"'),
    (DASHBOARD, {"dashboardName": "x", "dashboardBody": "{"}, "Body is invalid JSON"),
]


@pytest.mark.slow
def test_wrong_requests_are_refused() -> None:
    with MotoCloud("us-east-2") as cloud:
        for index, (type_token, inputs, _) in enumerate(REFUSED):
            cloud(type_token, f"wrong-{index}", inputs)
        notes = {row.name: (row.status, row.note) for row in cloud.read_back()}
    for index, (_, _, words) in enumerate(REFUSED):
        status, note = notes[f"wrong-{index}"]
        assert status is Status.REFUSED
        assert words in note
