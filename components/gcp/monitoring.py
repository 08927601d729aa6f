"""NodeLogs and Observability: the nodes' log, metrics, alarms, a dashboard and notification channels."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

import pulumi
from pulumi_gcp import logging, monitoring

from gangway.components.core.findings import InputError
from gangway.components.core.limits import STEPS_ALARM_MINUTES, check_steps_alarm, check_within
from gangway.components.core.outputs import after, register_outputs
from gangway.components.core.safe_text import google_filter_text, promql_any, promql_text

# Alarms as PromQL over Cloud Monitoring, whose older conditions cannot see a metric without any point.

GPU_IDLE_BELOW = 0.10
# A group's size is a point a minute, visible some minutes later.
DELAY_MINUTES = 4
# The head checks the ladder each minute: one failure is transient, a third of a quarter of an hour is not.
LOOKS_FAILED = 5
# The resource of the log agent's entries; a query must name it if several are possible.
MONITORED_RESOURCE = "gce_instance"
PRINTED = "jsonPayload.printed"  # apart from the node's own fields such as `event`, so that a job cannot forge them


@dataclass(frozen=True)
class MetricPlan:
    """One metric from log lines. `field`: collected as a distribution; None counts lines; `unit`: in UCUM."""

    name: str
    filter: str
    field: str | None = None
    unit: str = "1"


@dataclass(frozen=True)
class AlarmPlan:
    """One alarm. Any result of `query` (PromQL) rings; `severity`: CRITICAL, ERROR or WARNING."""

    name: str
    description: str
    query: str
    severity: str


def _statistics(key: str) -> str:
    """Statistics lines have no event; a comparison with a number means present and not null."""
    return f"NOT {PRINTED}.event:* AND {PRINTED}.{key}>=0"


METRICS = (
    MetricPlan("ImagesPerSecond", _statistics("images_per_sec"), f"{PRINTED}.images_per_sec", "1/s"),
    MetricPlan("Steps", _statistics("step")),
    MetricPlan("GpuUtilisation", _statistics("gpu_utilisation"), f"{PRINTED}.gpu_utilisation"),
    MetricPlan("Interruptions", f'{PRINTED}.event="interrupt"'),
    MetricPlan("Checkpoints", f'{PRINTED}.event="checkpoint"'),
    MetricPlan("NodesGivenUp", 'jsonPayload.event="node-given-up"'),
    MetricPlan("LaunchesHeld", 'jsonPayload.event="launches-held"'),
    MetricPlan("SlicesGivenUp", 'jsonPayload.event="slices-given-up"'),
    MetricPlan("LaddersNotKept", 'jsonPayload.event="ladder-not-kept"'),
    MetricPlan(
        "RecordsAtRisk",
        '(jsonPayload.event="head-not-ready" OR jsonPayload.event="record-not-put"'
        ' OR jsonPayload.event="end-not-told")',
    ),
    MetricPlan("JobsEndedBadly", 'jsonPayload.event="job-ended" AND jsonPayload.exit_status!=0'),
    MetricPlan("JobsEndedWell", 'jsonPayload.event="job-ended" AND jsonPayload.exit_status=0'),
)  # the metrics from the lines of the trainer and of the nodes' scripts


def metric_name(stack: str, metric: str) -> str:
    """A log-based metric's name, which includes the stack's, so that lines need no label.

    >>> metric_name("demo", "Steps")
    'gangway/demo/Steps'
    """
    return f"gangway/{stack}/{metric}"


def plan_alarms(
    stack: str,
    groups: Sequence[str],
    num_nodes: int,
    steps_alarm_minutes: int | None,
    interruptions_per_hour: int,
    *,
    expect_gpu: bool,
) -> list[AlarmPlan]:
    """Every alarm; `groups` empty for TPUs, minutes None for a job without steps. InputError: `check_steps_alarm`."""
    of_steps = []
    if steps_alarm_minutes is not None:
        check_steps_alarm(steps_alarm_minutes)
        of_steps = [_no_steps(stack, groups, steps_alarm_minutes)]
    return [
        *of_steps,
        *([_gpu_idle(stack)] if expect_gpu else []),
        _interruptions(stack, interruptions_per_hour),
        _nodes_missing(stack, groups, num_nodes) if groups else _of_event(stack, "slices-given-up"),
        _of_event(stack, "node-given-up"),
        *([_of_event(stack, "launches-held")] if groups else []),
        _of_event(stack, "job-failed"),
        _record_at_risk(stack),
    ]


def _series(stack: str, metric: str, suffix: str = "") -> str:
    """In PromQL's form (https://docs.cloud.google.com/monitoring/promql/promql-mapping)."""
    spelled = re.sub(r"[^a-zA-Z0-9]", "_", f"user/{metric_name(stack, metric)}")
    return f"logging_googleapis_com:{spelled}{suffix}{{monitored_resource={promql_text(MONITORED_RESOURCE)}}}"


