"""The nodes' log, its metrics, the alarms and the dashboard, against the APIs' own documents."""

import json
from typing import Any

import pytest

from gangway.components.core.findings import InputError
from gangway.components.gcp.alarms import METRICS, plan_alarms
from gangway.components.gcp.monitoring import NodeLogs, Observability, check_retention, log_id, log_name, plan_dashboard
from tests.components.fixture_types import Make, Mistakes

GROUPS = ["demo-0-spot", "demo-1-flex"]
LOG = "projects/lab/logs/gangway-demo"


@pytest.fixture
def logs_args() -> dict[str, Any]:
    return {
        "project": "lab",
        "region": "us-east5",
        "stack": "demo",
        "run_bucket_name": "demo-runs-1a2b3c4",
        "retention_days": 30,
        "kms_key_name": "key",
    }


@pytest.fixture
def args(labels: dict[str, str]) -> dict[str, Any]:
    return {
        "project": "lab",
        "region": "us-east5",
        "stack": "demo",
        "log_name": LOG,
        "group_names": GROUPS,
        "num_nodes": 4,
        "emails": ["a@example.com", "b@example.com"],
        "steps_alarm_minutes": 30,
        "expect_gpu": True,
        "tags": labels,
    }


def test_the_log_and_where_it_is_kept(make: Make, logs_args: Any) -> None:
    assert (log_id("demo"), log_name("lab", "demo")) == ("gangway-demo", LOG)
    made = make(NodeLogs, logs_args)
    bucket, sink = made.one("ProjectBucketConfig"), made.one("ProjectSink").inputs
    assert bucket.inputs == {
        "project": "lab",
        "location": "us-east5",
        "bucketId": "gangway-demo-1a2b3c4",
        "description": "demo: lines of the nodes",
        "retentionDays": 30,
        "cmekSettings": {"kmsKeyName": "key"},
    }
    # For a week after a destroy nothing else can have its name, so that of the next stack has to be another.
    again = make(NodeLogs, {**logs_args, "run_bucket_name": "demo-runs-5d6e7f8"})
    assert again.one("ProjectBucketConfig").inputs["bucketId"] == "gangway-demo-5d6e7f8"
    assert sink["filter"] == f'logName="{LOG}"'
    assert sink["destination"] == f"logging.googleapis.com/{bucket.id}"
    plain = make(NodeLogs, {**logs_args, "kms_key_name": None})
    assert "cmekSettings" not in plain.one("ProjectBucketConfig").inputs


def test_metrics_are_read_out_of_the_stacks_log(make: Make, logs_args: Any, api_mistakes: Mistakes) -> None:
    made = make(NodeLogs, logs_args)
    metrics = {metric.inputs["name"]: metric.inputs for metric in made.of("Metric")}
    assert set(metrics) == {f"gangway/demo/{plan.name}" for plan in METRICS}
    for inputs in metrics.values():
        assert inputs["filter"].startswith(f'logName="{LOG}" AND ')
        body = {key: value for key, value in inputs.items() if key != "project"}
        assert api_mistakes("logging.v2", "LogMetric", body) == []
    speed, steps = metrics["gangway/demo/ImagesPerSecond"], metrics["gangway/demo/Steps"]
    assert speed["valueExtractor"] == "EXTRACT(jsonPayload.printed.images_per_sec)"
    assert speed["metricDescriptor"]["valueType"] == "DISTRIBUTION"
    assert steps["metricDescriptor"] == {"metricKind": "DELTA", "valueType": "INT64", "unit": "1"}
    assert not {"valueExtractor", "bucketOptions"} & steps.keys()


def test_a_distributions_buckets_hold_shares_and_thousands_of_images(make: Make, logs_args: Any) -> None:
    (speed,) = [m for m in make(NodeLogs, logs_args).of("Metric") if "ImagesPerSecond" in m.name]
    buckets = speed.inputs["bucketOptions"]["exponentialBuckets"]
    bounds = [buckets["scale"] * buckets["growthFactor"] ** n for n in range(int(buckets["numFiniteBuckets"]) + 1)]
    assert bounds[0] <= 0.01
    assert bounds[-1] > 5000


