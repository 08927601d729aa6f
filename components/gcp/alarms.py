"""Alarms as PromQL over Cloud Monitoring, whose older conditions cannot see a metric without any point."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gangway.components.core.limits import STEPS_ALARM_MINUTES, check_steps_alarm
from gangway.components.core.query_text import promql_any, promql_text

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
    """Lines in a window; no result if there were none."""
    return f"sum(increase({_series(stack, metric)}[{window}]))"


def _sizes(groups: Sequence[str]) -> str:
    named = f"instance_group_name=~{promql_any(groups)}"
    return f'compute_googleapis_com:instance_group_size{{monitored_resource="instance_group",{named}}}'


def _no_steps(stack: str, groups: Sequence[str], minutes: int) -> AlarmPlan:
    """Rings if there were nodes for the whole window and no statistics line. A minimum ignores missing points, so the
    window must be full. TPUs, without groups: lines within the day and none in the window.
    """
    longer = min(minutes + DELAY_MINUTES, STEPS_ALARM_MINUTES.stop - 1)
    window = f"{longer if groups else minutes}m"
    steps = f"({_lines(stack, 'Steps', window)} > 0)"
    size = f"{_sizes(groups)}[{window}]"
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
    sizes = _sizes(groups)
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
