"""CloudWatch alarms as data: no steps, failed jobs and nodes, idle GPUs, interruptions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pulumi_aws import cloudwatch

from gangway.components.core.findings import InputError
from gangway.components.core.limits import check_steps_alarm

NAMESPACE = "Gangway"
# An alarm's expression takes ten metrics, one of which is not a group's.
MAX_GROUPS = 9
GPU_IDLE_BELOW = 0.10
GIVEN_UP_PER_HOUR = 2


class Source(StrEnum):
    """The owner of a metric. The first group wants all nodes; the later ones only replace missing ones."""

    TRAINER = "trainer"
    FIRST_GROUP = "first group"
    EVERY_GROUP = "every group"


class Missing(StrEnum):
    """How CloudWatch treats a window without data."""

    QUIET = "notBreaching"
    RINGS = "breaching"


@dataclass(frozen=True)
class MetricPlan:
    """One metric of an alarm; with EVERY_GROUP, one per group, as `<id>0`, `<id>1`, ..."""

    id: str
    name: str
    stat: str
    source: Source = Source.TRAINER


@dataclass(frozen=True)
class AlarmPlan:
    """One alarm. `description`: the problem and what to do, sent to people; `comparison`: of the expression (or the
    only metric) with the threshold; `period_sec`: window, sliding by a minute; `expression`: metric math, in which
    `{nodes}` is the sum over all groups; `breaching`: number of windows, by default all; `tells`: people, else part of
    a CompositePlan.
    """

    name: str
    description: str
    comparison: str
    threshold: float
    period_sec: int
    periods: int
    metrics: tuple[MetricPlan, ...]
    expression: str | None = None
    breaching: int | None = None
    # Nothing is reported while nothing runs, which is no reason for an alarm.
    missing: Missing = Missing.QUIET
    tells: bool = True

    def queries(self, stack: str, groups: Sequence[str]) -> list[cloudwatch.MetricAlarmMetricQueryArgs]:
        """The metrics and the expression over them for these Auto Scaling groups."""
        found = [query for metric in self.metrics for query in self._metric_queries(metric, stack, groups)]
        if self.expression is None:
            return found
        each = [metric.id for metric in self.metrics if metric.source is Source.EVERY_GROUP]
        nodes = " + ".join(f"{id_}{index}" for id_ in each for index in range(len(groups)))
        result = cloudwatch.MetricAlarmMetricQueryArgs(
            id="result", label=self.name, expression=self.expression.format(nodes=nodes), return_data=True
        )
        return [*found, result]

    def _metric_queries(
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


@dataclass(frozen=True)
class CompositePlan:
    """An alarm that rings while all alarms named in `parts` do. `description` is sent to people."""

    name: str
    description: str
    parts: tuple[str, ...]


def get_log_group(arn: str) -> str:
    """The name in a log group's ARN.

    >>> get_log_group("arn:aws:logs:us-east-2:123456789012:log-group:/team/gan")
    '/team/gan'
    """
    return arn.split(":", 6)[6]


def events_group(log_group: str) -> str:
    """The nodes' events, apart from the job's lines, so that a job cannot forge them. Also spelled in aws/cloud.sh."""
    return f"{log_group}/events"


def check_groups(groups: Sequence[str]) -> list[str]:
    """The groups as a list. InputError: more than an alarm can add up."""
    if len(groups) > MAX_GROUPS:
        raise InputError(
            "gangway:cluster.capacity",
            "more rungs than one CloudWatch alarm can watch",
            value=len(groups),
            allowed=f"at most {MAX_GROUPS} rungs",
            fix="join rungs of one kind: a spot or on-demand rung takes several machine_types and zones",
        )
    return list(groups)


def plan_alarms(
    log_group: str, steps_alarm_minutes: int | None, interruptions_per_hour: int, *, expect_gpu: bool
) -> list[AlarmPlan]:
    """Every metric alarm of a stack; with minutes also `plan_no_steps`'s parts. InputError: see `check_steps_alarm`."""
    of_steps = []
    if steps_alarm_minutes is not None:
        check_steps_alarm(steps_alarm_minutes)
        of_steps = [_steps_absent(steps_alarm_minutes), _nodes_up(steps_alarm_minutes)]
    idle = [_gpu_idle()] if expect_gpu else []
    events = events_group(log_group)
    return [
        *of_steps,
        _given_up(events),
        *(_of_event(events, *alarm) for alarm in _EVENT_ALARMS),
        *idle,
        _interruptions(interruptions_per_hour),
        _nodes_missing(),
    ]


def plan_no_steps(log_group: str, minutes: int) -> CompositePlan:
    """Rings when nodes have been up for `minutes` without a statistics line. Two alarms in one: "no step" must breach
    on missing data, since FILL has nothing to fill before the metric exists; "nodes are up" must not, or it would ring
    before there is a node.
    """
    return CompositePlan(
        "no-steps",
        f"No training step for {minutes} minutes on nodes that cost money. Read the log group {log_group}: an image "
        "that cannot be pulled, data that is still being prepared, a hanging fabric or nodes that give themselves up "
        "(node-given-up) show there. On a node (Session Manager): systemctl status gangway-trainer. If the run is "
        "done, set the groups to 0 nodes or destroy the stack; if the first step simply takes longer, raise "
        "steps_alarm_minutes.",
        ("steps-absent", "nodes-up"),
    )


