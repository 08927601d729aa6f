"""What wakes a person: no training steps, nodes that give up, a failed job, idle GPUs, interruptions, missing nodes.

Plans only, no resources; each says what to do. Metrics come late, by a minute or three, so no alarm looks at the newest
minute alone: a window slides over five minutes at least. Not the alarms that fill the capacity ladder; those are in
`components.aws.fallback` and act by themselves.
"""

from collections.abc import Sequence

from components.aws.metric_alarms import MAX_GROUPS, AlarmPlan, CompositePlan, MetricPlan, Missing, Source
from components.findings import InputError
from components.limits import check_steps_alarm

__all__ = [
    "check_groups",
    "plan_alarms",
    "plan_no_steps",
]

GPU_IDLE_BELOW = 0.10
GIVEN_UP_PER_HOUR = 2


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


def plan_alarms(
    log_group: str, steps_alarm_minutes: int, interruptions_per_hour: int, *, expect_gpu: bool
) -> list[AlarmPlan]:
    """Every alarm of a stack on metrics, the parts of `plan_no_steps` among them.

    Raises:
        InputError: see `check_steps_alarm`.
    """
    check_steps_alarm(steps_alarm_minutes)
    idle = [_gpu_idle()] if expect_gpu else []
    return [
        _steps_absent(steps_alarm_minutes),
        _nodes_up(steps_alarm_minutes),
        _given_up(log_group),
        _ended_badly(log_group),
        _record_at_risk(log_group),
        *idle,
        _interruptions(interruptions_per_hour),
        _nodes_missing(),
    ]


def plan_no_steps(log_group: str, minutes: int) -> CompositePlan:
    """Rings when nodes are up, and have been for `minutes`, and no statistics line came for as long.

    Two alarms in one, for no single one can say it. "No step" has to hold as well before the first one ever, when the
    metric does not exist: FILL has nothing to fill then, and only an alarm that counts what is missing as breaching
    sees it. "Nodes are up" must not count what is missing so, or it would ring before there is a node.
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
    """FILL makes a point of a window without lines: without it CloudWatch would go by the last window that had some."""
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
    """Each of three windows, half as long as asked, has seen a node in service.

    So it is quiet for that long after the first node comes up (image, data), and soon after the last one has gone. A
    Maximum, for a node that gives itself up and is replaced again and again leaves gaps, which are to be looked over.
    """
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


def _given_up(log_group: str) -> AlarmPlan:
    """One node may be broken; when its successor gives up as well, the next will hardly do better."""
    return AlarmPlan(
        "nodes-given-up",
        f"{GIVEN_UP_PER_HOUR} or more nodes gave themselves up within an hour. Each is replaced, and its successor "
        f"costs money until it gives up too. In the log group {log_group}, look for node-given-up: the field reason "
        "says why. Always the same reason is no broken machine: mend what it names (image, file system, a setting) "
        "and run `pulumi up --refresh`; until then set the groups to 0 nodes.",
        "GreaterThanOrEqualToThreshold",
        GIVEN_UP_PER_HOUR,
        3600,
        1,
        (MetricPlan("given_up", "NodesGivenUp", "Sum"),),
    )


def _ended_badly(log_group: str) -> AlarmPlan:
    return AlarmPlan(
        "job-ended-badly",
        "The job ended, and not because it was done: nobody takes it up again. In the log group "
        f"{log_group}, look for job-ended: exit_status 2 is bad input, 3 a fabric that is too slow, 75 that "
        "max_hours are over; others stand in the lines before. Mend it and run `pulumi up --refresh`, which sees "
        "that the groups are empty and brings new nodes; if nodes stay up meanwhile, set the groups to 0.",
        "GreaterThanOrEqualToThreshold",
        1,
        900,
        1,
        (MetricPlan("ended", "JobsEndedBadly", "Sum"),),
    )


def _record_at_risk(log_group: str) -> AlarmPlan:
    """The head node tries again by itself for ever, so nobody would hear of it otherwise."""
    return AlarmPlan(
        "record-at-risk",
        "The head node is not ready, or the run record could not be put where it outlives the cluster. Both are tried "
        f"again; the log group {log_group} says why in the field reason of head-not-ready (file system, image) or "
        "record-not-put (bucket, key, permission). Without a head several nodes do not find each other. Mend what it "
        "names; before `pulumi destroy`, see that the record is in the run bucket.",
        "GreaterThanOrEqualToThreshold",
        1,
        900,
        1,
        (MetricPlan("at_risk", "RecordsAtRisk", "Sum"),),
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
    """All rungs together hold fewer nodes than the first one wants: a rung that fills in counts, whichever it is.

    A Minimum and a third of the windows: nodes that are replaced again and again are there most of the time, and a
    Maximum, or all windows in a row, would never see one missing. A first start or one replacement takes less.
    """
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
