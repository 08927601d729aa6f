"""Alarms as KQL queries, which return rows only when something is wrong. Each node sends ALIVE_EVENT once a minute."""

from collections.abc import Sequence
from dataclasses import dataclass

from gangway.components.core.limits import check_steps_alarm

TABLE = "Gangway_CL"  # the table of lines, with the suffix that Azure requires
COLUMNS: Sequence[tuple[str, str]] = (
    ("TimeGenerated", "datetime"),
    ("Node", "string"),
    ("Role", "string"),
    ("Unit", "string"),
    ("Event", "string"),
    ("Line", "dynamic"),
)
"""Time of the line, machine and role (`node` or `head`), systemd unit, `event` of a node's or head's own message (else
empty), and the whole line: text as `{"message": ...}`, and the job's JSON as `{"printed": ...}`, so that a job cannot
forge events.
"""
ALIVE_EVENT = "alive"  # sent by every node once a minute
LOOK_EVENT, REFUSED_EVENT = "ladder-looked", "ladder-refused"  # sent by the head: ladder checked; nodes refused
GPU_IDLE_BELOW = 0.10
# Lines reach the table some minutes late.
DELAY_MINUTES = 5
SLOT_MINUTES, SLOTS = 5, 18
# The head checks the ladder each minute: one failure is transient, a third of a quarter of an hour is not.
LOOKS_FAILED = 5
# Longer than the first node's boot to its first ALIVE_EVENT.
NO_NODE_MINUTES = 30
REFUSALS = 3
_LINES_OF_NODES = f'{TABLE} | where Role == "node" and Event == "{ALIVE_EVENT}"'


@dataclass(frozen=True)
class AlarmPlan:
    """One alarm. `description` is sent to people; any row of `query` (KQL) rings; `severity`: 0 critical to 3 info."""

    name: str
    description: str
    query: str
    severity: int


def plan_alarms(
    num_nodes: int, steps_alarm_minutes: int | None, interruptions_per_hour: int, *, expect_gpu: bool
) -> list[AlarmPlan]:
    """Every alarm; `steps_alarm_minutes` None for a job without steps. InputError: see `check_steps_alarm`."""
    of_steps = []
    if steps_alarm_minutes is not None:
        check_steps_alarm(steps_alarm_minutes)
        of_steps = [_no_steps(steps_alarm_minutes)]
    return [
        *of_steps,
        *([_gpu_idle()] if expect_gpu else []),
        _interruptions(interruptions_per_hour),
        _nodes_missing(num_nodes),
        _no_nodes(),
        _nodes_refused(),
        *(_of_event(*alarm) for alarm in _EVENT_ALARMS),
        _record_at_risk(),
    ]


def statistics(field: str) -> str:
    """Select the job's statistics lines with that field: they have no event."""
    return f"isempty(tostring(Line.printed.event)) and isnotnull(Line.printed.{field})"


def _steps(minutes: int) -> str:
    return f"toscalar({TABLE} | where TimeGenerated > ago({minutes}m) and {statistics('step')} | count)"


def _no_steps(minutes: int) -> AlarmPlan:
    """Rings if a node was there for the whole window, and still is, without a statistics line."""
    window = minutes + DELAY_MINUTES
    return AlarmPlan(
        "no-steps",
        f"No training step for {minutes} minutes, though there are nodes. Read the table's lines from their end: nodes "
        "that are still preparing, a job that waits for others (the head's rendezvous), or a trainer that hangs. A job "
        "that is done and whose nodes stay looks the same: destroy the stack, or set job.terminate_when_done.",
        f"let steps = {_steps(window)};\n"
        f"{_LINES_OF_NODES} and TimeGenerated > ago({window}m)\n"
        "| summarize First = min(TimeGenerated), Last = max(TimeGenerated) by Node\n"
        f"| where First < ago({minutes}m) and Last > ago({2 * DELAY_MINUTES}m) and steps == 0",
        0,
    )


def _gpu_idle() -> AlarmPlan:
    return AlarmPlan(
        "gpu-idle",
        f"Steps are made, but the GPUs were busy for less than {GPU_IDLE_BELOW:.0%} of 15 minutes. Look at images per "
        "second in the workbook: a data loader or a file system that cannot keep up is the usual cause, then a batch "
        "that is too small for the machine type.",
        f"{TABLE} | where TimeGenerated > ago(15m) and {statistics('gpu_utilisation')}\n"
        "| summarize Busy = avg(todouble(Line.printed.gpu_utilisation))\n"
        f"| where Busy < {GPU_IDLE_BELOW}",
        2,
    )


def _interruptions(per_hour: int) -> AlarmPlan:
    return AlarmPlan(
        "interruptions",
        f"For information: training was interrupted more than {per_hour} times in an hour. Nothing is lost but the "
        "work since each checkpoint. If it goes on, choose another zone or machine type, or put a rung of reserved or "
        "on-demand capacity above the spot rung.",
        f'{TABLE} | where TimeGenerated > ago(1h) and tostring(Line.printed.event) == "interrupt"\n'
        "| summarize Times = count()\n"
        f"| where Times > {per_hour}",
        3,
    )