def _lines(stack: str, metric: str, window: str) -> str:
    return f"sum(increase({_series(stack, metric)}[{window}]))"


def _alarm_sizes(groups: Sequence[str]) -> str:
    named = f"instance_group_name=~{promql_any(groups)}"
    return f'compute_googleapis_com:instance_group_size{{monitored_resource="instance_group",{named}}}'


def _no_steps(stack: str, groups: Sequence[str], minutes: int) -> AlarmPlan:
    """Rings if there were nodes for the whole window and no statistics line. A minimum ignores missing points, so the
    window must be full. TPUs, without groups: lines within the day and none in the window.
    """
    longer = min(minutes + DELAY_MINUTES, STEPS_ALARM_MINUTES.stop - 1)
    window = f"{longer if groups else minutes}m"
    steps = f"({_lines(stack, 'Steps', window)} > 0)"
    size = f"{_alarm_sizes(groups)}[{window}]"
    there = f"min_over_time({size}) and (count_over_time({size}) >= {longer - DELAY_MINUTES})"
    running = f"(sum({there}) > 0)" if groups else f"({_lines(stack, 'Steps', '1d')} > 0)"
    return AlarmPlan(
        "no-steps",
        f"No training step for {minutes} minutes, though there are nodes. Read the stack's log from its end: nodes "
        "that are still preparing, a job that waits for others (the head's rendezvous), or a trainer that hangs. A job "
        "that is done and whose nodes stay looks the same: destroy the stack, or set job.terminate_when_done.",
        f"{running} unless {steps}",
        "CRITICAL",
    )


def _gpu_idle(stack: str) -> AlarmPlan:
    total, number = (f"sum(increase({_series(stack, 'GpuUtilisation', end)}[15m]))" for end in ("_sum", "_count"))
    return AlarmPlan(
        "gpu-idle",
        f"Steps are made, but the GPUs were busy for less than {GPU_IDLE_BELOW:.0%} of 15 minutes. Look at images per "
        "second on the dashboard: a data loader or a file system that cannot keep up is the usual cause, then a batch "
        "that is too small for the machine type.",
        f"({total} / {number}) < {GPU_IDLE_BELOW}",
        "WARNING",
    )


def _interruptions(stack: str, per_hour: int) -> AlarmPlan:
    return AlarmPlan(
        "interruptions",
        f"For information: training was interrupted more than {per_hour} times in an hour. Nothing is lost but the "
        "work since each checkpoint. If it goes on, choose another zone or machine type, or put a rung of reserved or "
        "on-demand capacity above the spot rung.",
        f"{_lines(stack, 'Interruptions', '1h')} > {per_hour}",
        "WARNING",
    )


