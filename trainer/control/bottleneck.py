"""The bottleneck of an interval of training, with its evidence."""

from enum import StrEnum
from typing import NamedTuple

from gangway.trainer.control.interval import Interval

LOADER_SHARE = 0.1
"""Share of time waiting for images. A loader that keeps up waits only for the first batch."""
_ALLREDUCE_SHARE = 0.25
"""Share of time waiting for gradients; part of it is the workers' skew."""
_CHECKPOINT_SHARE = 0.1
CPU_WAIT_SHARE = 0.1
"""Share of their time that threads were ready without a core. A machine without neighbours shows 1 to 3 %."""
_NEIGHBOUR_CORES, _NEIGHBOUR_SHARE = 0.25, 0.05
"""Cores used by others, and their share of a node's, that count as a neighbour: a quiet machine of two cores shows 0.01
to 0.06. Threads that meet after every operator are as slow as the one that shares its core: half a used core has halved
the speed of a run on two.
"""
MEMORY_SHARE = 0.93
"""Of a device or host: above it a larger tensor ends the run."""
_DEVICE_USE = 0.85
"""Of a busy GPU (NVML's share of time with a kernel running)."""
_CPU_USE = 0.85


class Kind(StrEnum):
    """What limits a run's speed."""

    DATA = "data"
    HOST = "host"
    DEVICE = "device"
    NETWORK = "network"
    MEMORY = "memory"
    WAITING = "waiting"


class Bottleneck(NamedTuple):
    """A kind and its evidence in words."""

    kind: Kind
    evidence: str


def bottleneck(interval: Interval) -> Bottleneck:
    """Returns the first that applies of memory, data, host, network and checkpoints, else device or unknown waits."""
    now = interval
    for place, share in (("the device's", now.device_memory_share), ("the host's", now.host_memory_share)):
        if share is not None and share >= MEMORY_SHARE:
            return Bottleneck(Kind.MEMORY, f"{share:.0%} of {place} memory is in use")
    if now.loader_share >= LOADER_SHARE:
        threads = f"{now.knobs.loader_threads} loader thread{'s' * (now.knobs.loader_threads > 1)} a worker"
        return Bottleneck(Kind.DATA, f"steps waited for images {now.loader_share:.0%} of the time, with {threads}")
    if now.cpu_wait_share is not None and now.cpu_wait_share >= CPU_WAIT_SHARE:
        others = f", and others use {now.neighbour_cores:.1f} of {now.cores}" if has_neighbour(now) else ""
        return Bottleneck(Kind.HOST, f"threads had no core {now.cpu_wait_share:.0%} of their time{others}")
    if now.allreduce_share is not None and now.allreduce_share >= _ALLREDUCE_SHARE:
        waited = f"steps waited for other workers' gradients {now.allreduce_share:.0%} of the time"
        return Bottleneck(Kind.NETWORK, waited)
    if now.checkpoint_share >= _CHECKPOINT_SHARE:
        return Bottleneck(Kind.WAITING, f"steps waited for checkpoints {now.checkpoint_share:.0%} of the time")
    return _computing(now)


def memory_share(interval: Interval) -> float:
    """Of the device or the host, whichever is fuller; 0 where both are unknown."""
    return max(interval.device_memory_share or 0.0, interval.host_memory_share or 0.0)


def has_neighbour(interval: Interval) -> bool | None:
    """Whether other processes use its cores; None where unknown."""
    if interval.neighbour_cores is None:
        return None
    node_cores = interval.cores / max(1, interval.knobs.nodes)  # on one of them they slow down all
    return interval.neighbour_cores >= max(_NEIGHBOUR_CORES, _NEIGHBOUR_SHARE * node_cores)


def _computing(now: Interval) -> Bottleneck:
    if now.device_use is not None:
        if now.device_use >= _DEVICE_USE:
            return Bottleneck(Kind.DEVICE, f"the device computed {now.device_use:.0%} of the time")
        return Bottleneck(Kind.WAITING, f"the device computed {now.device_use:.0%} of the time, and no meter says why")
    if not now.on_cpu:
        return Bottleneck(Kind.DEVICE, "steps wait for nothing else, and no meter says how busy the device is")
    if now.cpu_use >= _CPU_USE or now.knobs.threads * now.workers >= now.cores:
        return Bottleneck(Kind.DEVICE, f"workers used {now.cpu_use:.0%} of {now.cores} cores")
    return Bottleneck(Kind.WAITING, f"workers used {now.cpu_use:.0%} of {now.cores} cores, with nothing to wait for")