def _steps_absent(minutes: int) -> AlarmPlan:
    """FILL adds points for windows without lines: otherwise CloudWatch uses the last window with data."""
    return AlarmPlan(
        "steps-absent",
        f"A part of the alarm no-steps, which tells people: no statistics line of the trainer for {minutes} minutes. "
        "By itself it means nothing: it also holds before the first node is up and after the run.",
        "LessThanThreshold",
        1,
        minutes * 60,
        1,
        (MetricPlan("steps", "Steps", "Sum"),),
        "FILL(steps, 0)",
        missing=Missing.RINGS,
        tells=False,
    )


def _nodes_up(minutes: int) -> AlarmPlan:
    """In service in each of three windows; by Maximum, since a node that is replaced repeatedly leaves gaps."""
    return AlarmPlan(
        "nodes-up",
        f"A part of the alarm no-steps, which tells people: nodes have been in service for {minutes} minutes or more, "
        "whether the same ones or one after the other. By itself it means nothing: so it should be during a run.",
        "GreaterThanOrEqualToThreshold",
        1,
        -(-minutes // 2) * 60,
        3,
        (MetricPlan("n", "GroupInServiceInstances", "Maximum", Source.EVERY_GROUP),),
        "{nodes}",
        tells=False,
    )


def _given_up(events: str) -> AlarmPlan:
    """One node may be broken; if its replacement fails too, the next one will hardly do better."""
    return AlarmPlan(
        "nodes-given-up",
        f"{GIVEN_UP_PER_HOUR} or more nodes gave themselves up within an hour. Each is replaced, and its successor "
        f"costs money until it gives up too. In the log group {events}, look for node-given-up: the field reason "
        "says why. Always the same reason is no broken machine: mend what it names (image, file system, a setting) "
        "and run `pulumi up --refresh`; until then set the groups to 0 nodes. The breaker does that after "
        "some more (gangway:cluster.breaker).",
        "GreaterThanOrEqualToThreshold",
        GIVEN_UP_PER_HOUR,
        3600,
        1,
        (MetricPlan("given_up", "NodesGivenUp", "Sum"),),
    )


# Name, metric and description, in which {events} is the log group. The head node retries forever, so nothing but
# record-at-risk would report it.
_EVENT_ALARMS = (
    (
        "launches-held",
        MetricPlan("held", "LaunchesHeld", "Sum"),
        "So many nodes gave themselves up that nothing of this stack is launched any more: the processes Launch and "
        "AlarmNotification of its groups are suspended. In the log group {events} the field reason of "
        "launches-held says why the last one gave up, breaker/held.json beside the run's record the same. Mend what "
        "it names, and then run `gangway breaker reset STACK`: the groups bring at once what they lack.",
    ),
    (
        "job-ended-badly",
        MetricPlan("ended", "JobsEndedBadly", "Sum"),
        "The job ended, and not because it was done: nobody takes it up again. In the log group "
        "{events}, look for job-ended: exit_status 2 is bad input, 3 a fabric that is too slow, 75 that "
        "max_hours are over; of others the stack's log group has the lines. Mend it and run `pulumi up --refresh`, "
        "which sees that the groups are empty and brings new nodes; if nodes stay up meanwhile, set the groups to 0.",
    ),
    (
        "record-at-risk",
        MetricPlan("at_risk", "RecordsAtRisk", "Sum"),
        "The head node is not ready, the run record could not be put where it outlives the cluster, or nobody could be "
        "told that the job has ended, so that nodes may still come for it. The first two are tried again; the log "
        "group {events} says why in the field reason of head-not-ready (file system, image), record-not-put or "
        "end-not-told (bucket, key, permission). Without a head several nodes do not find each other. Mend what it "
        "names; before `pulumi destroy`, see that the record is in the run bucket.",
    ),
)


def _of_event(events: str, name: str, metric: MetricPlan, description: str) -> AlarmPlan:
    return AlarmPlan(name, description.format(events=events), "GreaterThanOrEqualToThreshold", 1, 900, 1, (metric,))


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
    """All rungs hold fewer nodes than wanted, by Minimum: Maximum would miss a node that is replaced repeatedly."""
    return AlarmPlan(
        "nodes-missing",
        "In 30 of the last 90 minutes fewer nodes than wanted were in service, over all rungs. Training goes on with "
        "those that are there, if they are the job's minimum. The groups' activity history (EC2 console, Auto Scaling "
        "groups) says why: no capacity, a quota, a price above max_usd_per_hour, or nodes that give themselves up as "
        "unhealthy. After a day without one launch Auto Scaling suspends a group by itself (administrative "
        "suspension): its Launch process shows as suspended, and nothing comes until you run `aws autoscaling "
        "resume-processes --auto-scaling-group-name GROUP --scaling-processes Launch`.",
        "GreaterThanOrEqualToThreshold",
        1,
        300,
        18,
        (
            MetricPlan("wanted", "GroupDesiredCapacity", "Minimum", Source.FIRST_GROUP),
            MetricPlan("n", "GroupInServiceInstances", "Minimum", Source.EVERY_GROUP),
        ),
        "wanted - ({nodes})",
        breaching=6,
    )
