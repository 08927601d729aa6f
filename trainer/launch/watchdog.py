"""Finds workers of this node that hang, keeps the evidence in the run's folder and ends them, so that the job meets
anew: a collective whose peer has stopped would wait for ten minutes, and a worker that was stopped for ever.
"""

import json
import math
import os
import platform
import shutil
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainer.core.console import announce
from trainer.core.heartbeat import STACKS_SIGNAL, WATCH_VARIABLE, Beat, ask_for_evidence, withdraw_request

HANGS_FOLDER = "hangs"

_TIMES_LONGEST = 10.0
_LEAST_SEC = 180.0
"""Shorter pauses are a storage's, a network's or a host's, which cost less than a restart."""
_MOST_SEC = 1800.0
"""What hangs again and again is found so soon that its failures still count together (trainer.launch.failures)."""

_FIRST_STEPS = 20
_FIRST_STEP_SEC = 1800.0
"""They compile."""

_STOPPED_SEC = 60.0
"""For a process that a signal has stopped, whatever it was at: nothing goes on until somebody continues it."""

_COLLECTIVES_KEPT = 2000
_STOPPED = ("T", "t")
_SURVIVES_SEC = 60.0
_POLL_SEC = 0.5
_LONGEST_POLL_SEC = 2.0
_EVIDENCE_SEC = 5.0


@dataclass(frozen=True)
class StepBound:
    """How long a step may take before it counts as hanging, learned from the steps of this job on this node.

    Attributes:
        fixed_sec: what somebody asked for, which nothing changes; None to learn.
        longest_sec: of the steps so far, the first ones of each start aside.
        images: of the run, as far as it ever got.
        hangs: found since it last got further than ever: what is slow for good is given twice the time each time, up
            to half an hour.
    """

    fixed_sec: float | None = None
    longest_sec: float = 0.0
    images: int = 0
    hangs: int = 0

    def after_steps(self, mean_sec: float, steps: int, images: int) -> "StepBound":
        """With steps that took `mean_sec` each, up to the worker's `steps`th, at so many images of the run."""
        longest = max(self.longest_sec, mean_sec) if steps > _FIRST_STEPS else self.longest_sec
        further = images > self.images
        return replace(self, longest_sec=longest, images=max(images, self.images), hangs=0 if further else self.hangs)

    def after_hang(self) -> "StepBound":
        """With one hang more."""
        return replace(self, hangs=self.hangs + 1)

    def of(self, beat: Beat, state: str) -> tuple[float, str]:
        """The longest silence after a worker's last beat, in seconds, and where that comes from; `state` as in
        /proc/PID/stat.
        """
        bound = self._of_work(beat)
        return min(bound, (_STOPPED_SEC, "of a process that a signal has stopped")) if state in _STOPPED else bound

    def _of_work(self, beat: Beat) -> tuple[float, str]:
        if not beat.training:  # data may be prepared for hours; a wait for other workers has a bound of its own
            return math.inf, "none"
        if self.fixed_sec is not None:
            return self.fixed_sec, "asked for"
        if not self.longest_sec or beat.steps <= _FIRST_STEPS:
            return _FIRST_STEP_SEC, "of first steps, which may compile"
        seconds = max(_LEAST_SEC, _TIMES_LONGEST * self.longest_sec)
        return max(
            seconds, min(seconds * 2.0**self.hangs, _MOST_SEC)
        ), f"learned: the longest step so far took {self.longest_sec:.3g} s"


@dataclass
class _Heard:
    """A worker's last beat and for how long there was none after it, while this process was awake: after a Ctrl-Z or a
    suspended machine nobody hangs.
    """

    beat: Beat
    silent_sec: float = 0.0


