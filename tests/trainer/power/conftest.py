"""An NVML that keeps its state in a file, so that a process that is killed leaves it behind as a GPU would."""

# ruff: noqa: N801, N802, N818 - the names are pynvml's

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gangway.trainer.distributed.world import World, decode, encode
from gangway.trainer.power.energy import Gpu

LIMIT_MW = 700_000


class NVMLError(Exception):
    """As pynvml's."""


class NVMLError_NoPermission(NVMLError):
    """Not root."""


class NVMLError_NotSupported(NVMLError):
    """A MIG slice, a virtual GPU."""


class NVMLError_GpuIsLost(NVMLError):
    """It fell off the bus."""


class StatefulNvml:
    """As much of pynvml as limits need; the board is an H200: 200 to 700 W, 345 to 1980 MHz.

    Args:
        path: where the state is.

    Attributes:
        refuse: what raises, and what it raises: a function's name, or that and a GPU's.
        calls: the changes that were made.
        during: for a test to keep states in.
        memory_clocks: empty on boards that do not tell.
    """

    NVMLError = NVMLError
    NVMLError_NoPermission = NVMLError_NoPermission
    NVMLError_NotSupported = NVMLError_NotSupported
    NVMLError_GpuIsLost = NVMLError_GpuIsLost
    NVML_ERROR_NOT_SUPPORTED = 3

    def __init__(self, path: Path) -> None:
        self.path = path
        self.refuse: dict[str, Exception] = {}
        self.calls: list[tuple[Any, ...]] = []
        self.during: list[dict[str, Any]] = []
        self.memory_clocks = [3201, 1593]
        if not path.exists():
            self._write({})

    def state(self, uuid: str) -> dict[str, Any]:
        every: dict[str, dict[str, Any]] = json.loads(self.path.read_text())
        return every.get(uuid, {"limit_mw": LIMIT_MW, "clocks": None})

    def _write(self, every: dict[str, Any]) -> None:
        self.path.write_text(json.dumps(every))

    def _change(self, name: str, uuid: str, **changes: Any) -> None:
        self._ask(name, uuid)
        self.calls.append((name, uuid, *changes.values()))
        every = json.loads(self.path.read_text())
        self._write({**every, uuid: {**self.state(uuid), **changes}})

    def _ask(self, name: str, uuid: str = "") -> None:
        for key in (name, f"{name} {uuid}"):
            if key in self.refuse:
                raise self.refuse[key]

    def nvmlInit(self) -> None:
        self._ask("nvmlInit")

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        self._ask("nvmlDeviceGetHandleByUUID", uuid)
        return uuid

    def nvmlDeviceGetPowerManagementLimit(self, handle: str) -> int:
        self._ask("nvmlDeviceGetPowerManagementLimit", handle)
        limit: int = self.state(handle)["limit_mw"]
        return limit

    def nvmlDeviceGetPowerManagementLimitConstraints(self, handle: str) -> list[int]:
        self._ask("nvmlDeviceGetPowerManagementLimitConstraints", handle)
        return [200_000, 700_000]

    def nvmlDeviceSetPowerManagementLimit(self, handle: str, limit: int) -> None:
        self._change("nvmlDeviceSetPowerManagementLimit", handle, limit_mw=limit)

    def nvmlDeviceGetSupportedMemoryClocks(self, handle: str) -> Sequence[int]:
        return self.memory_clocks

    def nvmlDeviceGetSupportedGraphicsClocks(self, handle: str, memory: int) -> Sequence[int]:
        assert memory == 3201
        return [1980, 1965, 345]

    def nvmlDeviceSetGpuLockedClocks(self, handle: str, least: int, most: int) -> None:
        self._change("nvmlDeviceSetGpuLockedClocks", handle, clocks=[least, most])

    def nvmlDeviceResetGpuLockedClocks(self, handle: str) -> None:
        self._change("nvmlDeviceResetGpuLockedClocks", handle, clocks=None)


@pytest.fixture
def nvml(tmp_path: Path) -> StatefulNvml:
    return StatefulNvml(tmp_path / "nvml.json")


@pytest.fixture
def make_nvml() -> Callable[[Path], StatefulNvml]:
    return StatefulNvml


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "notes"
    monkeypatch.setenv("GANGWAY_POWER_DIR", str(folder))
    return folder


ALONE = World(0, 0, 1, 0, 1, torch.device("cpu"), "none", "one process")


@pytest.fixture
def alone() -> World:
    return ALONE


@pytest.fixture
def gpu() -> Gpu:
    return Gpu("NVIDIA H200", "GPU-0", 0)


def _sent(value: Any, kind: Any) -> Any:
    return decode(encode(value, kind), kind)


class Group:
    """Workers as threads, who gather as World does. Only what limits need of it."""

    def __init__(self, nodes: Sequence[int]) -> None:
        self.nodes = nodes
        self.values: list[Any] = [None] * len(nodes)
        self.barrier = threading.Barrier(len(nodes), timeout=20)

    def worker(self, rank: int) -> World:
        node = self.nodes[rank]
        local_rank = sum(other == node for other in self.nodes[:rank])
        world = replace(
            ALONE, rank=rank, local_rank=local_rank, world_size=len(self.nodes), node_rank=node, num_nodes=2
        )
        object.__setattr__(world, "gather", lambda value, kind=None: self._gather(rank, _sent(value, kind)))
        return world

    def _gather(self, rank: int, value: Any) -> list[Any]:
        self.values[rank] = value
        self.barrier.wait()
        everyone = list(self.values)
        self.barrier.wait()
        return everyone


@pytest.fixture
def group() -> Callable[[Sequence[int]], Group]:
    """Makes a group of workers from the node of each rank."""
    return Group
