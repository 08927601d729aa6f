"""One decision from a history: checks meters, judges the last change, applies limits, then asks the policy.

Pure: both the controller and the replay of a recorded run call it.
"""

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
from gangway.trainer.control.interval import Decision, Interval, Knobs
from gangway.trainer.control.judge import Verdict, judge, undo_change
from gangway.trainer.control.learned import Learned
from gangway.trainer.control.model import Model
from gangway.trainer.control.policy import Fixed, Policy, Room
from gangway.trainer.control.rules import Rules


class Outcome(NamedTuple):
    """The result of one decision.

    Attributes:
        decision: None for no change.
        why: the reason for no change.
        warning: whether to show that reason to the user.
        verdict: on the last change; None where its figures are not trusted.
    """

    decision: Decision | None = None
    why: str = ""
    warning: bool = False
    verdict: Verdict | None = None


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
