"""Finds hanging workers of this node, saves the evidence and kills them: collectives would wait for ten minutes."""

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

from gangway.trainer.core.console import announce
from gangway.trainer.core.heartbeat import STACKS_SIGNAL, WATCH_VARIABLE, Beat, ask_for_evidence, withdraw_request

HANGS_FOLDER = "hangs"

_TIMES_LONGEST = 10.0
_LEAST_SEC = 180.0  # Shorter pauses come from storage, network or host, and cost less than a restart
_MOST_SEC = 1800.0
"""Short enough that the failures of a job that keeps hanging fall into one window (gangway.trainer.launch.failures)."""

_FIRST_STEPS = 20
_FIRST_STEP_SEC = 1800.0  # They compile

_STOPPED_SEC = 60.0  # For a process that a signal has stopped: it makes no progress until it is continued

_COLLECTIVES_KEPT = 2000
_STOPPED = ("T", "t")
_SURVIVES_SEC = 60.0
_POLL_SEC = 0.5
_LONGEST_POLL_SEC = 2.0
_EVIDENCE_SEC = 5.0


@dataclass(frozen=True)
class StepBound:
    """How long a step may take before it counts as hanging, learned from the steps of this job on this node."""

    fixed_sec: float | None = None  # the user's bound; None to learn
    longest_sec: float = 0.0  # of the steps so far, without the first ones of each start
    images: int = 0  # the most that the run has reached
    hangs: int = 0  # since `images` last grew: each doubles the bound, up to half an hour

    def after_steps(self, mean_sec: float, steps: int, images: int) -> "StepBound":
        """Returns the bound after steps of `mean_sec` each, up to the worker's `steps`th."""
        longest = max(self.longest_sec, mean_sec) if steps > _FIRST_STEPS else self.longest_sec
        further = images > self.images
        return replace(self, longest_sec=longest, images=max(images, self.images), hangs=0 if further else self.hangs)

    def after_hang(self) -> "StepBound":
        """Returns the bound after another hang."""
        return replace(self, hangs=self.hangs + 1)

    def get_bound(self, beat: Beat, state: str) -> tuple[float, str]:
        """Returns the longest silence after a beat in seconds, and its reason; `state` as in /proc/PID/stat."""
        bound = self._work_bound(beat)
        return min(bound, (_STOPPED_SEC, "of a process that a signal has stopped")) if state in _STOPPED else bound

    def _work_bound(self, beat: Beat) -> tuple[float, str]:
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
class _WatchedWorker:
    """A worker's last beat, and the silence since, counted only while this process was awake (Ctrl-Z, suspend)."""

    beat: Beat
    silent_sec: float = 0.0


