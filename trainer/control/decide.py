"""One decision from a history, for a controller and for replays; also shortens the history of a long run. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from gangway.trainer.config.values.control import ControlSettings
from gangway.trainer.control.guardrails import (
    Machine,
    allowed_values,
    distrust_reason,
    is_too_often,
    loss_reason,
    refusal_reason,
)
from gangway.trainer.control.interval import Decision, Fixed, Interval, Knobs, Policy, Room, Value
from gangway.trainer.control.judge import BEFORE, LONGEST, Verdict, judge, undo_change
from gangway.trainer.control.learned import Learned
from gangway.trainer.control.model import Model
from gangway.trainer.control.rules import Rules

MOST_INTERVALS = 2000  # Newest intervals, all of which are kept; older ones do not describe the machine as it is now


def shorten(history: Sequence[Interval], settings: ControlSettings) -> list[Interval]:
    """Returns a shorter history with the same verdicts and sums; may be applied again to its own result.

    It keeps what is new, first, guarded, or near a change; the next kept interval takes over the time of omitted ones.
    """
    old = len(history) - MOST_INTERVALS
    if old <= 0:
        return list(history)
    near = max(LONGEST * settings.patience + 1, LONGEST * BEFORE)
    kept_places = {0, *(place for place in range(old) if history[place].guard is not None)}
    for place in range(min(old + near, len(history))):
        each = history[place]
        is_other = place > 0 and each.knobs != history[place - 1].knobs
        if is_other or each.decision is not None or each.failed is not None:
            kept_places.update(range(place - near, place + near + 1))
    found, left_out_sec = list[Interval](), 0.0
    for place, each in enumerate(history):
        if place < old and place not in kept_places:
            left_out_sec += each.seconds
            continue
        found.append(each._replace(seconds=left_out_sec + each.seconds) if left_out_sec else each)
        left_out_sec = 0.0
    return found


def standing_decisions(history: Sequence[Interval]) -> dict[str, Value]:
    """Returns, by knob, the decided value that still holds, with which the next session continues."""
    first, last = dict[str, Value](), dict[str, Value]()
    for made in (each.decision for each in history if each.decision is not None):
        if last.get(made.knob) != made.was:  # the user has set it since
            first[made.knob] = made.was
        last[made.knob] = made.value
    return {knob: value for knob, value in last.items() if value != first[knob]}


class Outcome(NamedTuple):
    """The result of one decision."""

    decision: Decision | None = None  # None for no change
    why: str = ""  # the reason for no change
    warning: bool = False  # whether to show that reason to the user
    verdict: Verdict | None = None  # on the last change; None where its figures are not trusted


def get_policy(settings: ControlSettings) -> Policy:
    """Returns the policy that the settings name."""
    match settings.policy:
        case "fixed":
            return Fixed()
        case "rules":
            return Rules()
        case "model":
            return Model()
        case "learned":
            return Learned(settings.lost_sec, settings.min_gain)


def next_decision(
    history: Sequence[Interval],
    policy: Policy,
    settings: ControlSettings,
    start: Knobs,
    machine: Machine,
    *,
    seed: int = 0,
) -> Outcome:
    """Returns what to do after a history's last interval. `start` are the run's initial knobs."""
    if why := distrust_reason(history, settings, start):
        return Outcome(why=why, warning=True)
    if settings.policy == "fixed":  # nor judges another session's change
        return Outcome(why="fixed changes nothing")
    verdict = judge(history, settings, start)
    if verdict.state == "wait":
        return Outcome(why=verdict.why, verdict=verdict)
    if verdict.state == "undo":
        return Outcome(undo_change(verdict), verdict=verdict)
    if is_too_often(history, settings):
        return Outcome(why=f"{settings.decisions_per_hour:g} decisions an hour are made", verdict=verdict)
    if why := loss_reason(history, settings):
        return Outcome(why=why, verdict=verdict)
    values = allowed_values(settings, start, machine, history)
    wanted = policy.decide(history, Room(values, settings.objective, start, machine.on_cpu, seed))
    if wanted is None:
        return Outcome(why=f"{policy.name} changes nothing", verdict=verdict)
    if why := refusal_reason(wanted, values, history[-1].after):
        return Outcome(why=why, warning=True, verdict=verdict)
    return Outcome(wanted, verdict=verdict)
