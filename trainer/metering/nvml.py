"""The few calls of NVML that change a GPU: power limit and locked clocks, with their ranges, and how to undo them.

All need root (NVML, "Device Commands": others get NVML_ERROR_NO_PERMISSION), in a container also SYS_ADMIN. Both
settings outlive the process that made them, not a reboot.
"""

import importlib
from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["Board", "BoardState", "Range", "load_nvml", "put_back", "reason_of"]

_MILLI = 1000


class Range(NamedTuple):
    """What a setting may be, both ends included."""

    least: int
    most: int


class BoardState(NamedTuple):
    """What a GPU (`uuid` as NVML spells it, GPU-...) was set to before it was changed.

    Attributes:
        limit_mw: its power limit, milliwatts; None where that is not touched.
        clocks: whether its clocks get locked. NVML does not tell what they were before, so undoing unlocks.
    """

    uuid: str
    limit_mw: int | None
    clocks: bool

    def describe(self) -> str:
        """In words: GPU-1234 to 700 W and unlocked clocks."""
        parts = [f"{self.limit_mw / _MILLI:g} W"] if self.limit_mw is not None else []
        return f"{self.uuid} to {' and '.join([*parts, *(['unlocked clocks'] if self.clocks else [])])}"


class Board:
    """One GPU (NVMLError: there is none such); `name` is in the run's own words, such as node0/gpu3."""

    def __init__(self, nvml: Any, uuid: str, name: str) -> None:
        self._nvml, self.uuid, self.name = nvml, uuid, name
        self._handle = nvml.nvmlDeviceGetHandleByUUID(uuid)

    def limit_watts(self) -> float:
        """The limit now."""
        return float(self._nvml.nvmlDeviceGetPowerManagementLimit(self._handle)) / _MILLI

    def limits_watts(self) -> Range:
        """What the limit may be."""
        least, most = self._nvml.nvmlDeviceGetPowerManagementLimitConstraints(self._handle)
        return Range(-(-int(least) // _MILLI), int(most) // _MILLI)

    def set_limit(self, watts: float) -> None:
        """Sets the limit, to the milliwatt."""
        self._nvml.nvmlDeviceSetPowerManagementLimit(self._handle, round(watts * _MILLI))

    def clocks_mhz(self) -> Range:
        """What the graphics clock may be at the fastest memory clock (NVMLError: the board does not tell)."""
        memory: Sequence[int] = self._nvml.nvmlDeviceGetSupportedMemoryClocks(self._handle)
        clocks: Sequence[int] = (
            self._nvml.nvmlDeviceGetSupportedGraphicsClocks(self._handle, max(memory)) if memory else ()
        )
        if not clocks:
            raise self._nvml.NVMLError(self._nvml.NVML_ERROR_NOT_SUPPORTED)
        return Range(min(clocks), max(clocks))

    def lock_clocks(self, most_mhz: int) -> None:
        """Keeps the graphics clock at or below `most_mhz`; it may still fall to its least."""
        self._nvml.nvmlDeviceSetGpuLockedClocks(self._handle, self.clocks_mhz().least, most_mhz)

    def state(self, *, limit: bool, clocks: bool) -> BoardState:
        """What is to be noted before these two are changed."""
        now = round(self.limit_watts() * _MILLI) if limit else None
        return BoardState(self.uuid, now, clocks)


def load_nvml(nvml: Any = None) -> Any:
    """The pynvml module, or the fake in its place, initialised. ImportError; NVMLError: no driver."""
    nvml = nvml or importlib.import_module("pynvml")
    nvml.nvmlInit()
    return nvml


def put_back(nvml: Any, state: BoardState) -> None:
    """Undoes what was done to one GPU (NVMLError: it is lost, or this user may not)."""
    handle = nvml.nvmlDeviceGetHandleByUUID(state.uuid)
    if state.clocks:
        nvml.nvmlDeviceResetGpuLockedClocks(handle)
    if state.limit_mw is not None:
        nvml.nvmlDeviceSetPowerManagementLimit(handle, state.limit_mw)


def reason_of(nvml: Any, error: Exception) -> str:
    """Why NVML refused, in words that say what to do."""
    if isinstance(error, nvml.NVMLError_NoPermission):
        return "this user may not change it: NVML wants root, in a container also --cap-add SYS_ADMIN"
    if isinstance(error, nvml.NVMLError_NotSupported):
        return "this GPU has no such setting, as parts of a GPU (MIG) and virtual ones have none"
    return f"NVML: {error}"
