"""NodeLogs and Observability: log groups, metrics from log lines, alarms, dashboard and SNS topics."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

import pulumi
from pulumi_aws import cloudwatch, sns

from gangway.components.aws.alarms import (
    NAMESPACE,
    AlarmPlan,
    CompositePlan,
    check_groups,
    events_group,
    get_log_group,
    plan_alarms,
    plan_no_steps,
)
from gangway.components.aws.identity import get_account, get_partition
from gangway.components.core.findings import InputError
from gangway.components.core.outputs import register_outputs
from gangway.components.core.safe_text import alarm_rule_text, insights_text

COLUMNS = 24
PERIOD_SEC = 60
BUDGETS_PAGE = "https://console.aws.amazon.com/costmanagement/home#/budgets"
_COUNTED = ("Interruptions", "Checkpoints", "NodesGivenUp", "LaunchesHeld", "JobsEndedBadly", "RecordsAtRisk")
# Retention periods of CloudWatch Logs, up to two years.
RETENTION_DAYS = (1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731)
INTERRUPTIONS_PER_HOUR = 3


def topic_policy(topic_arn: str, service: str, source: str) -> dict[str, Any]:
    """Let only `service` publish for `source`, an ARN with the topic's own `{partition}` and `{account}`."""
    account = get_account(topic_arn)
    sender = source.format(partition=get_partition(topic_arn), account=account)
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "OneServiceMayPublish",
                "Effect": "Allow",
                "Principal": {"Service": service},
                "Action": "SNS:Publish",
                "Resource": topic_arn,
                "Condition": {
                    "StringEquals": {"aws:SourceAccount": account},
                    "ArnLike": {"aws:SourceArn": sender},
                },
            }
        ],
    }


def declare_topic(
    name: str,
    service: str,
    source: str,
    *,
    kms_key_arn: pulumi.Input[str] | None,
    tags: dict[str, str],
    opts: pulumi.ResourceOptions,
    emails: Sequence[str] = (),
) -> sns.Topic:
    """Declare the topic, its policy, and a subscription per address, whose owner must confirm it once."""
    topic = sns.Topic(name, kms_master_key_id=kms_key_arn, tags=tags, opts=opts)
    policy = topic.arn.apply(lambda arn: topic_policy(arn, service, source))
    sns.TopicPolicy(name, arn=topic.arn, policy=pulumi.Output.json_dumps(policy), opts=opts)
    for position, email in enumerate(emails):
        sns.TopicSubscription(f"{name}-{position}", topic=topic.arn, protocol="email", endpoint=email, opts=opts)
    return topic


Widget = dict[str, Any]
# Width, height and content of a widget before it has a position.
Sized = tuple[int, int, Widget]


def plan_dashboard(
    stack: str, region: str, log_group: str, groups: Sequence[str], alarm_arns: Sequence[str]
) -> dict[str, Any]:
    """The dashboard's body before JSON encoding. `region` is every widget's; `alarm_arns` are shown at the top."""
    trainer = f"{NAMESPACE}/{stack}"
    widgets = [
        _text(_heading(stack, region, log_group)),
        (12, 3, {"type": "alarm", "properties": {"title": "Alarms", "alarms": list(alarm_arns)}}),
        _graph("Images per second", region, [[trainer, "ImagesPerSecond"]]),
        _losses(region, log_group),
        _graph("GPU utilisation, share of time", region, [[trainer, "GpuUtilisation"]], top=1.0),
        _graph(
            "Interruptions, checkpoints, nodes given up",
            region,
            [[trainer, name] for name in _COUNTED],
            stat="Sum",
            period_sec=300,
        ),
        _graph("Nodes in service and desired, by rung", region, list(_nodes(groups))),
        _graph(
            "Network out without EFA, bytes by rung",
            region,
            [["AWS/EC2", "NetworkOut", "AutoScalingGroupName", group] for group in groups],
            stat="Sum",
            period_sec=300,
        ),
    ]
    return {"start": "-PT6H", "periodOverride": "inherit", "widgets": list(_layout(widgets))}