@pytest.mark.parametrize(("days", "fix"), [(0, 1), (-3, 1), (3651, 3650)])
def test_days_that_are_not_kept(make: Make, logs_args: Any, days: int, fix: int) -> None:
    with pytest.raises(InputError, match="does not keep logs") as caught:
        make(NodeLogs, {**logs_args, "retention_days": days})
    assert caught.value.fix == f"set retention_days: {fix}"
    check_retention(fix, "gangway:observe.log_days")


def test_every_alarm_is_a_policy_of_the_api(
    make: Make, args: Any, labels: dict[str, str], api_mistakes: Mistakes
) -> None:
    made = make(Observability, args)
    policies = {p.name.removeprefix("demo-"): p.inputs for p in made.of("AlertPolicy")}
    planned = {plan.name: plan for plan in plan_alarms("demo", GROUPS, 4, 30, 3, expect_gpu=True)}
    assert policies.keys() == planned.keys()
    for name, policy in policies.items():
        (condition,) = policy["conditions"]
        query = condition["conditionPrometheusQueryLanguage"]
        assert query["query"] == planned[name].query
        assert query["disableMetricValidation"] is True, "a metric is there only once something has been measured"
        assert policy["documentation"]["content"] == planned[name].description
        assert policy["notificationChannels"] == [c.id for c in made.of("NotificationChannel")]
        assert policy["userLabels"] == labels
        body = {key: value for key, value in policy.items() if key != "project"}
        assert api_mistakes("monitoring.v3", "AlertPolicy", body) == []


def test_tpus_are_watched_without_groups(make: Make, args: Any) -> None:
    made = make(Observability, {**args, "group_names": [], "num_nodes": 0, "expect_gpu": False})
    names = [policy.name for policy in made.of("AlertPolicy")]
    assert names == [
        "demo-interruptions",
        "demo-job-failed",
        "demo-no-steps",
        "demo-node-given-up",
        "demo-record-at-risk",
        "demo-slices-given-up",
    ]


def test_addresses_are_channels(make: Make, args: Any, api_mistakes: Mistakes) -> None:
    channels = make(Observability, args).of("NotificationChannel")
    assert [c.inputs["labels"]["email_address"] for c in channels] == ["a@example.com", "b@example.com"]
    for channel in channels:
        body = {key: channel.inputs[key] for key in ("type", "displayName", "labels", "userLabels")}
        assert api_mistakes("monitoring.v3", "NotificationChannel", body) == []


def test_the_dashboard_is_one_of_the_api(declare: Make, args: Any, api_mistakes: Mistakes) -> None:
    seen: list[list[str]] = []
    made = declare(lambda: Observability("demo", args).alarm_names.apply(seen.append))
    body = json.loads(made.one("Dashboard").inputs["dashboardJson"])
    assert body == plan_dashboard("demo", "us-east5", LOG, GROUPS, seen[0])
    assert api_mistakes("monitoring.v1", "Dashboard", body) == []
    assert len(seen[0]) == 8
    titles = [widget.get("title") for widget in body["gridLayout"]["widgets"]]
    assert titles[1:] == [
        "Alarms",
        "Images per second",
        "GPU utilisation, share of time",
        "Interruptions, checkpoints, nodes given up",
        "Nodes, by rung",
        "Newest lines",
    ]


def test_a_dashboard_without_groups_shows_none(api_mistakes: Mistakes) -> None:
    body = plan_dashboard("demo", "us-east5", LOG, [], [])
    assert "Nodes, by rung" not in [widget.get("title") for widget in body["gridLayout"]["widgets"]]
    assert api_mistakes("monitoring.v1", "Dashboard", body) == []


def test_the_validator_finds_what_is_wrong(api_mistakes: Mistakes) -> None:
    body = {"gridLayout": {"columns": "two", "widgets": [{"graph": {}}]}, "name": 3}
    assert api_mistakes("monitoring.v1", "Dashboard", body) == [
        "Dashboard.gridLayout.columns: 'two' is no int64",
        "Dashboard.gridLayout.widgets[0].graph: unknown",
        "Dashboard.name: 3 is no string",
    ]
    assert api_mistakes("monitoring.v3", "AlertPolicy", {"combiner": "XOR", "enabled": "yes"})[1:] == [
        "AlertPolicy.enabled: 'yes' is no boolean"
    ]
