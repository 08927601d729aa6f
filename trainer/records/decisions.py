"""A controller's decisions in the run record, and their outcome."""

from collections.abc import Iterable, Sequence
from typing import Literal

from gangway.trainer.config.values.control import JUDGE
from gangway.trainer.records.quantity import Frozen
from gangway.trainer.records.stats_log import Line, iso

Fate = Literal["kept", "undone", "failed", "observed", "dropped", "unjudged", "undoing"]
CONTROLLER = "controller"  # Key of a session's choices, and event of a session with a controller
OF_DECISIONS = ("decision", "decision-kept", "decision-fatal")  # Events about decisions


class DecisionRecord(Frozen):
    """One decision.

    Attributes:
        images: real images shown before it.
        knob: what was changed: batch_size, loader_threads and so on.
        value: the new value; `was` the old one.
        policy: who decided; judge for undoing.
        expected_gain: share of the objective.
        outcome: done; observed, which changes nothing; or failed, also with its session, because of `why`.
        verdict: of the judge: kept, undone, or dropped if the run resumed from before it; empty without one.
        brought: the judge's reason.
    """

    at: str
    images: int
    knob: str
    value: int | float | str
    was: int | float | str
    policy: str
    reason: str
    expected_gain: float
    undone_if: str = ""
    outcome: Literal["done", "observed", "failed"]
    why: str = ""
    verdict: Literal["", "kept", "undone", "dropped"] = ""
    brought: str = ""

    @property
    def fate(self) -> Fate:
        """The outcome in one word."""
        if self.outcome != "done":
            return self.outcome
        return self.verdict or ("undoing" if self.policy == JUDGE else "unjudged")

    @property
    def sentence(self) -> str:
        """The decision in one sentence, without its time."""
        words = self.brought or self.why
        fate = "" if self.fate == "undoing" else f"; {self.fate}{f': {words}' if words else ''}"
        return f"{self.knob} {self.was} to {self.value}, by {self.policy}: {self.reason}{fate}"


def decisions(lines: Iterable[Line]) -> list[DecisionRecord]:
    """The decisions in a log, in order."""
    names = DecisionRecord.model_fields.keys() - {"at", "verdict", "brought"}
    found, sessions = list[DecisionRecord](), list[int]()
    for line in lines:
        match line.get("event"):
            case "decision":
                values = {name: line[name] for name in names if name in line}
                made = DecisionRecord.model_validate({**values, "at": iso(line["time"])})
                if made.fate == "undoing":
                    why = made.reason.removeprefix(f"undoes {made.knob} {made.was}: ")
                    _judge(found, made.knob, made.was, "undone", why)
                found.append(made)
                sessions.append(line["session"])
            case "decision-kept":
                _judge(found, line["knob"], line["value"], "kept", line["why"])
            case "decision-fatal":
                _mark_failed(found, sessions, line)
            case "resume":
                lost = {"verdict": "dropped", "brought": f"the run resumed from {line['images']:,} images"}
                found = [
                    each.model_copy(update=lost) if each.outcome == "done" and each.images > line["images"] else each
                    for each in found
                ]
            case _:
                pass
    return found


def _mark_failed(found: list[DecisionRecord], sessions: Sequence[int], line: Line) -> None:
    identity = line["of_session"], line["of_images"], line["knob"], line["value"]
    for place, (session, each) in enumerate(zip(sessions, found, strict=True)):
        if (session, each.images, each.knob, each.value) == identity and each.outcome == "done":
            lost = {"outcome": "failed", "why": line["why"], "verdict": "", "brought": ""}
            found[place] = each.model_copy(update=lost)


def _judge(found: list[DecisionRecord], knob: str, value: object, verdict: str, brought: str) -> None:
    for place, each in reversed(list(enumerate(found))):
        if (each.knob, each.value) == (knob, value) and each.fate in ("unjudged", "kept", "failed"):
            if each.fate != "failed":
                found[place] = each.model_copy(update={"verdict": verdict, "brought": brought})
            return
