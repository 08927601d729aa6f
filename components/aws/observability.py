"""NodeLogs and Observability: the nodes' log group, metrics out of the trainer's lines; alarms and a dashboard on them.

Two components, because the nodes' role has to name the log group and the alarms have to name the groups of nodes.
Rank 0 prints one JSON line for each statistics tick and each event; the nodes' scripts send one when a node gives up
and when the job has ended. Metric filters turn them into metrics, so no agent runs on a node and no code of ours in the
account. A filter takes a dimension's value only from the line itself, and a metric with dimensions can have no default
value, so the stack's name is part of the namespace: `Gangway/<stack>`. Not the place of the record: log lines expire,
run.json does not.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NotRequired, TypedDict

import pulumi
from pulumi_aws import cloudwatch

from components.aws.alarms import check_groups, plan_alarms, plan_no_steps
from components.aws.dashboard import plan_dashboard
from components.aws.metric_alarms import NAMESPACE, AlarmPlan, CompositePlan
from components.aws.topics import declare_topic
from components.findings import InputError

__all__ = [
    "RETENTION_DAYS",
    "FilterPlan",
    "NodeLogs",
    "NodeLogsArgs",
    "Observability",
    "ObservabilityArgs",
    "check_retention",
    "log_group_name",
    "plan_filters",
]

# What CloudWatch Logs offers, up to two years.
RETENTION_DAYS = (1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731)
INTERRUPTIONS_PER_HOUR = 3


class NodeLogsArgs(TypedDict):
    """Inputs of NodeLogs. `retention_days` is one of RETENTION_DAYS. Destroying the stack deletes the lines."""

    stack: str
    retention_days: int
    kms_key_arn: NotRequired[pulumi.Input[str] | None]
    tags: dict[str, str]


class ObservabilityArgs(TypedDict):
    """Inputs of Observability.

    `steps_alarm_minutes` has to be longer than a node needs from boot to the first statistics line (image pull, data
    preparation) and than two ticks lie apart. `expect_gpu`: whether idle GPUs are worth an alarm. `emails` hear
    of every alarm, once each has confirmed its address. `interruptions_per_hour` (3): above it, an alarm tells so.
    """

    stack: str
    region: str
    group_names: pulumi.Input[list[str]]
    emails: list[str]
    kms_key_arn: NotRequired[pulumi.Input[str] | None]
    steps_alarm_minutes: int
    expect_gpu: bool
    interruptions_per_hour: NotRequired[int]
    tags: dict[str, str]


@dataclass(frozen=True)
class FilterPlan:
    """One metric out of log lines.

    Attributes:
        metric: its name.
        pattern: which lines count. The grammar knows NOT EXISTS but no EXISTS; a comparison with a number stands for
            it, and a null is no number.
        value: a constant for each line, or a field of it.
        unit: CloudWatch's word for it.
        default_value: for minutes with lines but none that counts; None leaves gaps, which an average needs.
    """

    metric: str
    pattern: str
    value: str
    unit: str
    default_value: str | None = None


def log_group_name(stack: str) -> str:
    """Where the nodes of `stack` write, for Docker's awslogs driver.

    >>> log_group_name("demo")
    '/gangway/demo'
    """
    return f"/gangway/{stack}"


def plan_filters() -> list[FilterPlan]:
    """The metrics that are read out of the lines of the trainer and of the nodes' scripts."""

    def statistics(key: str) -> str:
        return f"{{ ($.event NOT EXISTS) && ($.{key} >= 0) }}"

    return [
        FilterPlan("ImagesPerSecond", statistics("images_per_sec"), "$.images_per_sec", "Count/Second"),
        FilterPlan("Steps", statistics("step"), "1", "Count", "0"),
        FilterPlan("GpuUtilisation", statistics("gpu_utilisation"), "$.gpu_utilisation", "None"),
        FilterPlan("Interruptions", '{ $.event = "interrupt" }', "1", "Count", "0"),
        FilterPlan("Checkpoints", '{ $.event = "checkpoint" }', "1", "Count", "0"),
        FilterPlan("NodesGivenUp", '{ $.event = "node-given-up" }', "1", "Count", "0"),
        FilterPlan(
            "RecordsAtRisk", '{ ($.event = "head-not-ready") || ($.event = "record-not-put") }', "1", "Count", "0"
        ),
        FilterPlan("JobsEndedBadly", '{ ($.event = "job-ended") && ($.exit_status != 0) }', "1", "Count", "0"),
    ]


