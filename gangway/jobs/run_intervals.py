"""When a job was on nodes, and on how many: the basis of its hours and its share of a bill. The runner writes it into
the job's folder, images/templates/job/slurm-batch.sh in the same format.

FOLDER/<id>/stretches     lines of BEGAN ENDED NODES, in ms since 1970
FOLDER/<id>/on-nodes      BEGAN NODES LENGTH while it runs, LENGTH in ms, updated every few seconds in case it is
killed. Without LENGTH the file's time counts, which Slurm's batch script sets to BEGAN plus the length

BEGAN is by the wall clock. The length is measured with a monotonic clock that stops while the machine sleeps, so ENDED
is BEGAN plus that length.
"""

import math
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from gangway.jobs.base import RunInterval
from gangway.jobs.job_folder import JobFolder, OwnJobFolder, UnreadableError

_STRETCHES, _ON_NODES = "stretches", "on-nodes"
_BYTES = 64
"""Fixed size of ON_NODES: updates need no disk space."""


class RunningInterval:
    """An interval that this process is running. OSError."""

    def __init__(self, folder: OwnJobFolder, nodes: int) -> None:
        self._folder, self._nodes = folder, nodes
        self._began_ms, self._started_ns = time.time_ns() // 1_000_000, time.monotonic_ns()
        folder.write(_ON_NODES, self._line())

    def update(self) -> None:
        """Call repeatedly until it ends. OSError: not written this time."""
        self._folder.overwrite(_ON_NODES, self._line())

    def _line(self) -> bytes:
        length_ms = (time.monotonic_ns() - self._started_ns) // 1_000_000
        return f"{self._began_ms} {self._nodes} {length_ms}".ljust(_BYTES - 1).encode() + b"\n"


def end_interval(folder: OwnJobFolder) -> None:
    """Ends the interval at its last update, if one is running. OSError: retry. UnreadableError."""
    try:
        if (found := _on_nodes(folder)) is None:
            return
        before = _text(folder, _STRETCHES)
    except ValueError as error:
        raise _no_stretches(folder, _ON_NODES, error) from None
    began, nodes, length = found
    line = f"{began} {began + length} {nodes}\n"
    # Atomic and only once: a full disk or a kill may come between any two steps.
    if not before.endswith(line):
        folder.write(_STRETCHES, (before + line).encode())
    folder.remove(_ON_NODES)


def get_run_intervals(folder: JobFolder, *, runs: bool) -> tuple[RunInterval, ...]:
    """All intervals of a job, earliest first; the last ended at its last update unless it `runs`. UnreadableError."""
    try:
        found = [_stretch(*map(int, line.split())) for line in _text(folder, _STRETCHES).splitlines()]
        last = _on_nodes(folder)
        if last is not None:
            began, nodes, length = last
            found.append(_stretch(began, began + length, nodes))
    except (ValueError, TypeError, OverflowError, OSError) as error:
        raise _no_stretches(folder, _STRETCHES, error) from None
    if last is not None and runs:
        found[-1] = RunInterval(found[-1].start, None, nodes, so_far_sec=length / 1000)
    return tuple(found)


def used_sec(stretches: Sequence[RunInterval], now: datetime) -> float:
    """Total time on nodes, however many."""
    return sum((each.until(now) - each.start).total_seconds() for each in stretches)


def _on_nodes(folder: JobFolder) -> tuple[int, int, int] | None:
    """BEGAN, NODES and LENGTH. ValueError: invalid content."""
    try:
        began, nodes, *length = map(int, folder.read(_ON_NODES).split())
        if len(length) > 1:
            raise ValueError("more than three numbers")
        length_ms = length[0] if length else round(folder.mtime(_ON_NODES) * 1000) - began
        return began, nodes, max(0, length_ms)
    except FileNotFoundError:
        return None


def _text(folder: JobFolder, name: str) -> str:
    try:
        return folder.read(name).decode()
    except FileNotFoundError:
        return ""


def _no_stretches(folder: JobFolder, name: str, error: Exception) -> UnreadableError:
    path = folder.path / name
    return UnreadableError(str(path), f"not the run intervals of a job: {error}", fix=f"move {path} aside")


def _stretch(began_ms: int, ended_ms: int, nodes: int) -> RunInterval:
    return RunInterval(_time(began_ms), _time(ended_ms), nodes)


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


# Elapsed time between commands, by the time since boot: it cannot be set, and counts on while the machine sleeps.
# Stamps of another boot or machine do not compare.

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_stamp() -> str:
    """Boot id and seconds now, rounded down so it is never ahead of the clock."""
    return f"{_boot()} {math.floor(time.clock_gettime(_CLOCK) * 1000) / 1000:.3f}"


def sec_since(stamp: str) -> float | None:
    """None for another boot's stamp or an invalid one."""
    boot, _, seconds = stamp.partition(" ")
    try:
        sec = time.clock_gettime(_CLOCK) - float(seconds)
    except ValueError:
        return None
    return sec if boot == _boot() and sec >= 0 else None


def _boot() -> str:
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return "-"  # no Linux
