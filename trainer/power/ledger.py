"""What a node's GPUs were set to before this job changed it, on disk, so that somebody else can undo it.

Written whole before the first change and removed after the last is undone; its writer holds a lock on it while it
lives. An unlocked note is therefore a killed run's: the launcher undoes it when its workers are gone, and so does the
next start of any run on the node. A reboot undoes everything.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trainer.host import boot_id
from trainer.metering.nvml import BoardState, load_nvml, put_back

__all__ = ["FOLDER_VARIABLE", "Note", "ledger_folder", "undo_left_over"]

FOLDER_VARIABLE = "GANGWAY_POWER_DIR"
_DEFAULT_FOLDER = "/run/gangway"
_PATTERN = "power-*.json"


def ledger_folder() -> Path:
    """Where a node's notes are: a folder that root alone may write, and that a reboot empties."""
    return Path(os.environ.get(FOLDER_VARIABLE) or _DEFAULT_FOLDER)


class Note(NamedTuple):
    """A note of this process. `handle` holds the lock, which no child carries on."""

    path: Path
    handle: int

    @classmethod
    def write(cls, folder: Path, boards: Sequence[BoardState]) -> "Note":
        """Writes and locks a note (OSError: not writable; then nothing may be changed)."""
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        path = folder / f"power-{os.getpid()}-{time.monotonic_ns()}.json"
        unfinished = path.with_suffix(".partial")
        content = {"boot_id": boot_id(), "gpus": [board._asdict() for board in boards]}
        handle = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX)
            os.write(handle, json.dumps(content).encode())
            os.fsync(handle)
            unfinished.rename(path)
        except OSError:
            os.close(handle)
            unfinished.unlink(missing_ok=True)
            raise
        return cls(path, handle)

    def remove(self) -> None:
        """Everything is undone."""
        self.path.unlink(missing_ok=True)
        os.close(self.handle)


def undo_left_over(folder: Path | None = None, nvml: Any = None) -> list[str]:
    """Undoes what killed runs have left behind on this node; a sentence for each note that was found. `folder` None is
    the node's; `nvml` is pynvml or a fake, None imports it where there is something to undo.
    """
    found = sorted((folder or ledger_folder()).glob(_PATTERN))
    return [sentence for path in found if (sentence := _undo(path, nvml))]


def _undo(path: Path, nvml: Any) -> str:
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        return "" if isinstance(error, FileNotFoundError) else f"{path}: cannot be opened: {error.strerror}"
    try:
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return ""  # its run goes on
        status = os.fstat(handle)
        if not status.st_nlink:
            return ""  # somebody else has just undone it
        if status.st_uid != os.geteuid():
            return f"{path}: is another user's: GPU settings are not restored from it"
        return _restore(path, os.read(handle, status.st_size), nvml)
    finally:
        os.close(handle)


def _restore(path: Path, content: bytes, nvml: Any) -> str:
    try:
        note = json.loads(content)
        boards = [BoardState(**board) for board in note["gpus"]]
        same_boot = note["boot_id"] == boot_id()
    except (ValueError, KeyError, TypeError):
        path.unlink()
        return (
            f"{path}: a damaged note of a killed run; removed. Compare nvidia-smi -q -d POWER,CLOCK with its defaults"
        )
    if not same_boot:
        path.unlink()
        return f"{path}: from before the last boot, which has reset the GPUs; removed"
    troubles = list(_put_back_all(boards, nvml))
    if troubles:
        return f"{path}: a killed run's GPU settings could not be restored: {'; '.join(troubles)}"
    path.unlink()
    return f"restored the GPU settings that a killed run had left: {', '.join(map(BoardState.describe, boards))}"


def _put_back_all(boards: Iterable[BoardState], nvml: Any) -> Iterable[str]:
    try:
        nvml = load_nvml(nvml)
    except Exception as error:  # NVML's own errors, or no pynvml: whatever it is, the note stays for the next start
        yield str(error)
        return
    for board in boards:
        try:
            put_back(nvml, board)
        except nvml.NVMLError as error:
            yield f"{board.uuid}: {error}"
