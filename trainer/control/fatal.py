"""Fatal changes, pure: the log has the start of a change, and its session ended before an interval with it passed.

A session that ended for another reason does not count. Later sessions read this module's result and never repeat such a
change.
"""

import builtins
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from gangway.trainer.config.values.control import JUDGE
from gangway.trainer.control.interval import Decision, Value
from gangway.trainer.control.watch import get_decision, training_sec
from gangway.trainer.records.stats_log import Line

BEGUN = "decision-begun"  # The event before a decision is applied, as the session may not live to write the next one
FATAL = "decision-fatal"  # The event with which a later session reports a fatal change, once
_KILLED = "it says nothing more, as when it is killed"
_OWN_ERRORS = ("TrainerError", "UnhealthyError", "InUseError")
"""Of input, data, disk and checkpoints. A LoneError is not one: a step ran out of memory."""
_DIVERGED = "is no longer a finite number"
_LOST_PEERS = ("DistBackendError", "DistNetworkError", "DistStoreError")


class Fatal(NamedTuple):
    """One fatal change."""

    session: int  # that made it, after `images`
    images: int
    decision: Decision
    why: str  # the last error of the session that it ended
    is_trained: bool = False  # whether the run later trained with that value for an interval
    is_reported: bool = False  # whether the log has its `FATAL` event
    known_from: int = 0  # images at the start of the first session after it

    @property
    def limit(self) -> tuple[str, Value, Value]:
        """The knob, its old value, and the value that it and anything beyond never take again."""
        return self.decision.knob, self.decision.was, self.decision.value

    @property
    def reason(self) -> str:
        """The reason in words."""
        return f"the session that trained with it ended before an interval of it did: {self.why}"

    def since(self, session: Sequence[Line], interval_sec: float) -> "Fatal":
        """Returns it updated by a later session's lines."""
        made, trial, trained = (self.session, self.images), _Trial(self), False
        is_reported = any(
            line.get("event") == FATAL and (line["of_session"], line["of_images"]) == made for line in session
        )  # fmt: skip
        for line in session:
            if line.get("event") is None and "knobs" in line:
                trained = trained or trial.has_lasted(line, interval_sec)
                trial = trial.after(line) or _Trial(self)
        return self._replace(is_trained=self.is_trained or trained, is_reported=self.is_reported or is_reported)


class _Trial(NamedTuple):
    fatal: Fatal
    begun: Line | None = None  # the line at which its interval starts in this session
    is_spared: bool = False  # whether the session ended for another reason, so that the next one continues the trial

    def matches(self, knob: str, value: object) -> bool:
        return (self.fatal.decision.knob, self.fatal.decision.value) == (knob, value)

    def after(self, line: Line) -> "_Trial | None":
        knob = self.fatal.decision.knob
        if not self.matches(knob, line["knobs"].get(knob)):
            return None
        return self._replace(begun=self.begun or line)

    def has_lasted(self, line: Line, interval_sec: float) -> bool:
        return (
            self.after(line) is not None
            and self.begun is not None
            and training_sec(self.begun, line) >= interval_sec
        )  # fmt: skip

    def after_error(self, why: str) -> "_Trial":
        if not is_possible_cause(why):
            return self._replace(is_spared=True)
        return self._replace(fatal=self.fatal._replace(why=why))


def fatal_changes(lines: Iterable[Line], interval_sec: float) -> list[Fatal]:
    """Returns a log's fatal changes in order, without its last session, which may still run.

    `interval_sec` counts until a session's own controller records another. A session that was killed by chance just
    after a change looks the same; giving up that change costs less than a run that never continues. After an orderly
    end, or an unrelated error, the next session continues the trial.
    """
    found = list[Fatal]()
    trial: _Trial | None = None
    for _, group in groupby(lines, key=lambda line: line["session"]):
        session = list(group)
        if trial is not None and not trial.is_spared:
            found.append(trial.fatal._replace(known_from=session[0]["images"]))
            trial = None
        elif trial is not None:
            goes_on = session[0]["images"] >= trial.fatal.images  # or it begins before the change
            trial = trial._replace(begun=None, is_spared=False) if goes_on else None
        own: Mapping[str, float] = next((line["settings"] for line in session if line.get("event") == "controller"), {})
        interval_sec = own.get("interval_sec", interval_sec)
        found = [each.since(session, interval_sec) for each in found]
        trial = _unfinished_trial(session, trial, interval_sec)
    return found


def _unfinished_trial(session: Sequence[Line], trial: _Trial | None, interval_sec: float) -> _Trial | None:
    last: Line | None = None
    for line in session:
        event = line.get("event")
        if event == BEGUN:
            made = get_decision(line)
            fatal = Fatal(line["session"], line["images"], made, _KILLED)
            trial = None if made.policy == JUDGE or takes_less(made) else _Trial(fatal, last)
        elif event is None and "knobs" in line:
            last = line
            if trial is not None:
                trial = None if trial.has_lasted(line, interval_sec) else trial.after(line)
        elif trial is not None:
            trial = _after_event(trial, line)
    return trial


def _after_event(trial: _Trial, line: Line) -> _Trial | None:
    match line.get("event"):
        case "failed":
            return trial if trial.is_spared else trial.after_error(line["why"])
        case "interrupt" | "done":
            return trial._replace(is_spared=True)
        case "decision" if line["outcome"] == "failed" and trial.matches(line["knob"], line["value"]):
            return None
        case "decision-kept" if trial.matches(line["knob"], line["value"]):
            return None
        case _:
            return trial


def takes_less(made: Decision) -> bool:
    """Whether it lowers the batch or the images at once, which is never fatal. `batch_gpu` 0 is the whole share."""
    if made.knob not in ("batch_size", "batch_gpu"):
        return False
    return (float(made.value) or math.inf) < (float(made.was) or math.inf)


def is_possible_cause(why: str) -> bool:
    """Whether a change may have ended the session, by its error: not input, data, disk, lost workers or Ctrl-C."""
    _, of_another, own_error = why.partition("so all stop: ")  # a worker reports the one that failed
    kind, _, message = (own_error if of_another else why).partition(":")
    kind = kind.rpartition(".")[2].strip()
    if kind in _OWN_ERRORS:
        return _DIVERGED in message
    known = getattr(builtins, kind, None)
    if isinstance(known, type) and issubclass(known, OSError):
        return "[Errno 12]" in message  # no memory for a thread, or a process
    if isinstance(known, type) and issubclass(known, BaseException) and not issubclass(known, Exception):
        return False
    return kind not in _LOST_PEERS and "by peer" not in message


def to_undo(fatal: Sequence[Fatal], decided: Mapping[str, Value]) -> list[Decision]:
    """Returns the decisions that undo fatal changes kept in a checkpoint, unless trained with since then."""
    found = dict[str, Decision]()
    for each in fatal:
        made = each.decision
        if not each.is_trained and decided.get(made.knob) == made.value:
            reason = f"undoes {made.knob} {made.value}: {each.reason}"
            found[made.knob] = Decision(made.knob, made.was, made.value, JUDGE, reason, 0.0, "nothing: it is as it was")
    return list(found.values())