class Watchdog(threading.Thread):
    """Watches the workers with beats in `folder` and kills all once one is silent; keeps evidence in `run_dir`."""

    def __init__(self, folder: Path, run_dir: Path | None, fixed_sec: float | None = None) -> None:
        super().__init__(name="watchdog", daemon=True)
        self._folder, self._run_dir = folder, run_dir
        self._bound = StepBound(fixed_sec)
        self._workers: dict[Path, _WatchedWorker] = {}
        self._paused, self._closed = threading.Event(), threading.Event()
        self._hung = False
        self._killed: dict[int, float] = {}

    @property
    def hangs(self) -> int:
        """Hangs in a row without progress between them."""
        return self._bound.hangs

    def consume_hang(self) -> bool:
        """Whether the watchdog killed the workers that have just ended; resets it."""
        hung, self._hung = self._hung, False
        return hung

    def pause(self) -> None:
        """Stops killing: workers that were signalled to stop have another deadline."""
        self._paused.set()

    def close(self) -> None:
        """Ends the thread."""
        self._closed.set()
        self.join()

    def run(self) -> None:
        """The thread's body; `start` calls it."""
        before = time.monotonic()
        while not self._closed.wait(_POLL_SEC):
            now = time.monotonic()
            self._read_beats(min(now - before, _LONGEST_POLL_SEC))
            before = now
            self._report_survivors(now)
            for worker in self._workers.values():
                if worker.beat.pid in self._killed:  # once is enough: SIGKILL stays pending
                    continue
                bound_sec, why = self._bound.get_bound(worker.beat, _state(worker.beat.pid))
                if worker.silent_sec > bound_sec and not self._paused.is_set():
                    self._kill_all(worker, bound_sec, why)
                    break

    def _read_beats(self, awake_sec: float) -> None:
        previous, self._workers = self._workers, {}
        for path in sorted(self._folder.glob("beat-*")):
            beat, last = Beat.read(path), previous.get(path)
            if beat is None or not _is_alive(beat):
                continue
            if last is None or last.beat.pid != beat.pid:
                self._workers[path] = _WatchedWorker(beat)
            elif beat == last.beat:
                self._workers[path] = _WatchedWorker(beat, last.silent_sec + awake_sec)
            else:
                self._workers[path] = _WatchedWorker(beat)
                steps = beat.steps - last.beat.steps
                if steps > 0 and last.beat.training:
                    took_sec = min(beat.at_sec - last.beat.at_sec, last.silent_sec + awake_sec)
                    self._bound = self._bound.after_steps(took_sec / steps, beat.steps, beat.images)

    def _kill_all(self, silent: _WatchedWorker, bound_sec: float, why: str) -> None:
        beats = [worker.beat for worker in self._workers.values()]
        stopped = [beat.rank for beat in beats if _state(beat.pid) in _STOPPED]
        announce(
            f"no sign of life of worker {silent.beat.rank} for {silent.silent_sec:.0f} s; the bound is {bound_sec:.0f} "
            f"s ({why})" + (f"; stopped by a signal: worker {', '.join(map(str, stopped))}" if stopped else "")
        )
        # From here on every worker's end counts as the hang's, even where peers' launchers were faster.
        self._hung, self._bound = True, self._bound.after_hang()
        self._save_evidence(stopped, {"silent_rank": silent.beat.rank, "bound_sec": bound_sec, "bound": why})
        announce("this node's workers are ended, and the job meets anew")
        for beat in filter(_is_alive, beats):
            with suppress(ProcessLookupError):
                os.kill(beat.pid, signal.SIGKILL)
            self._killed[beat.pid] = time.monotonic()
        withdraw_request(self._folder)

    def _report_survivors(self, now: float) -> None:
        here = {worker.beat.pid for worker in self._workers.values()}
        self._killed = {pid: at for pid, at in self._killed.items() if pid in here}
        for worker in self._workers.values():
            pid = worker.beat.pid
            if now - self._killed.get(pid, math.inf) > _SURVIVES_SEC:
                self._killed[pid] = math.inf
                announce(
                    f"worker {worker.beat.rank} (process {pid}, state {_state(pid)}) is still there, "
                    f"{_SURVIVES_SEC:.0f} s after SIGKILL: the kernel holds it, as a stuck driver does; this machine "
                    "has to start anew"
                )

    def _save_evidence(self, stopped: list[int], facts: dict[str, float | str | int]) -> None:
        now = time.monotonic()
        facts = {**facts, "host": platform.node(), "time": datetime.now(UTC).isoformat(timespec="seconds")}
        workers: list[dict[str, Any]] = [
            {
                "rank": worker.beat.rank,
                "pid": worker.beat.pid,
                "steps": worker.beat.steps,
                "images": worker.beat.images,
                "training": worker.beat.training,
                "silent_sec": round(worker.silent_sec, 1),
                "state": _state(worker.beat.pid),
            }
            for worker in self._workers.values()
        ]
        ask_for_evidence(self._folder)
        answering = [worker.beat for worker in self._workers.values() if worker.beat.rank not in stopped]
        for beat in filter(_is_alive, answering):
            with suppress(ProcessLookupError):
                os.kill(beat.pid, STACKS_SIGNAL)
        while time.monotonic() < now + _EVIDENCE_SEC and any(
            _is_alive(beat) and not (self._folder / f"collectives-{beat.rank}.json").exists() for beat in answering
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
        except OSError as error:  # such as a full disk: no reason to let the job hang
            announce(f"the evidence could not be kept: {error}")
        else:
            announce(f"its evidence is in {target}: hang.json, stacks and last collectives of each worker")


def watch_workers(folder: Path, run_dir: Path | None, fixed_sec: float | None) -> Watchdog:
    """Starts a watchdog, and has the workers that start from now on write beats and record their collectives."""
    watchdog = Watchdog(folder, run_dir, fixed_sec)
    if fixed_sec != math.inf:
        os.environ[WATCH_VARIABLE] = str(folder)
        os.environ.setdefault("TORCH_FR_BUFFER_SIZE", str(_COLLECTIVES_KEPT))
    watchdog.start()
    return watchdog


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []


def _state(pid: int) -> str:
    return (_stat(pid) or [""])[0]


def _is_alive(beat: Beat) -> bool:
    fields = _stat(beat.pid)
    return len(fields) > 1 and fields[0] not in ("Z", "X") and fields[1] == str(os.getpid())
