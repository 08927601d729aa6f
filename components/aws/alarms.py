"""What wakes a person: no training steps, idle GPUs, many interruptions, missing nodes; each says what to do.

Plans only, no resources. Sums of groups need no FILL: metric math takes a missing point for 0 there. Metrics come late,
by a minute or three, so no alarm looks at the newest minute alone: a window slides over five minutes at least. Not the
alarms that fill the capacity ladder; those are in `components.aws.fallback` and act by themselves.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pulumi_aws import cloudwatch

from components.findings import InputError

__all__ = [
    "MAX_GROUPS",
    "NAMESPACE",
    "STEPS_ALARM_MINUTES",
    "AlarmPlan",
    "MetricPlan",
    "Source",
    "check_groups",
    "check_steps_alarm",
    "plan_alarms",
]

NAMESPACE = "Gangway"
# An alarm's expression takes ten metrics, one of which is not a group's.
MAX_GROUPS = 9
# Below, late metrics would look like a trainer that stands still; above, AWS ends the window (a day).
STEPS_ALARM_MINUTES = range(10, 1441)
GPU_IDLE_BELOW = 0.10


class Source(StrEnum):
    """Whose metric it is. The first group wants all nodes; the groups after it only make up for missing ones."""

    TRAINER = "trainer"
    FIRST_GROUP = "first group"
    EVERY_GROUP = "every group"


@dataclass(frozen=True)
class MetricPlan:
    """One metric of an alarm; with EVERY_GROUP, one for each group, as `<id>0`, `<id>1`, ..."""

    id: str
    name: str
    stat: str
    source: Source = Source.TRAINER


@dataclass(frozen=True)
class AlarmPlan:
    """One alarm.

    Attributes:
        name: ends the resource's name.
        description: what is the matter and what to do; the message that people get.
        comparison: of the expression (or the only metric) with the threshold, in CloudWatch's words.
        threshold: in the metric's unit.
        period_sec: length of one window; windows slide by a minute.
        periods: windows in a row.
        metrics: what is looked at.
        expression: metric math; `{nodes}` stands for the sum of the metrics of every group.
    """

    name: str
    description: str
    comparison: str
    threshold: float
    period_sec: int
    periods: int
    metrics: tuple[MetricPlan, ...]
    expression: str | None = None

    def queries(self, stack: str, groups: Sequence[str]) -> list[cloudwatch.MetricAlarmMetricQueryArgs]:
        """The alarm's metrics, and the expression over them, for these Auto Scaling groups."""
        found = [query for metric in self.metrics for query in self._of(metric, stack, groups)]
        if self.expression is None:
            return found
        each = next(metric.id for metric in self.metrics if metric.source is Source.EVERY_GROUP)
        nodes = " + ".join(f"{each}{index}" for index in range(len(groups)))
        result = cloudwatch.MetricAlarmMetricQueryArgs(
            id="result", label=self.name, expression=self.expression.format(nodes=nodes), return_data=True
        )
        return [*found, result]

    def _of(
        self, metric: MetricPlan, stack: str, groups: Sequence[str]
    ) -> Iterator[cloudwatch.MetricAlarmMetricQueryArgs]:
        if metric.source is Source.TRAINER:
            yield self._query(metric.id, metric, f"{NAMESPACE}/{stack}", None)
        elif metric.source is Source.FIRST_GROUP:
            yield self._query(metric.id, metric, "AWS/AutoScaling", {"AutoScalingGroupName": groups[0]})
        else:
            for index, group in enumerate(groups):
                yield self._query(f"{metric.id}{index}", metric, "AWS/AutoScaling", {"AutoScalingGroupName": group})

    def _query(
        self, query_id: str, metric: MetricPlan, namespace: str, dimensions: dict[str, str] | None
    ) -> cloudwatch.MetricAlarmMetricQueryArgs:
        return cloudwatch.MetricAlarmMetricQueryArgs(
            id=query_id,
            return_data=self.expression is None,
            metric=cloudwatch.MetricAlarmMetricQueryMetricArgs(
                namespace=namespace,
                metric_name=metric.name,
                dimensions=dimensions,
                period=self.period_sec,
                stat=metric.stat,
            ),
        )


def check_groups(groups: Sequence[str]) -> list[str]:
    """The groups, as a list.

    Raises:
        InputError: there are more than an alarm can add up.
    """
    if len(groups) > MAX_GROUPS:
        raise InputError(
            "gangway:cluster.capacity",
            "more rungs than one CloudWatch alarm can watch",
            value=len(groups),
            allowed=f"at most {MAX_GROUPS} rungs",
            fix="join rungs of one kind: a spot or on-demand rung takes several machine_types and zones",
        )
    return list(groups)


