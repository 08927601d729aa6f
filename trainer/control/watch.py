"""What statistics lines say to a controller: intervals, while a run trains and from its log, and fatal changes.

A change is fatal if the log has its start, and its session ended before an interval with it passed. Later sessions
never repeat it.
"""

import builtins
import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from gangway.trainer.config.values.control import JUDGE
from gangway.trainer.config.values.metric_names import FD_ENL0, of_frames
from gangway.trainer.control.interval import Decision, Interval, Knobs, Value
from gangway.trainer.records.stats_log import Line

GUARDS = (FD_ENL0, of_frames(FD_ENL0))
"""Values that need no download and that fall as a generator gets better: of pictures, and of clips. A run has one."""
# Of a session, that intervals are differences of: they only grow.
_SUMS = (
    *("metrics_sec", "telemetry_sec", "loader_stall_sec", "checkpoint_stall_sec", "allreduce_wait_sec"),
    "energy_joules",
)


class Watch:
    """Groups a run's lines until they last `interval_sec`, from a session's first line on, as earlier steps warm up."""

    def __init__(self, interval_sec: float) -> None:
        self._interval_sec = interval_sec
        self._lines: list[Line] = []
        self._guard: float | None = None

    def restart(self) -> None:
        """Starts another interval, for another session or other knobs."""
        self._lines = []

    def changed(self) -> None:
        """Starts another interval at the last line, as knobs changed."""
        self._lines = self._lines[-1:]

    def quality(self, record: Mapping[str, Any]) -> None:
        """Takes a metric's record."""
        value = record.get("trained", {}).get("value")
        if record.get("name") in GUARDS and isinstance(value, int | float):
            self._guard = float(value)

    def see(self, line: Line) -> Interval | None:
        """Takes a line; returns the interval that it ends, or None."""
        self._lines.append(line)
        if len(self._lines) == 1:
            return None
        is_later = line["wall_sec"] > self._lines[-2]["wall_sec"]
        if is_later and training_sec(self._lines[0], line) < self._interval_sec:
            return None
        found = interval(self._lines, self._guard)
        self._lines, self._guard = [line], None
        return found


def interval(lines: Sequence[Line], guard: float | None = None) -> Interval:
    """Returns the interval from the first line to the last, at least two."""
    first, last, new = lines[0], lines[-1], lines[1:]
    seconds = training_sec(first, last)
    per_sec = 1 / seconds if seconds > 0 else 0.0

    def share(name: str) -> float:
        grown: float = last[name] - first[name]
        return grown * per_sec

    def known(name: str) -> list[float]:
        return [line[name] for line in new if line.get(name) is not None]

    def mean(name: str) -> float | None:
        values = known(name)
        return math.fsum(values) / len(values) if values else None

    waited = _grown(first, last, "allreduce_wait_sec")
    return Interval(
        images=last["images"],
        seconds=seconds if per_sec else 0.0,  # Sums over a run stand, whatever one clock has shown.
        images_per_sec=(last["images"] - first["images"]) * per_sec,
        knobs=Knobs(**last["knobs"]),
        workers=last["world_size"],
        resolution=last.get("resolution", 0),
        phase_sec=last.get("phase_sec") or {},
        loader_share=share("loader_stall_sec"),
        allreduce_share=None if waited is None else waited * per_sec,
        checkpoint_share=share("checkpoint_stall_sec"),
        # Of a trainer that did not say it: torch has a figure of every GPU's memory, and of a CPU none.
        on_cpu=last.get("on_cpu", last.get("gpu_memory_share") is None),
        device_use=mean("gpu_utilisation"),
        device_memory_share=max(known("gpu_memory_share"), default=None),
        cpu_use=mean("cpu_utilisation") or 0.0,
        cpu_wait_share=mean("cpu_wait_share"),
        neighbour_cores=mean("neighbour_cores"),
        cores=last.get("cores", 1),
        host_memory_share=max(known("host_memory_share"), default=None),
        watts=_watts(first, last),
        noise_scale=last.get("noise_scale"),
        usd_per_hour=last.get("usd_per_hour"),
        g_per_kwh=last.get("g_per_kwh"),
        guard=guard,
        told=tuple(dict.fromkeys(_troubles(lines))),
    )


def get_history(
    lines: Iterable[Line],
    interval_sec: float,
    images: float = math.inf,
    failed: Collection[tuple[int, int]] = (),
) -> list[Interval]:
    """Returns the intervals of a log, up to `images`; decisions in `failed` (session, images) count as failed."""
    watch, history, session = Watch(interval_sec), list[Interval](), None
    for line in lines:
        if line.get("session") != session:
            session = line.get("session")
            watch.restart()
        match line.get("event"):
            case None if "knobs" in line and line["images"] <= images:
                found = watch.see(line)
                history += [] if found is None else [found]
            case "resume":
                history = [each for each in history if each.images <= line["images"]]
            case "quality" if line["images"] <= images:
                watch.quality(line["quality"])
            case "decision" if line["images"] <= images and history and line["outcome"] != "observed":
                is_failed = line["outcome"] == "failed" or (line["session"], line["images"]) in failed
                history[-1] = history[-1].ended_by(_get_decision(line), failed=is_failed)
                watch.changed()
            case _:
                pass
    return history


def _get_decision(line: Line) -> Decision:
    return Decision(*(line[name] for name in Decision._fields))


def _watts(first: Line, last: Line) -> float | None:
    """Returns None where a device has neither meter nor model, as the sum would be incomplete."""
    joules, wall_sec = _grown(first, last, "energy_joules"), last["wall_sec"] - first["wall_sec"]
    absent = any(reading[0] is None for reading in last["energy"].values())
    return None if joules is None or absent or wall_sec <= 0 else joules / wall_sec


def training_sec(first: Line, last: Line) -> float:
    """Returns the time between two lines of a session without metrics, sample grids and statistics."""
    spent = [line["wall_sec"] - line["metrics_sec"] - line["telemetry_sec"] for line in (first, last)]
    return float(spent[1] - spent[0])


def _troubles(lines: Sequence[Line]) -> Iterable[str]:
    for before, line in itertools.pairwise(lines):
        if line["wall_sec"] <= before["wall_sec"]:
            yield f"the clock went from {before['wall_sec']:.1f} s to {line['wall_sec']:.1f} s"
        if line["images"] <= before["images"]:
            yield f"images went from {before['images']:,} to {line['images']:,}"
        for name in _SUMS:
            if (_grown(before, line, name) or 0.0) < 0:
                yield f"{name} went from {before[name]:g} to {line[name]:g}"
    figures = ((*line.items(), *(line.get("phase_sec") or {}).items()) for line in lines)
    for name, value in itertools.chain.from_iterable(figures):
        if not isinstance(value, int | float):
            continue
        if not math.isfinite(value):
            yield f"{name} is {value}"
        elif name.endswith(("_sec", "_utilisation", "_share")) and value < 0:
            yield f"{name} is {value:g}, below 0"
    seconds = training_sec(lines[0], lines[-1])
    if seconds <= 0:
        yield f"the steps have taken {seconds:g} s"


def _grown(first: Line, last: Line, name: str) -> float | None:
    before, after = first.get(name), last.get(name)
    return None if before is None or after is None else after - before


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
            made = _get_decision(line)
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
            if not trial.is_spared and is_possible_cause(line["why"]):
                return trial._replace(fatal=trial.fatal._replace(why=line["why"]))
            return trial._replace(is_spared=True)
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
            found[made.knob] = made.undoing(each.reason)
    return list(found.values())
