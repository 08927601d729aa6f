"""One decision from a history: meters believed, the last change judged, limits kept, then the policy asked. Pure: the
controller of a running job calls it, and so does whoever shows a recorded run to another policy.
"""

from collections.abc import Sequence
from typing import NamedTuple

from trainer.config.values.control import ControlSettings
from trainer.control.guardrails import Machine, allowed, is_too_often, lost_too_much, mistrusted, within
from trainer.control.interval import Decision, Interval, Knobs
from trainer.control.judge import Verdict, judge, undoing
from trainer.control.learned import Learned
from trainer.control.model import Model
from trainer.control.policy import Fixed, Policy, Room
from trainer.control.rules import Rules


class Outcome(NamedTuple):
    """What comes of a history.

    Attributes:
        decision: to be carried out; None for nothing.
        why: why nothing.
        warning: whether a user has to know of that.
        verdict: on the last change; None where figures were not believed.
    """

    decision: Decision | None = None
    why: str = ""
    warning: bool = False
    verdict: Verdict | None = None


def get_policy(settings: ControlSettings) -> Policy:
    """By its name."""
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
    """What to do after the last interval of a history. `start` are the knobs that the run began with."""
    if why := mistrusted(history, settings, start):
        return Outcome(why=why, warning=True)
    if settings.policy == "fixed":  # not what another session's policy was watching either
        return Outcome(why="fixed changes nothing")
    verdict = judge(history, settings, start)
    if verdict.state == "wait":
        return Outcome(why=verdict.why, verdict=verdict)
    if verdict.state == "undo":
        return Outcome(undoing(verdict), verdict=verdict)
    if is_too_often(history, settings):
        return Outcome(why=f"{settings.decisions_per_hour:g} decisions an hour are made", verdict=verdict)
    if why := lost_too_much(history, settings):
        return Outcome(why=why, verdict=verdict)
    values = allowed(settings, start, machine, history)
    wanted = policy.decide(history, Room(values, settings.objective, start, machine.on_cpu, seed))
    if wanted is None:
        return Outcome(why=f"{policy.name} changes nothing", verdict=verdict)
    if why := within(wanted, values, history[-1].after):
        return Outcome(why=why, warning=True, verdict=verdict)
    return Outcome(wanted, verdict=verdict)
