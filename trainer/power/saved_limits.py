"""NVML calls that change a GPU, and saved settings of a node's GPUs, so that another process can restore them."""

import fcntl
import importlib
import json
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gangway.trainer.core.host import boot_id

_MILLI = 1000
FOLDER_VARIABLE = "GANGWAY_POWER_DIR"
_DEFAULT_FOLDER = "/run/gangway"
_PATTERN = "power-*.json"


class Range(NamedTuple):
    """Bounds of a setting, inclusive."""

    least: int
    most: int


class BoardState(NamedTuple):
    """A GPU's settings before a change, None for unchanged. NVML reports no earlier locks, so undoing unlocks."""

    uuid: str
    limit_mw: int | None
    clocks: bool

    def describe(self) -> str:
        """The settings in words: GPU-1234 to 700 W and unlocked clocks."""
        parts = [f"{self.limit_mw / _MILLI:g} W"] if self.limit_mw is not None else []
        return f"{self.uuid} to {' and '.join([*parts, *(['unlocked clocks'] if self.clocks else [])])}"


class Board:
    """One GPU (NVMLError: not found); `name` is the run's, such as node0/gpu3."""

    def __init__(self, nvml: Any, uuid: str, name: str) -> None:
        self._nvml, self.uuid, self.name = nvml, uuid, name
        self._handle = nvml.nvmlDeviceGetHandleByUUID(uuid)

    def limit_watts(self) -> float:
        """The present power limit."""
        return float(self._nvml.nvmlDeviceGetPowerManagementLimit(self._handle)) / _MILLI

    def limits_watts(self) -> Range:
        """The range of the power limit."""
        least, most = self._nvml.nvmlDeviceGetPowerManagementLimitConstraints(self._handle)
        return Range(-(-int(least) // _MILLI), int(most) // _MILLI)

    def set_limit(self, watts: float) -> None:
        """Set the power limit, to the milliwatt."""
        self._nvml.nvmlDeviceSetPowerManagementLimit(self._handle, round(watts * _MILLI))

    def clocks_mhz(self) -> Range:
        """The range of the graphics clock at the fastest memory clock (NVMLError: unknown)."""
        memory: Sequence[int] = self._nvml.nvmlDeviceGetSupportedMemoryClocks(self._handle)
        clocks: Sequence[int] = (
            self._nvml.nvmlDeviceGetSupportedGraphicsClocks(self._handle, max(memory)) if memory else ()
        )
        if not clocks:
            raise self._nvml.NVMLError(self._nvml.NVML_ERROR_NOT_SUPPORTED)
        return Range(min(clocks), max(clocks))

    def lock_clocks(self, most_mhz: int) -> None:
        """Cap the graphics clock at `most_mhz`; it may still drop."""
        self._nvml.nvmlDeviceSetGpuLockedClocks(self._handle, self.clocks_mhz().least, most_mhz)

    def state(self, *, limit: bool, clocks: bool) -> BoardState:
        """The present settings, to save before a change."""
        now = round(self.limit_watts() * _MILLI) if limit else None
        return BoardState(self.uuid, now, clocks)


def load_nvml(nvml: Any = None) -> Any:
    """The initialised pynvml module, or the given fake. ImportError; NVMLError: no driver."""
    nvml = nvml or importlib.import_module("pynvml")
    nvml.nvmlInit()
    return nvml


def put_back(nvml: Any, state: BoardState) -> None:
    """Restore one GPU (NVMLError: it is lost, or not permitted)."""
    handle = nvml.nvmlDeviceGetHandleByUUID(state.uuid)
    if state.clocks:
        nvml.nvmlDeviceResetGpuLockedClocks(handle)
    if state.limit_mw is not None:
        nvml.nvmlDeviceSetPowerManagementLimit(handle, state.limit_mw)


def get_reason(nvml: Any, error: Exception) -> str:
    """Why NVML refused, with what to do about it."""
    if isinstance(error, nvml.NVMLError_NoPermission):
        return "this user may not change it: NVML wants root, in a container also --cap-add SYS_ADMIN"
    if isinstance(error, nvml.NVMLError_NotSupported):
        return "this GPU has no such setting, as parts of a GPU (MIG) and virtual ones have none"
    return f"NVML: {error}"


def saved_limits_folder() -> Path:
    """The folder of a node's notes: only root may write it, and a reboot empties it."""
    return Path(os.environ.get(FOLDER_VARIABLE) or _DEFAULT_FOLDER)


class Note(NamedTuple):
    """A saved note of this process. `handle` holds the lock, which children do not inherit."""

    path: Path
    handle: int

    @classmethod
    def write(cls, folder: Path, boards: Sequence[BoardState]) -> "Note":
        """Write and lock a note (OSError: not writable; then nothing may be changed)."""
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
        """Delete the note once everything is restored."""
        try:
            self.path.unlink(missing_ok=True)
        finally:
            os.close(self.handle)


def undo_left_over(folder: Path | None = None, nvml: Any = None) -> list[str]:
    """Restore what killed runs left on this node; one sentence for each note. None: the node's folder, pynvml."""
    found = sorted((folder or saved_limits_folder()).glob(_PATTERN))
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
            return ""  # its run still trains
        status = os.fstat(handle)
        if not status.st_nlink:
            return ""  # another process has just restored it
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
    except Exception as error:  # NVML's errors, or no pynvml: the note stays for the next start
        yield str(error)
        return
    for board in boards:
        try:
            put_back(nvml, board)
        except nvml.NVMLError as error:
            yield f"{board.uuid}: {error}"