def _nodes_missing(stack: str, groups: Sequence[str], num_nodes: int) -> AlarmPlan:
    """Fewer nodes than wanted in a third of the last 90 minutes, since a node that is replaced repeatedly is up most of
    the time. Silent in the first 90 minutes, for a day after a successful job, and if no node ever came.
    """
    sizes = _alarm_sizes(groups)
    # Empty groups may have no point.
    missing = f"((sum({sizes}) or vector(0)) < bool {num_nodes})"
    # Ends before the day of `ended` does, so that nodes which have left are forgotten first.
    had_nodes = f"(sum(max_over_time({sizes}[22h] offset 90m)) > 0)"
    ended = f"(({_lines(stack, 'JobsEndedWell', '1d')} > 0) unless ({_lines(stack, 'Steps', '15m')} > 0))"
    return AlarmPlan(
        "nodes-missing",
        "In 30 of the last 90 minutes there were fewer nodes than wanted, over all rungs. Training goes on with those "
        "that are there, if they are the job's minimum. The groups' errors (Compute Engine, instance groups) say why: "
        "no capacity, a quota, or nodes that give themselves up as unhealthy.",
        f"((avg_over_time({missing}[90m:5m]) >= 0.333) and {had_nodes}) unless {ended}",
        "ERROR",
    )


# By name: the metric of a node's or the head's event, severity, description.
_EVENT_ALARMS: Mapping[str, tuple[str, str, str]] = {
    "slices-given-up": (
        "SlicesGivenUp",
        "CRITICAL",
        "The slices were lost again and again within hours of being asked for anew, and are not asked for any "
        "more. In the stack's log the field `reason` of slices-given-up says how often, the lines before it why: "
        "capacity that is taken back at once, or a quota. `pulumi up --refresh` asks once more, and counts from "
        "the beginning.",
    ),
    "node-given-up": (
        "NodesGivenUp",
        "ERROR",
        "A node found itself unfit (GPU, fabric, file system, image) and gave itself up. Its group makes another. "
        "If it goes on, read the lines before `node-given-up` in the stack's log: they say what was found.",
    ),
    "launches-held": (
        "LaunchesHeld",
        "CRITICAL",
        "So many nodes gave themselves up that nothing of this stack is launched any more: the head fills no "
        "group, and who gives up leaves its group, which becomes smaller. The field `reason` of launches-held in "
        "the stack's log says why the last one gave up, breaker/held.json beside the run's record the same. Mend "
        "what it names, run `gangway breaker reset STACK`, and then `pulumi up --refresh`, which gives the first "
        "group its size back.",
    ),
    "job-failed": (
        "JobsEndedBadly",
        "CRITICAL",
        "The job ended with an exit status other than 0, and is not started again by itself. Read the end of the "
        "stack's log: status 2 is bad input, 3 a fabric too slow.",
    ),
}


def _of_event(stack: str, name: str) -> AlarmPlan:
    metric, severity, description = _EVENT_ALARMS[name]
    return AlarmPlan(name, description, f"{_lines(stack, metric, '10m')} > 0", severity)


def _record_at_risk(stack: str) -> AlarmPlan:
    """The head retries by itself while the workers wait, so nothing else would report it."""
    at_risk = f"({_lines(stack, 'RecordsAtRisk', '15m')} > 0)"
    ladder = f"({_lines(stack, 'LaddersNotKept', '15m')} >= {LOOKS_FAILED})"
    return AlarmPlan(
        "record-at-risk",
        "The head node is not ready (file system, image, the import of the data), it cannot look after the groups of "
        "the ladder, the run record could not be put where it outlives the nodes, or nobody could be told that the job "
        "has ended, so that nodes may still come for it. All but the last is tried again, and the workers may be "
        "waiting, and cost, meanwhile. In the stack's log the field `reason` of head-not-ready, ladder-not-kept, "
        "record-not-put or end-not-told says why: mend that, and before a destroy see that the record is in the run "
        "bucket.",
        f"{at_risk} or {ladder}",
        "CRITICAL",
    )


MAX_BUDGET_CHANNELS = 5
PERIOD = "60s"
RETENTION_DAYS = range(1, 3651)
INTERRUPTIONS_PER_HOUR = 3
AUTO_CLOSE_SEC = 24 * 3600
EVALUATION_SEC = 60
# A distribution's buckets: 60 from 0.01, each a quarter wider, reach 6500, for shares of time and images per second.
BUCKETS = logging.MetricBucketOptionsExponentialBucketsArgs(num_finite_buckets=60, growth_factor=1.25, scale=0.01)