def _nodes_missing(num_nodes: int) -> AlarmPlan:
    """Fewer nodes were up than wanted in a third of the last 90 minutes, since a node that is replaced repeatedly is up
    most of the time. Silent in the first 90 minutes, for a day after a successful job, and if no node ever came.
    """
    minutes = SLOT_MINUTES * SLOTS
    slots = f"range Slot from bin(ago({minutes}m), {SLOT_MINUTES}m) to bin(ago({2 * SLOT_MINUTES}m), {SLOT_MINUTES}m)"
    return AlarmPlan(
        "nodes-missing",
        f"In {minutes // 3} of the last {minutes} minutes there were fewer nodes than wanted, over all rungs. Training "
        "goes on with those that are there, if they are the job's minimum. The activity log of the scale sets says "
        "why: no capacity, a quota, or nodes that give themselves up as unhealthy.",
        f"let began = toscalar({_LINES_OF_NODES} and TimeGenerated > ago(1d) | summarize min(TimeGenerated));\n"
        f'let ended = toscalar({TABLE} | where TimeGenerated > ago(1d) and Event == "job-ended"\n'
        "    and toint(Line.exit_status) == 0 | count);\n"
        f"let steps = {_steps(15)};\n"
        f"let living = {_LINES_OF_NODES} and TimeGenerated > ago({minutes + SLOT_MINUTES}m)\n"
        f"    | summarize Nodes = dcount(Node) by Slot = bin(TimeGenerated, {SLOT_MINUTES}m);\n"
        f"{slots} step {SLOT_MINUTES}m\n"
        "| join kind=leftouter living on Slot\n"
        f"| summarize Missing = countif(coalesce(Nodes, 0) < {num_nodes})\n"
        f"| where Missing >= {SLOTS // 3} and began < ago({minutes}m) and (ended == 0 or steps > 0)",
        1,
    )


def _no_nodes() -> AlarmPlan:
    """Scale sets start empty, so `up` does not fail without capacity, and a missing node sends no events."""
    window = NO_NODE_MINUTES + DELAY_MINUTES
    return AlarmPlan(
        "no-nodes",
        f"For {NO_NODE_MINUTES} minutes the head has asked for nodes, and not one lives; head, NAT gateway and file "
        "system cost meanwhile. In the table the field `reason` of ladder-changed and ladder-refused says what Azure "
        "answers, the scale sets' activity log what became of machines: no capacity (wait, or add a rung, another zone "
        "or region), a quota, or an image or a setting that Azure does not take.",
        f"let living = toscalar({_LINES_OF_NODES} and TimeGenerated > ago({window}m) | count);\n"
        f'{TABLE} | where TimeGenerated > ago({window}m) and Event == "{LOOK_EVENT}"\n'
        "| summarize First = min(TimeGenerated), Last = max(TimeGenerated)\n"
        f"| where First < ago({NO_NODE_MINUTES}m) and Last > ago({2 * DELAY_MINUTES}m) and living == 0",
        1,
    )


def _nodes_refused() -> AlarmPlan:
    return AlarmPlan(
        "nodes-refused",
        "Azure refuses the nodes that the head asks for, and not for want of machines: a quota, a policy, a feature "
        "that is not registered, an image or a size that does not fit. They are asked for again each minute, and will "
        "not come by themselves. In the table the field `reason` of ladder-refused has Azure's own words.",
        f'{TABLE} | where TimeGenerated > ago(15m) and Event == "{REFUSED_EVENT}"\n'
        "| summarize Times = count()\n"
        f"| where Times >= {REFUSALS}",
        1,
    )


# Name, event (and condition) of a node or the head, severity, description.
_EVENT_ALARMS = (
    (
        "node-given-up",
        '"node-given-up"',
        1,
        "A node found itself unfit (GPU, InfiniBand, file system, image) and gave itself up. Its scale set makes "
        "another. If it goes on, read the lines before `node-given-up` in the table: they say what was found.",
    ),
    (
        "launches-held",
        '"launches-held"',
        0,
        "So many nodes gave themselves up that the head asks for none any more. The field `reason` of launches-held in "
        "the table says why the last one gave up, breaker/held.json beside the run's record the same. Mend what it "
        "names, and then run `gangway breaker reset STACK`: the head asks for what is missing.",
    ),
    (
        "job-failed",
        '"job-ended" and toint(Line.exit_status) != 0',
        0,
        "The job ended with an exit status other than 0, and is not started again by itself. Read the end of the "
        "table's lines: status 2 is bad input, 3 a fabric too slow.",
    ),
)


def _of_event(name: str, event: str, severity: int, description: str) -> AlarmPlan:
    return AlarmPlan(name, description, f"{TABLE} | where TimeGenerated > ago(10m) and Event == {event}", severity)


def _record_at_risk() -> AlarmPlan:
    """The head retries by itself while the workers wait, so nothing else would report it."""
    return AlarmPlan(
        "record-at-risk",
        "The head node is not ready (file system, image), it cannot look after the scale sets of the ladder, the run "
        "record could not be put where it outlives the nodes, or nobody could be told that the job has ended, so that "
        "nodes may still come for it. All but the last is tried again, and the workers may be waiting, and cost, "
        "meanwhile. In the table the field `reason` of head-not-ready, ladder-not-kept, record-not-put or end-not-told "
        "says why: mend that, and before a destroy see that the record is in the run bucket.",
        f"{TABLE} | where TimeGenerated > ago(15m)\n"
        '| where Event in ("head-not-ready", "record-not-put", "end-not-told", "ladder-not-kept")\n'
        "| summarize Times = count() by Event\n"
        f'| where Event != "ladder-not-kept" or Times >= {LOOKS_FAILED}',
        0,
    )
