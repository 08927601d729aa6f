"""Changes that no session has outlived: a log says that one was about to be made, and the session that trained with it
ended, neither after an interval of it nor for a reason of its own. Such a change is made once: whoever goes on with the
run reads that here. Pure.
"""

import builtins
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from trainer.config.values.control import JUDGE
from trainer.control.interval import Decision, Value
from trainer.control.watch import get_decision, training_sec
from trainer.records.stats_log import Line

BEGUN = "decision-begun"
"""The event that stands in the log before a decision is carried out: what is after it may never come."""
FATAL = "decision-fatal"
"""The event by which a session that goes on says, once, what an earlier one did not outlive."""
_KILLED = "it says nothing more, as when it is killed"
_OWN_ERRORS = ("TrainerError", "UnhealthyError", "InUseError")
"""Of input and surroundings: data, disk, checkpoints. A LoneError is none: a step's memory did not suffice."""
_DIVERGED = "is no longer a finite number"
_LOST_PEERS = ("DistBackendError", "DistNetworkError", "DistStoreError")


class Fatal(NamedTuple):
    """One change.

    Attributes:
        session: that made it, after so many `images` in all.
        why: the last words of the session that it ended: that one, or one that went on with it.
        is_trained: whether the run was trained with that value for an interval afterwards all the same.
        is_told: whether a session has said so in the log.
        known_from: images with which the first session began that knew of it.
    """

    session: int
    images: int
    decision: Decision
    why: str
    is_trained: bool = False
    is_told: bool = False
    known_from: int = 0

    @property
    def limit(self) -> tuple[str, Value, Value]:
        """Its knob, what it was and what it never becomes again, nor anything beyond."""
        return self.decision.knob, self.decision.was, self.decision.value

    @property
    def reason(self) -> str:
        """In words."""
        return f"the session that trained with it ended before an interval of it did: {self.why}"

    def since(self, session: Sequence[Line], interval_sec: float) -> "Fatal":
        """The same with what a later session says of it."""
        made, trial, trained = (self.session, self.images), _Trial(self), False
        told = any(
            line.get("event") == FATAL and (line["of_session"], line["of_images"]) == made for line in session
        )  # fmt: skip
        for line in session:
            if line.get("event") is None and "knobs" in line:
                trained = trained or trial.has_lasted(line, interval_sec)
                trial = trial.seen(line) or _Trial(self)
        return self._replace(is_trained=self.is_trained or trained, is_told=self.is_told or told)


class _Trial(NamedTuple):
    """A change of which no interval is known.

    Attributes:
        begun: the line of statistics that its interval begins with, in the present session.
        is_spared: whether that session has ended for another reason, so that the next one goes on with the trial.
    """

    fatal: Fatal
    begun: Line | None = None
    is_spared: bool = False

    def is_of(self, knob: str, value: object) -> bool:
        """Whether it gave that knob that value."""
        return (self.fatal.decision.knob, self.fatal.decision.value) == (knob, value)

    def seen(self, line: Line) -> "_Trial | None":
        """After a line of statistics; None where that was trained with another value."""
        knob = self.fatal.decision.knob
        if not self.is_of(knob, line["knobs"].get(knob)):
            return None
        return self._replace(begun=self.begun or line)

    def has_lasted(self, line: Line, interval_sec: float) -> bool:
        """Whether a line of statistics ends an interval of it."""
        return (
            self.seen(line) is not None
            and self.begun is not None
            and training_sec(self.begun, line) >= interval_sec
        )  # fmt: skip

    def ended(self, why: str) -> "_Trial":
        """After an error, as the log has it."""
        if not may_come_of_a_change(why):
            return self._replace(is_spared=True)
        return self._replace(fatal=self.fatal._replace(why=why))


def fatal_changes(lines: Iterable[Line], interval_sec: float) -> list[Fatal]:
    """Those of a log, in order; of its last session, which may still run, none. An interval lasts as long as each
    session's own controller says; `interval_sec` where none has said so yet. A session that was killed for another
    reason just then is not told apart from one that its change has killed: the change is left alone, which costs less
    than a run that never goes on. After an orderly end, or an error that is none of the change's, the next session goes
    on with the trial.
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
        trial = _left(session, trial, interval_sec)
    return found


def _left(session: Sequence[Line], trial: _Trial | None, interval_sec: float) -> _Trial | None:
    """The change that a session ends with, and no interval of it; it begins with `trial`, or without one."""
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
                trial = None if trial.has_lasted(line, interval_sec) else trial.seen(line)
        elif trial is not None:
            trial = _told(trial, line)
    return trial


def _told(trial: _Trial, line: Line) -> _Trial | None:
    """After another event of its session; None where it is one no longer."""
    match line.get("event"):
        case "failed":
            return trial if trial.is_spared else trial.ended(line["why"])
        case "interrupt" | "done":
            return trial._replace(is_spared=True)
        case "decision" if line["outcome"] == "failed" and trial.is_of(line["knob"], line["value"]):
            return None
        case "decision-kept" if trial.is_of(line["knob"], line["value"]):
            return None
        case _:
            return trial


def takes_less(made: Decision) -> bool:
    """Whether it is a smaller batch, or fewer images at once: the remedy for want of memory, and never what a session
    dies of. `batch_gpu` 0 is all of a worker's share.
    """
    if made.knob not in ("batch_size", "batch_gpu"):
        return False
    return (float(made.value) or math.inf) < (float(made.was) or math.inf)


def may_come_of_a_change(why: str) -> bool:
    """Whether a session may have ended by what its controller changed, by the error's type and message. What is known
    to come from elsewhere is not: input, data and disk (but for a step's memory and a loss that is no number), other
    workers that are gone, a user's Ctrl-C. Of what nobody knows it is assumed.
    """
    _, of_another, said = why.partition("so all stop: ")  # a worker tells of the one that has failed
    kind, _, message = (said if of_another else why).partition(":")
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
    """What a session has to begin with, where a checkpoint has kept such a change: `decided` are the present values of
    what was decided in the course of the run. What the run's own plan says counts, and so does what the run was trained
    with meanwhile.
    """
    found = dict[str, Decision]()
    for each in fatal:
        made = each.decision
        if not each.is_trained and decided.get(made.knob) == made.value:
            reason = f"undoes {made.knob} {made.value}: {each.reason}"
            found[made.knob] = Decision(made.knob, made.was, made.value, JUDGE, reason, 0.0, "nothing: it is as it was")
    return list(found.values())