def check_budget_emails(emails: Sequence[str], place: str = "gangway:budget.emails") -> None:
    """Check the addresses. InputError: more than MAX_BUDGET_CHANNELS."""
    if len(emails) > MAX_BUDGET_CHANNELS:
        raise InputError(
            place,
            "more addresses than a budget of Google Cloud writes to",
            value=len(emails),
            allowed=f"at most {MAX_BUDGET_CHANNELS}",
            fix=f"remove {len(emails) - MAX_BUDGET_CHANNELS}, or write to a group's address",
        )


def declare_channels(
    name: str,
    emails: Sequence[str],
    project: pulumi.Input[str],
    tags: dict[str, str],
    opts: pulumi.ResourceOptions,
) -> list[monitoring.NotificationChannel]:
    """Declare a channel per address."""
    return [
        monitoring.NotificationChannel(
            f"{name}-{position}",
            project=project,
            display_name=email,
            type="email",
            labels={"email_address": email},
            user_labels=tags,
            opts=opts,
        )
        for position, email in enumerate(emails)
    ]


Widget = dict[str, Any]


def plan_dashboard(
    stack: str, region: str, log_name: str, groups: Sequence[str], alarms: Sequence[str]
) -> dict[str, Any]:
    """The dashboard's body before JSON encoding. `log_name` and `alarms` (at the top) are full names."""
    counted = ("Interruptions", "Checkpoints", "NodesGivenUp", "JobsEndedBadly")
    widgets = [
        _text(stack, region, log_name),
        *(
            {"title": "Alarms", "incidentList": {"policyNames": list(alarms)}},
            _chart("Images per second", [_logged(stack, "ImagesPerSecond", "ALIGN_DELTA", "REDUCE_MEAN")]),
            _chart("GPU utilisation, share of time", [_logged(stack, "GpuUtilisation", "ALIGN_DELTA", "REDUCE_MEAN")]),
            _chart(
                "Interruptions, checkpoints, nodes given up",
                [_logged(stack, name, "ALIGN_DELTA", "REDUCE_SUM") | {"legendTemplate": name} for name in counted],
            ),
        ),
        *([_chart("Nodes, by rung", [_sizes(groups)])] if groups else []),
        {"title": "Newest lines", "logsPanel": {"filter": f"logName={google_filter_text(log_name)}"}},
    ]
    return {"displayName": f"gangway-{stack}", "gridLayout": {"columns": "2", "widgets": widgets}}


def _text(stack: str, region: str, log_name: str) -> Widget:
    content = (
        f"# {stack}\nGangway in {region}, log `{log_name}`. Traffic of the GPUs' own network bypasses the metrics of "
        "Compute Engine; the trainer's images per second show what the fabric is worth."
    )
    return {"text": {"content": content, "format": "MARKDOWN"}}


def _chart(title: str, data_sets: list[dict[str, Any]]) -> Widget:
    return {"title": title, "xyChart": {"dataSets": data_sets, "yAxis": {"scale": "LINEAR"}}}


def _line(metric_filter: str, aggregation: dict[str, Any]) -> dict[str, Any]:
    query = {"timeSeriesFilter": {"filter": metric_filter, "aggregation": {"alignmentPeriod": PERIOD, **aggregation}}}
    return {"timeSeriesQuery": query, "plotType": "LINE"}


def _logged(stack: str, metric: str, aligner: str, reducer: str) -> dict[str, Any]:
    metric_type = f"logging.googleapis.com/user/{metric_name(stack, metric)}"
    metric_filter = f'metric.type={google_filter_text(metric_type)} resource.type="{MONITORED_RESOURCE}"'
    return _line(metric_filter, {"perSeriesAligner": aligner, "crossSeriesReducer": reducer})


def _sizes(groups: Sequence[str]) -> dict[str, Any]:
    named = ", ".join(map(google_filter_text, groups))
    metric_filter = (
        'metric.type="compute.googleapis.com/instance_group/size" resource.type="instance_group" '
        f"resource.label.instance_group_name=one_of({named})"
    )
    aggregation = {
        "perSeriesAligner": "ALIGN_MEAN",
        "crossSeriesReducer": "REDUCE_SUM",
        "groupByFields": ["resource.label.instance_group_name"],
    }
    return _line(metric_filter, aggregation)


