"""Check the bandwidth of the fabric with all-reduces over the workers' default group, before a job may start.

Bandwidths as in nccl-tests, doc/PERFORMANCE.md: the algorithm's is size / time, the bus's that times 2 (n - 1) / n,
which does not depend on the number of workers n. Over EFA bandwidth levels off only at about 1 GiB, so the best size
counts: p4d.24xlarge (400 Gbit/s) reached 1.14, 0.64 and 0.59 of nominal on 2, 3 and 4 nodes (github.com/NVIDIA/nccl,
issue 527). Healthy machines should reach a quarter, and a fabric without most of its cards does not.
"""

import ctypes
import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from gangway.trainer.core.errors import UnhealthyError
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import FabricPoint, FabricRecord

if TYPE_CHECKING:
    from gangway.trainer.distributed.world import World


_MIB = 1 << 20
_GPU_BYTES = tuple(size * _MIB for size in (1, 4, 16, 64, 256, 1024, 2048))
_CPU_BYTES = (_MIB // 4, _MIB)
_WARM_UP, _TIMED = 3, 10
_BUDGET_SEC = 20.0
# The model is on the GPU already, and NCCL needs its own buffers.
_MEMORY_SHARE = 0.25
_UNIT = "Gbit/s"


def bus_gbps(size_bytes: int, sec: float, world_size: int) -> float:
    """Bus bandwidth of an all-reduce, Gbit/s.

    >>> bus_gbps(1_000_000_000, 1.0, 2)
    8.0
    """
    return size_bytes * 8e-9 / sec * 2 * (world_size - 1) / world_size


def check_fabric(
    world: "World",
    min_gbps: float | None,
    expected: Quantity | None,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> FabricRecord:
    """Measures the fabric, if there is anything to measure; all workers call it together and get the same verdict.

    Without `min_gbps` it is measured, and passes, if the job sets NCCL's network (NCCL_NET).
    """
    threshold = (
        Quantity.absent(_UNIT, "no --fabric-min-gbps")
        if min_gbps is None
        else Quantity(value=min_gbps, unit=_UNIT, provenance="assumed", source="--fabric-min-gbps")
    )
    known = expected or Quantity.absent(_UNIT, "the launcher expects nothing")
    reason = _skip_reason(world, min_gbps)
    if reason:
        absent = Quantity.absent(_UNIT, reason)
        return FabricRecord(bus_bandwidth=absent, expected=known, threshold=threshold, verdict="skipped", reason=reason)
    points = _measure(world, _sizes(world), clock)
    best = max(points, key=lambda point: point.bus_gbps)
    verdict: Literal["passed", "below"] = "passed" if best.bus_gbps >= (min_gbps or 0) else "below"
    demand = "nothing demanded, NCCL_NET is set" if min_gbps is None else f"{min_gbps:g} demanded"
    source = f"all-reduce of {best.size_bytes / _MIB:g} MiB over {world.world_size} workers, {world.backend}"
    return FabricRecord(
        bus_bandwidth=Quantity.measured(best.bus_gbps, _UNIT, source, note="2 (n - 1) / n x size / median time"),
        expected=known,
        threshold=threshold,
        verdict=verdict,
        reason=f"{best.bus_gbps:.3g} {_UNIT} measured, {demand}",
        points=tuple(points),
    )


def _skip_reason(world: "World", min_gbps: float | None) -> str:
    if world.world_size == 1:
        return "one process: nothing to measure"
    if world.on_xla:
        return "PyTorch/XLA runs its all-reduces inside its programs: nothing to time alone"
    if min_gbps is None and not (world.backend == "nccl" and all(world.gather("NCCL_NET" in os.environ))):
        return "not asked for: no --fabric-min-gbps"
    return ""


def _sizes(world: "World") -> Sequence[int]:
    if world.device.type != "cuda":
        return _CPU_BYTES
    import torch

    free = min(world.gather(torch.cuda.mem_get_info(world.device)[0]))
    return _GPU_BYTES[:1] + tuple(size for size in _GPU_BYTES[1:] if size <= free * _MEMORY_SHARE)


def _measure(world: "World", sizes: Sequence[int], clock: Callable[[], float]) -> list[FabricPoint]:
    import torch
    from torch import distributed as dist

    points: list[FabricPoint] = []
    spent = 0.0
    for size in sizes:
        buffer = torch.zeros(size // 4, device=world.device)
        seconds: list[float] = []
        for _ in range(_WARM_UP + _TIMED):
            began = clock()
            dist.all_reduce(buffer)
            if world.device.type == "cuda":
                torch.cuda.synchronize(world.device)
            seconds.append(clock() - began)
        # All workers see the same times, so they stop at the same size.
        everyone = world.gather((statistics.median(seconds[_WARM_UP:]), sum(seconds)), tuple[float, float])
        slowest = max(median for median, _ in everyone)
        bus = bus_gbps(size, slowest, world.world_size)
        points.append(
            FabricPoint(size_bytes=size, median_sec=slowest, algorithm_gbps=size * 8e-9 / slowest, bus_gbps=bus)
        )
        spent += max(total for _, total in everyone)
        if spent * 4 > _BUDGET_SEC:  # the next size takes up to four times as long
            break
    if world.device.type == "cuda":
        # Keep the buffers out of the job's memory and its record.
        del buffer
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(world.device)
    return points


def unhealthy(fabric: FabricRecord) -> UnhealthyError:
    """The error of a job on a fabric below its threshold."""
    expected = "" if fabric.expected.value is None else f"; {fabric.expected.value:.3g} Gbit/s are expected"
    return UnhealthyError(
        place="--fabric-min-gbps",
        problem=f"the fabric is too slow: {fabric.reason}",
        value=fabric.threshold.value,
        allowed=f"a bus bandwidth above it{expected}",
        fix="look for a node without EFA or with a sick network card (NCCL_DEBUG=INFO), or lower the threshold",
    )


SONAME = "libnccl.so.2"
QUALIFIED = "GANGWAY_NCCL_QUALIFIED"
"""Environment variable with the version that the machine's network plug-in is qualified for."""


def loaded_nccl() -> str | None:
    """Returns the loaded library's version; torch.cuda.nccl.version() is the one torch was compiled with."""
    try:
        library = ctypes.CDLL(SONAME, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return None
    code = ctypes.c_int()
    library.ncclGetVersion(ctypes.byref(code))
    return _format_version(code.value)


def _format_version(code: int) -> str:
    """Format NCCL's version number, which has this form since 2.9.

    >>> _format_version(22807)
    '2.28.7'
    """
    return f"{code // 10_000}.{code // 100 % 100}.{code % 100}"


def nccl_versions(backend: str) -> dict[str, str]:
    """The loaded and the qualified NCCL version for the record; empty for other backends."""
    if backend != "nccl":
        return {}
    wanted = os.environ.get(QUALIFIED)
    return {"nccl": loaded_nccl() or "not found", **({"nccl-qualified": wanted} if wanted else {})}


def unqualified(versions: dict[str, str]) -> str:
    """A warning about `nccl_versions`; empty if the loaded version is qualified or none is named."""
    loaded, wanted = versions.get("nccl"), versions.get("nccl-qualified")
    if wanted is None or loaded == wanted:
        return ""
    return f"NCCL {loaded} is loaded, and the plug-in of this machine's network is qualified for {wanted} alone"
