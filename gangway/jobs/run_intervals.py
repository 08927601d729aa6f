"""When a job was on nodes, and on how many: by this its hours are counted, and its share of a bill. What runs it keeps
it in its folder, images/templates/job/slurm-batch.sh in the same form.

FOLDER/<id>/stretches     lines of BEGAN ENDED NODES, in ms since 1970
FOLDER/<id>/on-nodes      BEGAN NODES LENGTH while it runs, LENGTH in ms, written every few seconds: so far came who was
                          killed. Without LENGTH the file's time says so, which Slurm's batch script sets to BEGAN and
                          that length

The wall clock says when a stretch began. How long it was is measured with a clock that cannot jump and stands still
while the machine sleeps, so ENDED is BEGAN and that length.
"""

import time
from collections.abc import Sequence
from datetime import UTC, datetime

from gangway.jobs.base import Stretch
from gangway.jobs.job_folder import JobFolder, OwnJobFolder, UnreadableError

_STRETCHES, _ON_NODES = "stretches", "on-nodes"
_BYTES = 64
"""Of ON_NODES, always: what it says next takes no more room."""


class RunningStretch:
    """One that this process sees to: it is on nodes from now on. OSError."""

    def __init__(self, folder: OwnJobFolder, nodes: int) -> None:
        self._folder, self._nodes = folder, nodes
        self._began_ms, self._started_ns = time.time_ns() // 1_000_000, time.monotonic_ns()
        folder.write(_ON_NODES, self._line())

    def update(self) -> None:
        """Again and again, from its beginning to its end. OSError: it was not written, this time."""
        self._folder.overwrite(_ON_NODES, self._line())

    def _line(self) -> bytes:
        length_ms = (time.monotonic_ns() - self._started_ns) // 1_000_000
        return f"{self._began_ms} {self._nodes} {length_ms}".ljust(_BYTES - 1).encode() + b"\n"


def end_stretch(folder: OwnJobFolder) -> None:
    """It is on no nodes any more, since that was last said. Nothing, where none has begun. OSError: it could not be
    written, and can be tried again. UnreadableError.
    """
    try:
        if (found := _on_nodes(folder)) is None:
            return
        before = _text(folder, _STRETCHES)
    except ValueError as error:
        raise _no_stretches(folder, _ON_NODES, error) from None
    began, nodes, length = found
    line = f"{began} {began + length} {nodes}\n"
    # Whole or not at all, and once: a full disk or a kill may come between any two steps.
    if not before.endswith(line):
        folder.write(_STRETCHES, (before + line).encode())
    folder.remove(_ON_NODES)


def get_run_intervals(folder: JobFolder, *, runs: bool) -> tuple[Stretch, ...]:
    """All of a job's, the earliest first. `runs`: whether one that has not ended goes on; else it ended when it was
    last said to go on. UnreadableError: somebody else has written there.
    """
    try:
        found = [_stretch(*map(int, line.split())) for line in _text(folder, _STRETCHES).splitlines()]
        last = _on_nodes(folder)
        if last is not None:
            began, nodes, length = last
            found.append(_stretch(began, began + length, nodes))
    except (ValueError, TypeError, OverflowError, OSError) as error:
        raise _no_stretches(folder, _STRETCHES, error) from None
    if last is not None and runs:
        found[-1] = Stretch(found[-1].start, None, nodes, so_far_sec=length / 1000)
    return tuple(found)


def used_sec(stretches: Sequence[Stretch], now: datetime) -> float:
    """How long it was on nodes, however many."""
    return sum((each.until(now) - each.start).total_seconds() for each in stretches)


def _on_nodes(folder: JobFolder) -> tuple[int, int, int] | None:
    """BEGAN, NODES and LENGTH. ValueError: it says something else."""
    try:
        began, nodes, *length = map(int, folder.read(_ON_NODES).split())
        if len(length) > 1:
            raise ValueError("more than three numbers")
        said = length[0] if length else round(folder.mtime(_ON_NODES) * 1000) - began
        return began, nodes, max(0, said)
    except FileNotFoundError:
        return None


def _text(folder: JobFolder, name: str) -> str:
    try:
        return folder.read(name).decode()
    except FileNotFoundError:
        return ""


def _no_stretches(folder: JobFolder, name: str, error: Exception) -> UnreadableError:
    path = folder.path / name
    return UnreadableError(str(path), f"no stretches of a job: {error}", fix=f"move {path} aside")


def _stretch(began_ms: int, ended_ms: int, nodes: int) -> Stretch:
    return Stretch(_time(began_ms), _time(ended_ms), nodes)


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