class NodeLogsArgs(TypedDict):
    """Inputs of NodeLogs. `retention_days` is 1 to 3650. Destroying the stack deletes the lines a week later. The
    bucket's name stays reserved for that week, so it ends like `run_bucket_name`, whose random suffix differs per
    stack. `kms_key_name` encrypts the bucket; a key can never be removed. `bucket_id`, the full name of an existing
    bucket in the project, replaces it.
    """

    project: pulumi.Input[str]
    region: str
    stack: str
    run_bucket_name: pulumi.Input[str]
    retention_days: int
    kms_key_name: NotRequired[pulumi.Input[str] | None]
    bucket_id: NotRequired[str | None]


class ObservabilityArgs(TypedDict):
    """Inputs of Observability. `log_name` is NodeLogs', whose metrics must exist before alarms refer to them.
    `group_names` are the managed instance groups with `num_nodes` in total; none and 0 for TPUs. `steps_alarm_minutes`
    must exceed a node's time from boot to the first statistics line; None for a job without steps. `expect_gpu`: alarm
    on idle GPUs. `emails` get every alarm. `interruptions_per_hour` (3): alarm above it.
    """

    project: pulumi.Input[str]
    region: str
    stack: str
    log_name: pulumi.Input[str]
    group_names: pulumi.Input[list[str]]
    num_nodes: int
    emails: list[str]
    steps_alarm_minutes: int | None
    expect_gpu: bool
    interruptions_per_hour: NotRequired[int]
    tags: dict[str, str]


def log_id(stack: str) -> str:
    """The log of the nodes of `stack`, for the log agent.

    >>> log_id("demo")
    'gangway-demo'
    """
    return f"gangway-{stack}"


def log_name(project: str, stack: str) -> str:
    """The full name of that log."""
    return f"projects/{project}/logs/{log_id(stack)}"


def check_retention(days: int, place: str = "retention_days") -> None:
    """Check the retention. InputError: outside RETENTION_DAYS."""
    check_within(days, RETENTION_DAYS, place, "Cloud Logging does not keep logs for so many days")


