"""stats.jsonl, the run's statistics: appended line by line, read back with a count of damaged lines."""

import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from gangway.trainer.core.console import info
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.core.files import read_input
from gangway.trainer.core.regular_files import MOST_BYTES_OF_STATS, open_file

STATS_FILE = "stats.jsonl"
_SESSIONS = range(100_000)  # Valid session numbers: missing ones below the newest are counted one by one
_LISTED = 20
_ALWAYS = frozenset({"images", "time", "session"})
_STATISTICS = frozenset({"loss_g", "loss_d", "grad_norm_g", "grad_norm_d", "energy", "rss_gib", "gpu_gib"})
_BEGINNING = frozenset(
    {"run_id", "world_size", "num_nodes", "backend", "device", "dataset", "context", "code_sha256", "versions"}
)


class SessionClock:
    """The time of day at the session's start plus the time elapsed since then."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        """Seconds since 1970, never decreasing."""
        return self._offset + time.monotonic()


Line = dict[str, Any]

_NEEDED: Mapping[str | None, frozenset[str]] = MappingProxyType(
    {
        None: _STATISTICS,
        "start": _BEGINNING,
        "resume": _BEGINNING,
        "interrupt": frozenset({"cause"}),
        "done": frozenset({"state_sha256"}),
        "failed": frozenset({"why"}),
        "quality": frozenset({"quality"}),
        "choices": frozenset({"choices"}),
        "segment": frozenset({"segment"}),
        "decision": frozenset({"knob", "value", "was", "policy", "reason", "expected_gain", "outcome"}),
        "controller": frozenset({"settings", "machine", "seed"}),
        "decision-begun": frozenset({"knob", "value", "was", "policy", "reason", "expected_gain", "undone_if"}),
        "decision-fatal": frozenset({"knob", "value", "was", "why", "of_session", "of_images"}),
        "decision-kept": frozenset({"knob", "value", "why"}),
        "data-verified": frozenset({"nodes"}),
    }
)
"""Keys that the record reads, by event; a line without them counts as damaged."""


def iso(seconds: float) -> str:
    """Format seconds since 1970 as in records."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


class StatsLog(NamedTuple):
    """The readable lines of a stats.jsonl in order, and the number of others."""

    lines: list[Line]
    unreadable: int

    @property
    def beginnings(self) -> list[Line]:
        """The first line of each session, where readable."""
        return [line for line in self.lines if line.get("event") in ("start", "resume")]

    def losses(self, sessions: int) -> str:
        """What is missing of a run with so many sessions, in words; empty if nothing."""
        begun = {line["session"] for line in self.beginnings}
        lost = [str(number) for number in range(sessions) if number not in begun]
        named = ", ".join(lost[:_LISTED]) + (f" and {len(lost) - _LISTED} more" if len(lost) > _LISTED else "")
        parts = [f"{self.unreadable} unreadable line(s)"] if self.unreadable else []
        return " and ".join([*parts, f"no beginning of session(s) {named}"] if lost else parts)


def read_stats_log(run_dir: Path) -> StatsLog:
    """Read the directory's stats.jsonl; empty if it does not exist (TrainerError: unreadable)."""
    path = run_dir / STATS_FILE
    if not path.exists():
        return StatsLog([], 0)
    content = read_input(path, "move it away; the run goes on without it", most_bytes=MOST_BYTES_OF_STATS)
    texts = content.decode("utf-8", "replace").split("\n")
    lines = [_parse(text) for text in texts if text.strip()]
    return StatsLog([line for line in lines if line is not None], sum(line is None for line in lines))


def _parse(text: str) -> Line | None:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(line, dict) or not all(isinstance(line.get(key), int | float) for key in _ALWAYS):
        return None
    event, session = line.get("event"), line["session"]
    if not isinstance(event, str | None) or not isinstance(session, int) or session not in _SESSIONS:
        return None
    if not isinstance(line.get("knobs", {}), dict):
        return None
    return line if _NEEDED.get(event, frozenset()) <= line.keys() else None


def require_run(run_dir: Path, needs: Sequence[str]) -> None:
    """TrainerError for a directory without a run: it does not exist, or has none of `needs`."""
    if not run_dir.is_dir():
        problem = "is a file, not a run's folder" if run_dir.exists() else "no such folder"
    elif not any((run_dir / name).exists() for name in needs):
        problem = "holds no run"
    else:
        return
    raise TrainerError(
        place="--run-dir",
        problem=problem,
        value=str(run_dir),
        allowed=f"a folder that holds {' or '.join(needs)}",
        fix="name the --run-dir of a run that has begun, or train first",
    )


class StatsWriter:
    """Appends to stats.jsonl, reopened for each line so that other machines see it (TrainerError: not writable)."""

    def __init__(
        self, run_dir: Path, *, echo: bool = False, listeners: Sequence[Callable[[Line], object]] = ()
    ) -> None:
        self._path, self._echo, self._clock = run_dir / STATS_FILE, echo, SessionClock()
        self._listeners = listeners
        self._lock = threading.Lock()  # the thread that saves a checkpoint writes too
        if self._has_half_line():
            self._append("\n")  # a killed session left it; keep it apart from ours

    def write(self, line: Mapping[str, Any]) -> None:
        """Write one line; a missing `time` is the session clock's (TrainerError: disk full or not writable)."""
        with self._lock:
            stamped = {"time": self._clock.now(), **line}
            text = json.dumps(stamped)
            self._append(text + "\n")
            if self._echo:
                info(text)
        for listener in self._listeners:
            listener(stamped)

    def event(self, event: str, images: int, session: int, **details: object) -> None:
        """Write an event line."""
        self.write({"event": event, "images": images, "session": session, **details})

    def _has_half_line(self) -> bool:
        try:
            with open_file(self._path) as file:
                if not file.seek(0, os.SEEK_END):
                    return False
                file.seek(-1, os.SEEK_END)
                return file.read(1) != b"\n"
        except OSError:
            return False  # there is none, or the first line says why it cannot be written

    def _append(self, text: str) -> None:
        try:
            with open_file(self._path, "ab") as file:
                file.write(text.encode())
        except OSError as error:
            raise TrainerError(
                place=str(self._path),
                problem=f"cannot be written: {error.strerror}",
                fix="free some space or choose another --run-dir, then start the same command again",
            ) from error
