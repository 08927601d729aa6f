"""The nodes' log, its metrics, the alarms and the dashboard, against the APIs' own documents."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.findings import InputError
from gangway.components.core.limits import STEPS_ALARM_MINUTES
from gangway.components.gcp.monitoring import (
    METRICS,
    AlarmPlan,
    NodeLogs,
    Observability,
    check_retention,
    log_id,
    log_name,
    metric_name,
    plan_alarms,
    plan_dashboard,
)
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


ALARM_GROUPS = ["demo-0-spot-1a2b3c4", "demo-1-flex-1a2b3c4"]
RESOURCE = '{monitored_resource="gce_instance"}'
SIZES = (
    'compute_googleapis_com:instance_group_size{monitored_resource="instance_group",'
    f'instance_group_name=~"{ALARM_GROUPS[0]}|{ALARM_GROUPS[1]}"}}'
)


def plans(
    groups: list[str] | None = None, minutes: int = 30, *, stack: str = "demo", expect_gpu: bool = True
) -> dict[str, AlarmPlan]:
    made = plan_alarms(stack, ALARM_GROUPS if groups is None else groups, 4, minutes, 3, expect_gpu=expect_gpu)
    return {plan.name: plan for plan in made}


def test_which_alarms_there_are() -> None:
    rest = ["interruptions", "nodes-missing", "node-given-up", "launches-held", "job-failed", "record-at-risk"]
    assert list(plans()) == ["no-steps", "gpu-idle", *rest]
    assert "gpu-idle" not in plans(expect_gpu=False)
    assert not {"nodes-missing", "launches-held"} & plans([]).keys(), "nobody launches hosts of a slice"


def test_no_steps_rings_while_there_are_nodes_and_no_line() -> None:
    assert plans()["no-steps"].query == (
        f"(sum(min_over_time({SIZES}[34m]) and (count_over_time({SIZES}[34m]) >= 30)) > 0) unless "
        f"(sum(increase(logging_googleapis_com:user_gangway_demo_Steps{RESOURCE}[34m])) > 0)"
    )


@pytest.mark.parametrize("minutes", [10, 30, 1000, 1436, 1437, 1440])
def test_nodes_that_have_just_come_do_not_ring_and_others_can(minutes: int) -> None:
    """A point a minute, four minutes late at most: the number asked for is reached, and not before its time."""
    query = plans(minutes=minutes)["no-steps"].query
    (window,) = set(map(int, re.findall(r"\[(\d+)m\]", query)))
    (least,) = map(int, re.findall(r"count_over_time\(.*?\) >= (\d+)", query))
    assert window <= 1440, "the most that a query of Cloud Monitoring looks back"
    assert least <= window - 4, "it rings although the newest points cannot be seen yet"
    assert least >= min(minutes, 1436), "two minutes of nodes are no window of nodes"


def test_tpus_are_watched_by_their_lines_alone() -> None:
    query = plans([], 45)["no-steps"].query
    lines = f"sum(increase(logging_googleapis_com:user_gangway_demo_Steps{RESOURCE}"
    assert query == f"({lines}[1d])) > 0) unless ({lines}[45m])) > 0)"


def test_the_figures_of_the_others() -> None:
    made = plans()
    idle = "sum(increase(logging_googleapis_com:user_gangway_demo_GpuUtilisation"
    assert made["gpu-idle"].query == f"({idle}_sum{RESOURCE}[15m])) / {idle}_count{RESOURCE}[15m]))) < 0.1"
    assert made["interruptions"].query.endswith("Interruptions" + RESOURCE + "[1h])) > 3")
    assert made["node-given-up"].query.endswith("NodesGivenUp" + RESOURCE + "[10m])) > 0")
    assert made["job-failed"].query.endswith("JobsEndedBadly" + RESOURCE + "[10m])) > 0")
    at_risk, ladder = made["record-at-risk"].query.split(" or ")
    assert at_risk.endswith("RecordsAtRisk" + RESOURCE + "[15m])) > 0)")
    assert ladder.endswith("LaddersNotKept" + RESOURCE + "[15m])) >= 5)"), "one look that fails is no alarm"
    assert made["record-at-risk"].severity == "CRITICAL"


def test_missing_nodes_are_those_that_were_there_and_whose_job_goes_on() -> None:
    missing, rest = plans()["nodes-missing"].query.split(" and ")
    assert missing == f"((avg_over_time(((sum({SIZES}) or vector(0)) < bool 4)[90m:5m]) >= 0.333)"
    had_nodes, ended, steps_again = rest.split(" unless ")
    # A first start: in its first 90 minutes this is of the time before it, in which there were none.
    assert had_nodes == f"(sum(max_over_time({SIZES}[22h] offset 90m)) > 0))"
    # A good end: told for longer (24 h) than its nodes are remembered (22 h, from 1.5 h ago).
    assert ended == f"((sum(increase(logging_googleapis_com:user_gangway_demo_JobsEndedWell{RESOURCE}[1d])) > 0)"
    # The next job of the same stack: from its first step on a missing node is one again.
    assert steps_again == f"(sum(increase(logging_googleapis_com:user_gangway_demo_Steps{RESOURCE}[15m])) > 0))"


@given(st.from_regex(r"\A[a-z]([a-z0-9-]{0,38}[a-z0-9])?\Z"), st.booleans())
def test_every_query_names_metrics_that_exist(stack: str, tpus: bool) -> None:
    declared = {re.sub(r"[^a-zA-Z0-9]", "_", metric_name(stack, metric.name)) for metric in METRICS}
    for plan in plans([] if tpus else None, stack=stack).values():
        named = re.findall(r"logging_googleapis_com:user_(\w+?)(?:_sum|_count)?\{", plan.query)
        assert set(named) <= declared
        assert named or "instance_group_size" in plan.query
        for pair in ("()", "[]", "{}"):
            assert plan.query.count(pair[0]) == plan.query.count(pair[1])
        assert plan.query.count('"') % 2 == 0


def test_every_alarm_says_what_to_do() -> None:
    made = plans()
    assert made
    assert all(len(plan.description) > 100 for plan in made.values())


@pytest.mark.parametrize("minutes", [0, 9, 1441])
def test_a_window_that_tells_nothing(minutes: int) -> None:
    with pytest.raises(InputError, match="not a window") as caught:
        plans(minutes=minutes)
    fixed = int(caught.value.fix.rpartition(" ")[2])
    assert fixed in STEPS_ALARM_MINUTES
    assert plans(minutes=fixed)


def test_a_line_is_a_statistic_or_an_event() -> None:
    """The filters are those of the lines the trainer writes: statistics have no event."""
    by_name = {metric.name: metric for metric in METRICS}
    assert by_name["Steps"].filter == "NOT jsonPayload.printed.event:* AND jsonPayload.printed.step>=0"
    assert by_name["GpuUtilisation"].field == "jsonPayload.printed.gpu_utilisation"
    assert by_name["Interruptions"].filter == 'jsonPayload.printed.event="interrupt"', "what the job itself knows"
    assert by_name["NodesGivenUp"].filter == 'jsonPayload.event="node-given-up"'
    at_risk = (
        '(jsonPayload.event="head-not-ready" OR jsonPayload.event="record-not-put" OR jsonPayload.event="end-not-told")'
    )
    assert by_name["RecordsAtRisk"].filter == at_risk, "in brackets: it stands behind an AND"
    assert by_name["LaddersNotKept"].filter == 'jsonPayload.event="ladder-not-kept"'
    assert by_name["JobsEndedWell"].filter == 'jsonPayload.event="job-ended" AND jsonPayload.exit_status=0'
    assert by_name["JobsEndedBadly"].filter == 'jsonPayload.event="job-ended" AND jsonPayload.exit_status!=0'