def check_steps_alarm(minutes: int) -> None:
    """Refuses a window in which late metrics look like a standstill, or one that AWS does not keep.

    Raises:
        InputError: it is outside STEPS_ALARM_MINUTES.
    """
    allowed = STEPS_ALARM_MINUTES
    if minutes not in allowed:
        nearest = min(max(minutes, allowed.start), allowed.stop - 1)
        raise InputError(
            "steps_alarm_minutes",
            "not a window CloudWatch can watch for steps",
            value=minutes,
            allowed=f"{allowed.start} to {allowed.stop - 1} minutes",
            fix=f"steps_alarm_minutes: {nearest}",
        )


def plan_alarms(
    log_group: str, steps_alarm_minutes: int, interruptions_per_hour: int, *, expect_gpu: bool
) -> list[AlarmPlan]:
    """Every alarm of a stack.

    Raises:
        InputError: see `check_steps_alarm`.
    """
    check_steps_alarm(steps_alarm_minutes)
    idle = [_gpu_idle()] if expect_gpu else []
    return [
        _no_steps(log_group, steps_alarm_minutes),
        *idle,
        _interruptions(interruptions_per_hour),
        _nodes_missing(),
    ]


def _no_steps(log_group: str, minutes: int) -> AlarmPlan:
    """Rings when nodes were in service for the whole window and no statistics line came in it.

    The Minimum keeps it quiet for that long after the first node comes up (image, data) and after the ladder changes
    rungs. One long window instead of many short ones: with FILL the newest short one would always look empty.
    """
    return AlarmPlan(
        "no-steps",
        f"No training step for {minutes} minutes on nodes that cost money. Read the log group {log_group}: an image "
        "that cannot be pulled, data that is still being prepared or a hanging fabric show there. On a node (Session "
        "Manager): systemctl status gangway-trainer. If the run is done, set the groups to 0 nodes or destroy the "
        "stack; if the first step simply takes longer, raise steps_alarm_minutes.",
        "LessThanThreshold",
        1,
        minutes * 60,
        1,
        (
            MetricPlan("steps", "Steps", "Sum"),
            MetricPlan("n", "GroupInServiceInstances", "Minimum", Source.EVERY_GROUP),
        ),
        "IF(({nodes}) > 0, FILL(steps, 0), 1)",
    )


def _gpu_idle() -> AlarmPlan:
    return AlarmPlan(
        "gpu-idle",
        f"Steps are made, but the GPUs were busy for less than {GPU_IDLE_BELOW:.0%} of 15 minutes. Look at images per "
        "second on the dashboard: a data loader or a file system that cannot keep up is the usual cause, then a batch "
        "that is too small for the machine type.",
        "LessThanThreshold",
        GPU_IDLE_BELOW,
        300,
        3,
        (MetricPlan("busy", "GpuUtilisation", "Average"),),
    )


def _interruptions(per_hour: int) -> AlarmPlan:
    return AlarmPlan(
        "interruptions",
        f"For information: training was interrupted more than {per_hour} times in an hour. Nothing is lost but the "
        "work since each checkpoint. If it goes on, put another machine type or zone into the spot rung, or a rung of "
        "reserved or on-demand capacity above it.",
        "GreaterThanThreshold",
        per_hour,
        3600,
        1,
        (MetricPlan("interruptions", "Interruptions", "Sum"),),
    )


def _nodes_missing() -> AlarmPlan:
    """All rungs together hold fewer nodes than the first one wants: a rung that fills in counts, whichever it is."""
    return AlarmPlan(
        "nodes-missing",
        "For 30 minutes fewer nodes than wanted were in service, over all rungs. Training goes on with those that are "
        "there, if they are the job's minimum. The groups' activity history (EC2 console, Auto Scaling groups) says "
        "why: no capacity, a quota, a price above max_usd_per_hour, or nodes that give themselves up as unhealthy.",
        "GreaterThanOrEqualToThreshold",
        1,
        300,
        6,
        (
            MetricPlan("wanted", "GroupDesiredCapacity", "Minimum", Source.FIRST_GROUP),
            MetricPlan("n", "GroupInServiceInstances", "Maximum", Source.EVERY_GROUP),
        ),
        "wanted - ({nodes})",
    )
