"""When a job was on nodes, and on how many: by this its hours are counted, and its share of a bill. What runs it keeps
it in its folder, images/templates/job/slurm-batch.sh in the same form.

FOLDER/<id>/stretches     lines of BEGAN ENDED NODES, in ms since 1970
FOLDER/<id>/on-nodes      BEGAN NODES while it runs, touched every few seconds: so far came who was killed
"""

import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from stacks.engines.base import Stretch, UnreadableError

_STRETCHES, _ON_NODES = "stretches", "on-nodes"


def begin_stretch(folder: Path, nodes: int) -> None:
    """It is on nodes from now on."""
    whole = folder / f"{_ON_NODES}.new"  # whoever asks for the job meanwhile finds all of it or none
    whole.write_text(f"{time.time_ns() // 1_000_000} {nodes}\n")
    whole.replace(folder / _ON_NODES)


def still_on_nodes(folder: Path) -> None:
    """Said again and again, from the beginning of a stretch to its end. OSError: it was not, this time."""
    now = time.time_ns()  # the file system's own clock may be some ms behind
    os.utime(folder / _ON_NODES, ns=(now, now))


def end_stretch(folder: Path) -> None:
    """It is on no nodes any more, since it was last said that it is. Nothing, where none has begun.
    OSError: it could not be written, and can be tried again. UnreadableError.
    """
    try:
        if (found := _on_nodes(folder)) is None:
            return
    except ValueError as error:
        raise _no_stretches(folder / _ON_NODES, error) from None
    began, nodes, last_said = found
    path = folder / _STRETCHES
    before = path.read_text() if path.exists() else ""
    line = f"{began} {max(began, last_said)} {nodes}\n"
    # Whole or not at all, and once: a full disk or a kill may come between any two steps.
    if not before.endswith(line):
        whole = folder / f"{_STRETCHES}.new"
        whole.write_text(before + line)
        whole.replace(path)
    (folder / _ON_NODES).unlink()


def stretches_of(folder: Path, *, runs: bool) -> tuple[Stretch, ...]:
    """All of a job's, the earliest first. `runs`: whether one that has not ended goes on; else it ended when it was
    last said to go on. UnreadableError: somebody else has written there.
    """
    path = folder / _STRETCHES
    try:
        lines = path.read_text().splitlines() if path.exists() else []
        found = [_stretch(*map(int, line.split())) for line in lines]
        last = _on_nodes(folder)
    except (ValueError, TypeError, OverflowError, OSError) as error:
        raise _no_stretches(path, error) from None
    if last is not None:
        began, nodes, last_said = last
        found.append(_stretch(began, None if runs else max(began, last_said), nodes))
    return tuple(found)


def used_sec(stretches: Sequence[Stretch], now: datetime) -> float:
    """How long it was on nodes, however many."""
    return sum(((each.end or now) - each.start).total_seconds() for each in stretches)


def _on_nodes(folder: Path) -> tuple[int, int, int] | None:
    path = folder / _ON_NODES
    try:
        began, nodes = path.read_text().split()
        return int(began), int(nodes), path.stat().st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return None


def _no_stretches(path: Path, error: Exception) -> UnreadableError:
    return UnreadableError(str(path), f"no stretches of a job: {error}", fix=f"remove {path}")


def _stretch(began_ms: int, ended_ms: int | None, nodes: int) -> Stretch:
    return Stretch(_time(began_ms), None if ended_ms is None else _time(ended_ms), nodes)


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
