"""Where a job has moved, recorded in its folder.

FOLDER/<id>/moving        locked by a move in progress; the kernel releases it with its holder
FOLDER/<id>/moved.json    target and progress
FOLDER/<id>/unwanted      the user has cancelled it; a move checks this before it submits the job elsewhere
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace

from gangway.components.core.findings import InputError
from gangway.components.core.whole_files import is_locked, lock_soon
from gangway.jobs.job_folder import JobFolder, OwnJobFolder, UnreadableError

_LOCK, _WAY, _UNWANTED = "moving", "moved.json", "unwanted"


@dataclass(frozen=True)
class _MoveState:
    """`is_stopped`: stopped for a move; `is_gone`: no other target may take it; `job_id`: at the target, after arrival;
    `earlier_targets`: targets of interrupted moves, which may hold copies; `data_bytes`: of its data set, by target.
    """

    to: str
    is_stopped: bool = False
    is_gone: bool = False
    job_id: str = ""
    tried: tuple[str, ...] = ()
    data_bytes: Mapping[str, int] = field(default_factory=dict)


class MoveRecord:
    """The record of a move in progress."""

    def __init__(self, folder: OwnJobFolder, target: str, before: _MoveState | None) -> None:
        tried = () if before is None else tuple(dict.fromkeys([*before.tried, before.to]))
        self._folder = folder
        self._may_have_copy = target in tried
        was = before or _MoveState(target)
        job_id = was.job_id if was.to == target else ""
        self._state = _MoveState(
            target, was.is_stopped, was.is_gone, job_id, tuple(each for each in tried if each != target), was.data_bytes
        )  # fmt: skip

    @property
    def is_stopped(self) -> bool:
        """Whether this move, or an interrupted one before it, has stopped the job."""
        return self._state.is_stopped

    @property
    def is_cancelled(self) -> bool:
        """Whether the user has cancelled the job; no longer possible after `record_copied`."""
        return self._folder.has(_UNWANTED)

    @property
    def may_have_copy(self) -> bool:
        """Whether this or an earlier move may have left a copy at the target."""
        return self._may_have_copy

    @property
    def earlier_targets(self) -> tuple[str, ...]:
        """Targets of earlier interrupted moves, which may hold copies."""
        return self._state.tried

    @property
    def data_bytes(self) -> int:
        """Bytes of its data set sent to the target by this move and interrupted ones before it."""
        return self._state.data_bytes.get(self._state.to, 0)

    def record_copy(self, data_bytes: int) -> None:
        """Records that the target may hold a copy, and that this many more bytes of the data set were sent."""
        sent = {**self._state.data_bytes, self._state.to: self.data_bytes + data_bytes}
        self._write(replace(self._state, data_bytes=sent))
        self._may_have_copy = True

    def record_stopping(self) -> None:
        """Records that the job is being stopped."""
        self._write(replace(self._state, is_stopped=True))

    def record_absence(self) -> None:
        """Records that the job does not run at the target, so it may go elsewhere. InputError: it had arrived there."""
        if self._state.job_id:
            arrived = f"it arrived at {self._state.to} as {self._state.job_id}"
            raise InputError(
                "job", f"{arrived}, which is gone or cannot be read",
                value=self._folder.name, fix="if it no longer runs there, submit it again",
            )  # fmt: skip
        if self._state.is_gone:
            self._write(replace(self._state, is_gone=False))

    def record_end_here(self, *, is_left: bool) -> None:
        """Records that the job is over and moves nowhere. `is_left`: a copy at the target could not be removed."""
        if self.earlier_targets or is_left:  # copies still have to be removed
            self._write(replace(self._state, is_stopped=False, is_gone=False))
        else:
            self._folder.remove(_WAY)

    def record_copied(self) -> None:
        """Records that the job is copied, so only this target may take it."""
        self._write(replace(self._state, is_gone=True))

    def record_arrival(self, job_id: str) -> None:
        """Records the job's id at the target."""
        self._write(replace(self._state, is_stopped=True, is_gone=True, job_id=job_id))

    def forget_copy(self, place: str) -> None:
        """Records that an earlier move's copy is removed."""
        self._write(replace(self._state, tried=tuple(each for each in self.earlier_targets if each != place)))

    def _write(self, state: _MoveState) -> None:
        self._folder.save(_WAY, json.dumps(asdict(state)).encode())
        self._state = state


@contextmanager
def open_move(folder: OwnJobFolder, target: str) -> Iterator[MoveRecord]:
    """Open while the job moves to `target`. InputError: another move is in progress, or the job has moved elsewhere."""
    with folder.append_to(_LOCK) as file:
        if not lock_soon(file):
            raise InputError("job", "another move of it is in progress", value=folder.name, fix="wait for it")
        before = _read(folder)
        if before is not None and before.is_gone and before.to != target:
            raise InputError("job", f"it has moved to {before.to}", value=folder.name, fix=f"--to {before.to}")
        yield MoveRecord(folder, target, before)


def cancel_move(folder: OwnJobFolder) -> None:
    """Stops any move of a cancelled job. InputError: it has moved, or may have started there. OSError: no room."""
    # Write first, then read, as the move does: one of the two sees the other.
    is_first = folder.touch(_UNWANTED)
    moves = _is_moving(folder)  # before reading its progress: it may end meanwhile
    way = _read(folder)
    if way is None or not way.is_gone:
        return
    if not way.job_id and not moves:
        raise InputError(
            "job", f"its move to {way.to} was interrupted, and it may have started there", value=folder.name,
            fix=f"repeat the move, which then ends it; or cancel it there, if `gangway job list --on {way.to}` "
           "shows it",
        )  # fmt: skip
    if is_first:  # keep another cancel's request, which the move may be about to see
        folder.remove(_UNWANTED)
    if not way.job_id:
        raise InputError(
            "job", f"it is moving to {way.to}, and may have started there", value=folder.name,
            fix=f"cancel it there once `gangway job list --on {way.to}` shows it",
        )  # fmt: skip


def _is_moving(folder: JobFolder) -> bool:
    try:
        with folder.open_file(_LOCK) as file:
            return is_locked(file)
    except FileNotFoundError:
        return False


def describe_move(folder: JobFolder) -> str:
    """For a cancelled job, where it moved and as what; empty if no move has taken it. UnreadableError."""
    if (way := _read(folder)) is None or not way.is_stopped or (not way.is_gone and folder.has(_UNWANTED)):
        return ""
    if way.job_id:
        return f"moved to {way.to} as {way.job_id}"
    if _is_moving(folder):
        return f"moving to {way.to}"
    then = "end it" if folder.has(_UNWANTED) else "resume it"
    return f"its move to {way.to} was interrupted: repeat it to {then}"


def _read(folder: JobFolder) -> _MoveState | None:
    path = folder.path / _WAY
    try:
        found = json.loads(folder.read(_WAY))
        return _MoveState(
            str(found["to"]), bool(found["is_stopped"]), bool(found["is_gone"]), str(found["job_id"]),
            tuple(map(str, found["tried"])), {str(to): int(size) for to, size in found.get("data_bytes", {}).items()},
        )  # fmt: skip
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UnreadableError(str(path), f"not the record of a move: {error}", fix=f"move {path} aside") from None