def _layout(widgets: Iterable[Sized]) -> Iterator[Widget]:
    x = y = tallest = 0
    for width, height, widget in widgets:
        if x + width > COLUMNS:
            x, y, tallest = 0, y + tallest, 0
        yield {"x": x, "y": y, "width": width, "height": height, **widget}
        x, tallest = x + width, max(tallest, height)


def _text(markdown: str) -> Sized:
    return 12, 3, {"type": "text", "properties": {"markdown": markdown}}


def _heading(stack: str, region: str, log_group: str) -> str:
    return (
        f"# {stack}\nGangway in {region}, log group `{log_group}`. [Budgets]({BUDGETS_PAGE}). EFA's traffic bypasses "
        "EC2's network metrics; the trainer's images per second show what the fabric is worth."
    )


def _graph(
    title: str,
    region: str,
    metrics: list[list[Any]],
    *,
    stat: str = "Average",
    period_sec: int = PERIOD_SEC,
    top: float | None = None,
) -> Sized:
    axis = {"min": 0} if top is None else {"min": 0, "max": top}
    properties = {
        "title": title,
        "region": region,
        "view": "timeSeries",
        "stacked": False,
        "stat": stat,
        "period": period_sec,
        "metrics": metrics,
        "yAxis": {"left": axis},
    }
    return 12, 6, {"type": "metric", "properties": properties}


def _nodes(groups: Sequence[str]) -> Iterator[list[Any]]:
    for group in groups:
        yield [
            "AWS/AutoScaling",
            "GroupInServiceInstances",
            "AutoScalingGroupName",
            group,
            {"label": f"{group}: in service"},
        ]
        yield ["AWS/AutoScaling", "GroupDesiredCapacity", "AutoScalingGroupName", group, {"label": f"{group}: desired"}]


def _losses(region: str, log_group: str) -> Sized:
    query = (
        f"SOURCE {insights_text(log_group)} | filter not ispresent(event) and ispresent(loss_g) "
        "| stats avg(loss_g) as generator, avg(loss_d) as discriminator by bin(5m)"
    )
    properties = {"title": "Losses", "region": region, "view": "timeSeries", "stacked": False, "query": query}
    return 12, 6, {"type": "log", "properties": properties}


class NodeLogsArgs(TypedDict):
    """Inputs of NodeLogs. `retention_days` is one of RETENTION_DAYS. Destroying the stack deletes the lines, unless
    `log_group_arn` names a group that exists already, together with one for events (`events_group`).
    """

    stack: str
    retention_days: int
    log_group_arn: NotRequired[str | None]
    kms_key_arn: NotRequired[pulumi.Input[str] | None]
    tags: dict[str, str]


class ObservabilityArgs(TypedDict):
    """Inputs of Observability. `log_group` is NodeLogs' default if omitted. `steps_alarm_minutes` must exceed both the
    time from a node's boot to the first statistics line (image pull, data preparation) and the time between two ticks;
    omit it for a job without steps. `expect_gpu`: alarm on idle GPUs. `emails` get every alarm, once each address is
    confirmed. `interruptions_per_hour` (3): alarm above it.
    """

    stack: str
    region: str
    group_names: pulumi.Input[list[str]]
    log_group: NotRequired[str]
    emails: list[str]
    kms_key_arn: NotRequired[pulumi.Input[str] | None]
    steps_alarm_minutes: NotRequired[int | None]
    expect_gpu: bool
    interruptions_per_hour: NotRequired[int]
    tags: dict[str, str]


@dataclass(frozen=True)
class FilterPlan:
    """One metric from log lines. `pattern`: its grammar has no EXISTS; a comparison with a number replaces it, and null
    is no number. `value`: a constant per line, or a field; `default_value`: for minutes without lines; None leaves
    gaps, which an average needs; `of_nodes`: from the nodes' own log group, not the trainer's.
    """

    metric: str
    pattern: str
    value: str
    unit: str
    default_value: str | None = None
    of_nodes: bool = False