def check_retention(days: int, place: str = "retention_days") -> None:
    """Refuses a number of days that CloudWatch Logs does not offer.

    Raises:
        InputError: it is none of RETENTION_DAYS; the fix names the next longer one.
    """
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
    """The log group of one stack's nodes, and the metrics that are read out of it."""

    log_group_name: pulumi.Output[str]
    log_group_arn: pulumi.Output[str]

    def __init__(self, name: str, args: NodeLogsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:aws:NodeLogs", name, None, opts)
        check_retention(args["retention_days"])
        child = pulumi.ResourceOptions(parent=self)
        group = cloudwatch.LogGroup(
            f"{name}-nodes",
            name=log_group_name(args["stack"]),
            retention_in_days=args["retention_days"],
            kms_key_id=args.get("kms_key_arn"),
            tags=args["tags"],
            opts=child,
        )
        for plan in plan_filters():
            cloudwatch.LogMetricFilter(
                f"{name}-{plan.metric}",
                log_group_name=group.name,
                pattern=plan.pattern,
                metric_transformation=cloudwatch.LogMetricFilterMetricTransformationArgs(
                    name=plan.metric,
                    namespace=f"{NAMESPACE}/{args['stack']}",
                    value=plan.value,
                    unit=plan.unit,
                    default_value=plan.default_value,
                ),
                opts=child,
            )
        self.log_group_name = group.name
        self.log_group_arn = group.arn
        self.register_outputs({"log_group_name": self.log_group_name, "log_group_arn": self.log_group_arn})


class Observability(pulumi.ComponentResource):
    """Alarms and the dashboard of one stack."""

    alarm_arns: pulumi.Output[list[str]]
    topic_arn: pulumi.Output[str]
    dashboard_name: pulumi.Output[str]

    def __init__(self, name: str, args: ObservabilityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:aws:Observability", name, None, opts)
        log_group, minutes = log_group_name(args["stack"]), args["steps_alarm_minutes"]
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
            "arn:aws:cloudwatch:*:{account}:alarm:*",
            kms_key_arn=args.get("kms_key_arn"),
            tags=args["tags"],
            opts=self._child,
            emails=args["emails"],
        )
        self._groups = pulumi.Output.from_input(args["group_names"]).apply(check_groups)
        alarms = {plan.name: self._alarm(plan) for plan in plans}
        no_steps = self._composite(plan_no_steps(log_group, minutes), alarms)
        told = [no_steps.arn, *(alarms[plan.name].arn for plan in plans if plan.tells)]
        self.alarm_arns = pulumi.Output.all(*told).apply(list)
        self.dashboard_name = self._dashboard().dashboard_name
        self.topic_arn = self._topic.arn
        self.register_outputs(
            {"alarm_arns": self.alarm_arns, "topic_arn": self.topic_arn, "dashboard_name": self.dashboard_name}
        )

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
            # Pulumi makes up no name for this type.
            alarm_name=f"gangway-{self._args['stack']}-{plan.name}",
            alarm_description=plan.description,
            alarm_rule=parts.apply(lambda arns: " AND ".join(f'ALARM("{arn}")' for arn in arns)),
            alarm_actions=[self._topic.arn],
            tags=self._args["tags"],
            opts=self._child,
        )

    def _dashboard(self) -> cloudwatch.Dashboard:
        stack, region = self._args["stack"], self._args["region"]
        body = pulumi.Output.all(self._groups, self.alarm_arns).apply(
            lambda known: plan_dashboard(stack, region, log_group_name(stack), known[0], known[1])
        )
        return cloudwatch.Dashboard(
            self._name,
            dashboard_name=f"gangway-{stack}",
            dashboard_body=pulumi.Output.json_dumps(body),
            opts=self._child,
        )