class NodeLogs(pulumi.ComponentResource):
    """The log of a stack's nodes, its bucket and metrics. `log_id`: short name; `log_name` waits for the metrics."""

    log_id: pulumi.Output[str]
    log_name: pulumi.Output[str]
    bucket_name: pulumi.Output[str]

    def __init__(self, name: str, args: NodeLogsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:NodeLogs", name, None, opts)
        check_retention(args["retention_days"])
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
        full_name = pulumi.Output.from_input(args["project"]).apply(lambda project: log_name(project, args["stack"]))
        existing = args.get("bucket_id")
        bucket_id = self._bucket().id if existing is None else pulumi.Output.from_input(existing)
        logging.ProjectSink(
            f"{name}-nodes",
            project=args["project"],
            destination=pulumi.Output.concat("logging.googleapis.com/", bucket_id),
            filter=pulumi.Output.concat("logName=", full_name.apply(google_filter_text)),
            unique_writer_identity=True,
            opts=self._child,
        )
        metrics = [self._metric(plan, full_name) for plan in METRICS]
        self.log_id = pulumi.Output.from_input(log_id(args["stack"]))
        self.log_name = after(full_name, *metrics)
        self.bucket_name = bucket_id
        register_outputs(self)

    def _bucket(self) -> logging.ProjectBucketConfig:
        args = self._args
        key = args.get("kms_key_name")
        settings = logging.ProjectBucketConfigCmekSettingsArgs(kms_key_name=key) if key is not None else None
        return logging.ProjectBucketConfig(
            f"{self._name}-nodes",
            project=args["project"],
            location=args["region"],
            bucket_id=pulumi.Output.from_input(args["run_bucket_name"]).apply(
                lambda name: f"{log_id(args['stack'])}-{name.rpartition('-')[2]}"
            ),
            description=f"{args['stack']}: lines of the nodes",
            retention_days=args["retention_days"],
            cmek_settings=settings,
            opts=self._child,
        )

    def _metric(self, plan: MetricPlan, full_name: pulumi.Output[str]) -> logging.Metric:
        collects = plan.field is not None
        return logging.Metric(
            f"{self._name}-{plan.name}",
            project=self._args["project"],
            name=metric_name(self._args["stack"], plan.name),
            filter=pulumi.Output.concat("logName=", full_name.apply(google_filter_text), " AND ", plan.filter),
            metric_descriptor=logging.MetricMetricDescriptorArgs(
                metric_kind="DELTA", value_type="DISTRIBUTION" if collects else "INT64", unit=plan.unit
            ),
            value_extractor=f"EXTRACT({plan.field})" if collects else None,
            bucket_options=logging.MetricBucketOptionsArgs(exponential_buckets=BUCKETS) if collects else None,
            opts=self._child,
        )


class Observability(pulumi.ComponentResource):
    """Alarms and the dashboard of one stack."""

    alarm_names: pulumi.Output[list[str]]
    channel_names: pulumi.Output[list[str]]
    dashboard_id: pulumi.Output[str]

    def __init__(self, name: str, args: ObservabilityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:gcp:Observability", name, None, opts)
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
        channels = declare_channels(f"{name}-alarms", args["emails"], args["project"], args["tags"], self._child)
        self.channel_names = pulumi.Output.all(*[channel.id for channel in channels]).apply(list)
        self._groups = pulumi.Output.from_input(args["group_names"])
        # The set of alarms does not depend on group names, which a plan does not know.
        plans = self._plans(["unknown"] if args["num_nodes"] else [])
        self.alarm_names = pulumi.Output.all(*[self._alarm(plan.name).name for plan in plans]).apply(list)
        self.dashboard_id = self._dashboard().id
        register_outputs(self)

    def _plans(self, groups: list[str]) -> list[AlarmPlan]:
        args = self._args
        return plan_alarms(
            args["stack"],
            groups,
            args["num_nodes"],
            args["steps_alarm_minutes"],
            args.get("interruptions_per_hour", INTERRUPTIONS_PER_HOUR),
            expect_gpu=args["expect_gpu"],
        )

    def _alarm(self, alarm: str) -> monitoring.AlertPolicy:
        # The log's name waits for the metrics of the query.
        known = pulumi.Output.all(self._groups, self._args["log_name"])
        plan = known.apply(lambda all_known: next(p for p in self._plans(all_known[0]) if p.name == alarm))
        condition = monitoring.AlertPolicyConditionConditionPrometheusQueryLanguageArgs(
            query=plan.apply(lambda it: it.query),
            duration="0s",
            evaluation_interval=f"{EVALUATION_SEC}s",
            # Metrics exist only after their first point.
            disable_metric_validation=True,
        )
        return monitoring.AlertPolicy(
            f"{self._name}-{alarm}",
            project=self._args["project"],
            display_name=f"{self._args['stack']}: {alarm}",
            combiner="OR",
            conditions=[
                monitoring.AlertPolicyConditionArgs(display_name=alarm, condition_prometheus_query_language=condition)
            ],
            severity=plan.apply(lambda it: it.severity),
            documentation=monitoring.AlertPolicyDocumentationArgs(
                content=plan.apply(lambda it: it.description), mime_type="text/markdown"
            ),
            alert_strategy=monitoring.AlertPolicyAlertStrategyArgs(auto_close=f"{AUTO_CLOSE_SEC}s"),
            notification_channels=self.channel_names,
            user_labels=self._args["tags"],
            opts=self._child,
        )

    def _dashboard(self) -> monitoring.Dashboard:
        args = self._args
        body = pulumi.Output.all(self._groups, args["log_name"], self.alarm_names).apply(
            lambda known: plan_dashboard(args["stack"], args["region"], known[1], known[0], known[2])
        )
        return monitoring.Dashboard(
            self._name, project=args["project"], dashboard_json=pulumi.Output.json_dumps(body), opts=self._child
        )