def log_group_name(stack: str) -> str:
    """The log group of the nodes of `stack`, for Docker's awslogs driver.

    >>> log_group_name("demo")
    '/gangway/demo'
    """
    return f"/gangway/{stack}"


def plan_filters() -> list[FilterPlan]:
    """The metrics from the lines of the trainer and of the nodes' scripts."""

    def statistics(key: str) -> str:
        return f"{{ ($.event NOT EXISTS) && ($.{key} >= 0) }}"

    return [
        FilterPlan("ImagesPerSecond", statistics("images_per_sec"), "$.images_per_sec", "Count/Second"),
        FilterPlan("Steps", statistics("step"), "1", "Count", "0"),
        FilterPlan("GpuUtilisation", statistics("gpu_utilisation"), "$.gpu_utilisation", "None"),
        FilterPlan("Interruptions", '{ $.event = "interrupt" }', "1", "Count", "0"),
        FilterPlan("Checkpoints", '{ $.event = "checkpoint" }', "1", "Count", "0"),
        _count_event("NodesGivenUp", '{ $.event = "node-given-up" }'),
        _count_event("LaunchesHeld", '{ $.event = "launches-held" }'),
        _count_event(
            "RecordsAtRisk",
            '{ ($.event = "head-not-ready") || ($.event = "record-not-put") || ($.event = "end-not-told") }',
        ),
        _count_event("JobsEndedBadly", '{ ($.event = "job-ended") && ($.exit_status != 0) }'),
    ]


def _count_event(metric: str, pattern: str) -> FilterPlan:
    return FilterPlan(metric, pattern, "1", "Count", "0", of_nodes=True)


def check_retention(days: int, place: str = "retention_days") -> None:
    """Check the retention. InputError: not in RETENTION_DAYS; the fix names the next longer one."""
    if days not in RETENTION_DAYS:
        longer = next((offered for offered in RETENTION_DAYS if offered > days), RETENTION_DAYS[-1])
        raise InputError(
            place,
            "CloudWatch Logs does not keep logs for so many days",
            value=days,
            allowed=f"one of {', '.join(map(str, RETENTION_DAYS))}",
            fix=f"set {place.rpartition('.')[2]}: {longer}",
        )