class Watchdog(threading.Thread):
    """Watches the workers whose beats are in `folder`, and ends all of this node's once one is silent for too long.
    Evidence goes to `run_dir`; None keeps none. `fixed_sec`: see StepBound.
    """

    def __init__(self, folder: Path, run_dir: Path | None, fixed_sec: float | None = None) -> None:
        super().__init__(name="watchdog", daemon=True)
        self._folder, self._run_dir = folder, run_dir
        self._bound = StepBound(fixed_sec)
        self._heard: dict[Path, _Heard] = {}
        self._resting, self._closed = threading.Event(), threading.Event()
        self._hung = False
        self._killed: dict[int, float] = {}

    @property
    def hangs(self) -> int:
        """In a row, the run no further than ever between them."""
        return self._bound.hangs

    def took_hang(self) -> bool:
        """Whether the workers that have just ended were ended from here; asked once for each end."""
        hung, self._hung = self._hung, False
        return hung

    def rest(self) -> None:
        """Lets workers that were told to leave take their time: whoever told them has a deadline."""
        self._resting.set()

    def close(self) -> None:
        """Ends the thread."""
        self._closed.set()
        self.join()

    def run(self) -> None:
        """The thread's body; `start` calls it."""
        before = time.monotonic()
        while not self._closed.wait(_POLL_SEC):
            now = time.monotonic()
            self._listen(min(now - before, _LONGEST_POLL_SEC))
            before = now
            self._tell_of_survivors(now)
            for heard in self._heard.values():
                if heard.beat.pid in self._killed:  # once is enough: SIGKILL stays with a process until it ends
                    continue
                bound_sec, why = self._bound.of(heard.beat, _state(heard.beat.pid))
                if heard.silent_sec > bound_sec and not self._resting.is_set():
                    self._end(heard, bound_sec, why)
                    break

    def _listen(self, awake_sec: float) -> None:
        """Takes note of every live worker's beat, `awake_sec` after the last time; the bound learns."""
        heard, self._heard = self._heard, {}
        for path in sorted(self._folder.glob("beat-*")):
            beat, last = Beat.read(path), heard.get(path)
            if beat is None or not _lives(beat):
                continue
            if last is None or last.beat.pid != beat.pid:
                self._heard[path] = _Heard(beat)
            elif beat == last.beat:
                self._heard[path] = _Heard(beat, last.silent_sec + awake_sec)
            else:
                self._heard[path] = _Heard(beat)
                steps = beat.steps - last.beat.steps
                if steps > 0 and last.beat.training:
                    took_sec = min(beat.at_sec - last.beat.at_sec, last.silent_sec + awake_sec)
                    self._bound = self._bound.after_steps(took_sec / steps, beat.steps, beat.images)

    def _end(self, silent: _Heard, bound_sec: float, why: str) -> None:
        beats = [heard.beat for heard in self._heard.values()]
        stopped = [beat.rank for beat in beats if _state(beat.pid) in _STOPPED]
        announce(
            f"no sign of life of worker {silent.beat.rank} for {silent.silent_sec:.0f} s; the bound is {bound_sec:.0f} "
            f"s ({why})" + (f"; stopped by a signal: worker {', '.join(map(str, stopped))}" if stopped else "")
        )
        # Whatever ends a worker from here on, be it that its peers' launchers were faster, is the hang's.
        self._hung, self._bound = True, self._bound.after_hang()
        self._keep_evidence(stopped, {"silent_rank": silent.beat.rank, "bound_sec": bound_sec, "bound": why})
        announce("this node's workers are ended, and the job meets anew")
        for beat in filter(_lives, beats):
            with suppress(ProcessLookupError):
                os.kill(beat.pid, signal.SIGKILL)
            self._killed[beat.pid] = time.monotonic()
        withdraw_request(self._folder)

    def _tell_of_survivors(self, now: float) -> None:
        """Once, of each that SIGKILL has not ended: the kernel, a driver most likely, holds it. Of those that are gone
        nothing is kept, for their numbers may be others' one day.
        """
        here = {heard.beat.pid for heard in self._heard.values()}
        self._killed = {pid: at for pid, at in self._killed.items() if pid in here}
        for heard in self._heard.values():
            pid = heard.beat.pid
            if now - self._killed.get(pid, math.inf) > _SURVIVES_SEC:
                self._killed[pid] = math.inf
                announce(
                    f"worker {heard.beat.rank} (process {pid}, state {_state(pid)}) is still there, {_SURVIVES_SEC:.0f}"
                    " s after SIGKILL: the kernel holds it, as a stuck driver does; this machine has to start anew"
                )

    def _keep_evidence(self, stopped: list[int], facts: dict[str, float | str | int]) -> None:
        """Stacks and last collectives of every worker that still answers, into a folder of their own."""
        now = time.monotonic()
        facts = {**facts, "host": platform.node(), "time": datetime.now(UTC).isoformat(timespec="seconds")}
        workers: list[dict[str, Any]] = [
            {
                "rank": heard.beat.rank,
                "pid": heard.beat.pid,
                "steps": heard.beat.steps,
                "images": heard.beat.images,
                "training": heard.beat.training,
                "silent_sec": round(heard.silent_sec, 1),
                "state": _state(heard.beat.pid),
            }
            for heard in self._heard.values()
        ]
        ask_for_evidence(self._folder)
        answering = [heard.beat for heard in self._heard.values() if heard.beat.rank not in stopped]
        for beat in filter(_lives, answering):
            with suppress(ProcessLookupError):
                os.kill(beat.pid, STACKS_SIGNAL)
        while time.monotonic() < now + _EVIDENCE_SEC and any(
            _lives(beat) and not (self._folder / f"collectives-{beat.rank}.json").exists() for beat in answering
        ):
            time.sleep(_POLL_SEC / 5)
        if self._run_dir is None:
            return
        target = self._run_dir / HANGS_FOLDER / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{platform.node()}"
        try:
            target.mkdir(parents=True)
            (target / "hang.json").write_text(json.dumps({**facts, "workers": workers}, indent=2) + "\n", "utf-8")
            for path in (*self._folder.glob("stacks-*.txt"), *self._folder.glob("collectives-*.json")):
                shutil.move(path, target / path.name)
        except OSError as error:  # a full disk, say: no reason to let the job hang
            announce(f"the evidence could not be kept: {error}")
        else:
            announce(f"its evidence is in {target}: hang.json, stacks and last collectives of each worker")


def watch_workers(folder: Path, run_dir: Path | None, fixed_sec: float | None) -> Watchdog:
    """A watchdog of the workers that are started from here on, which tell it how far they are and record what they last
    said to each other.
    """
    watchdog = Watchdog(folder, run_dir, fixed_sec)
    if fixed_sec != math.inf:
        os.environ[WATCH_VARIABLE] = str(folder)
        os.environ.setdefault("TORCH_FR_BUFFER_SIZE", str(_COLLECTIVES_KEPT))
    watchdog.start()
    return watchdog


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name, which may hold anything; empty for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []


def _state(pid: int) -> str:
    """R, S, D, T (stopped), Z and so on; empty for a process that is gone."""
    return (_stat(pid) or [""])[0]


def _lives(beat: Beat) -> bool:
    """Whether its process lives and was started from here: the number may be another's by now."""
    fields = _stat(beat.pid)
    return len(fields) > 1 and fields[0] not in ("Z", "X") and fields[1] == str(os.getpid())
