"""NodeLogs and Observability: the nodes' log, metrics, alarms, a dashboard and notification channels."""

from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict

import pulumi
from pulumi_gcp import logging, monitoring

from gangway.components.core.dependencies import after
from gangway.components.core.findings import InputError
from gangway.components.core.limits import check_within
from gangway.components.core.outputs import register_outputs
from gangway.components.core.query_text import google_filter_text
from gangway.components.gcp.alarms import METRICS, MONITORED_RESOURCE, AlarmPlan, MetricPlan, metric_name, plan_alarms

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
    stack. `kms_key_name` encrypts the bucket; a key can never be removed.
    """

    project: pulumi.Input[str]
    region: str
    stack: str
    run_bucket_name: pulumi.Input[str]
    retention_days: int
    kms_key_name: NotRequired[pulumi.Input[str] | None]


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
        bucket = self._bucket()
        logging.ProjectSink(
            f"{name}-nodes",
            project=args["project"],
            destination=pulumi.Output.concat("logging.googleapis.com/", bucket.id),
            filter=pulumi.Output.concat("logName=", full_name.apply(google_filter_text)),
            unique_writer_identity=True,
            opts=self._child,
        )
        metrics = [self._metric(plan, full_name) for plan in METRICS]
        self.log_id = pulumi.Output.from_input(log_id(args["stack"]))
        self.log_name = after(full_name, *metrics)
        self.bucket_name = bucket.id
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