class NodeLogs(pulumi.ComponentResource):
    """A stack's log groups, of the job's lines (the outputs) and of the nodes' events, and their metrics."""

    log_group_name: pulumi.Output[str]
    log_group_arn: pulumi.Output[str]

    def __init__(self, name: str, args: NodeLogsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:aws:NodeLogs", name, None, opts)
        check_retention(args["retention_days"])
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
        self.log_group_name, self.log_group_arn, events = self._groups()
        for plan in plan_filters():
            self._metric(plan, events if plan.of_nodes else self.log_group_name)
        register_outputs(self)

    def _groups(self) -> tuple[pulumi.Output[str], pulumi.Output[str], pulumi.Output[str]]:
        """Name and ARN of the lines' group, and the name of the events'."""
        given = self._args.get("log_group_arn")
        if given is not None:
            lines = get_log_group(given)
            known = (lines, given, events_group(lines))
            name, arn, events = (pulumi.Output.from_input(value) for value in known)
            return name, arn, events
        lines = log_group_name(self._args["stack"])
        group = self._group("nodes", lines)
        return group.name, group.arn, self._group("events", events_group(lines)).name

    def _group(self, what: str, group: str) -> cloudwatch.LogGroup:
        return cloudwatch.LogGroup(
            f"{self._name}-{what}",
            name=group,
            retention_in_days=self._args["retention_days"],
            kms_key_id=self._args.get("kms_key_arn"),
            tags=self._args["tags"],
            opts=self._child,
        )

    def _metric(self, plan: FilterPlan, group: pulumi.Output[str]) -> cloudwatch.LogMetricFilter:
        return cloudwatch.LogMetricFilter(
            f"{self._name}-{plan.metric}",
            log_group_name=group,
            pattern=plan.pattern,
            metric_transformation=cloudwatch.LogMetricFilterMetricTransformationArgs(
                name=plan.metric,
                namespace=f"{NAMESPACE}/{self._args['stack']}",
                value=plan.value,
                unit=plan.unit,
                default_value=plan.default_value,
            ),
            opts=self._child,
        )


class Observability(pulumi.ComponentResource):
    """Alarms and the dashboard of one stack."""

    alarm_arns: pulumi.Output[list[str]]
    topic_arn: pulumi.Output[str]
    dashboard_name: pulumi.Output[str]

    def __init__(self, name: str, args: ObservabilityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:aws:Observability", name, None, opts)
        self._log_group = log_group = args.get("log_group", log_group_name(args["stack"]))
        minutes = args.get("steps_alarm_minutes")
        plans = plan_alarms(
            log_group,
            minutes,
            args.get("interruptions_per_hour", INTERRUPTIONS_PER_HOUR),
            expect_gpu=args["expect_gpu"],
        )
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
        self._topic = declare_topic(
            f"{name}-alarms",
            "cloudwatch.amazonaws.com",
            "arn:{partition}:cloudwatch:*:{account}:alarm:*",
            kms_key_arn=args.get("kms_key_arn"),
            tags=args["tags"],
            opts=self._child,
            emails=args["emails"],
        )
        self._groups = pulumi.Output.from_input(args["group_names"]).apply(check_groups)
        alarms = {plan.name: self._alarm(plan) for plan in plans}
        no_steps = [] if minutes is None else [self._composite(plan_no_steps(log_group, minutes), alarms).arn]
        alarm_arns = [*no_steps, *(alarms[plan.name].arn for plan in plans if plan.tells)]
        self.alarm_arns = pulumi.Output.all(*alarm_arns).apply(list)
        self.dashboard_name = self._dashboard().dashboard_name
        self.topic_arn = self._topic.arn
        register_outputs(self)

    def _alarm(self, plan: AlarmPlan) -> cloudwatch.MetricAlarm:
        stack = self._args["stack"]
        return cloudwatch.MetricAlarm(
            f"{self._name}-{plan.name}",
            alarm_description=plan.description,
            comparison_operator=plan.comparison,
            threshold=plan.threshold,
            evaluation_periods=plan.periods,
            datapoints_to_alarm=plan.breaching,
            metric_queries=self._groups.apply(lambda groups: plan.queries(stack, groups)),
            treat_missing_data=plan.missing,
            alarm_actions=[self._topic.arn] if plan.tells else None,
            tags=self._args["tags"],
            opts=self._child,
        )

    def _composite(
        self, plan: CompositePlan, alarms: Mapping[str, cloudwatch.MetricAlarm]
    ) -> cloudwatch.CompositeAlarm:
        parts = pulumi.Output.all(*[alarms[name].arn for name in plan.parts])
        return cloudwatch.CompositeAlarm(
            f"{self._name}-{plan.name}",
            # Pulumi generates no name for this type.
            alarm_name=f"gangway-{self._args['stack']}-{plan.name}",
            alarm_description=plan.description,
            alarm_rule=parts.apply(lambda arns: " AND ".join(f"ALARM({alarm_rule_text(arn)})" for arn in arns)),
            alarm_actions=[self._topic.arn],
            tags=self._args["tags"],
            opts=self._child,
        )

    def _dashboard(self) -> cloudwatch.Dashboard:
        stack, region = self._args["stack"], self._args["region"]
        body = pulumi.Output.all(self._groups, self.alarm_arns).apply(
            lambda known: plan_dashboard(stack, region, self._log_group, known[0], known[1])
        )
        return cloudwatch.Dashboard(
            self._name,
            dashboard_name=f"gangway-{stack}",
            dashboard_body=pulumi.Output.json_dumps(body),
            opts=self._child,
        )
