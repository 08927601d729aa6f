"""What an interval of training was held up by, with the figures that say so."""

from enum import StrEnum
from typing import NamedTuple

from trainer.control.interval import Interval

LOADER_SHARE = 0.1
"""Of the time, that steps waited for images. A loader that keeps up waits for the first batch alone; the founding paper
on GPU clouds asks for enough CPU that loaders never starve an accelerator.
"""
_ALLREDUCE_SHARE = 0.25
"""Of the time, that steps waited for gradients, from which on the network decides; part of it is workers' own skew."""
_CHECKPOINT_SHARE = 0.1
CPU_WAIT_SHARE = 0.1
"""Of their time, that threads were ready and had no core. A machine to itself shows 1 to 3 %."""
_NEIGHBOUR_CORES, _NEIGHBOUR_SHARE = 0.25, 0.05
"""Cores that others use, and their share of a node's, from which on they are neighbours, and no odd jobs of the system:
a quiet machine of two cores shows 0.01 to 0.06, and a large one has more. Threads that meet after every operator are as
slow as the one that shares its core: less than half a core that others used has halved the speed of a run of two.
"""
MEMORY_SHARE = 0.93
"""Of a device or host: the next larger tensor ends the run."""
_DEVICE_USE = 0.85
"""Of a GPU that computes all the time (NVML's share of time with a kernel running)."""
_CPU_USE = 0.85


class Kind(StrEnum):
    """What holds a run up."""

    DATA = "data"
    HOST = "host"
    DEVICE = "device"
    NETWORK = "network"
    MEMORY = "memory"
    WAITING = "waiting"


class Bottleneck(NamedTuple):
    """A kind, and its evidence in words."""

    kind: Kind
    evidence: str


def bottleneck(interval: Interval) -> Bottleneck:
    """The first that applies of: too little memory, images that do not come, threads without a core, gradients that
    travel, saves; else the device, where it computes all the time; else steps wait for something that nobody measures.
    """
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
    """Of the device or the host, whichever is fuller; 0 where nobody knows either."""
    return max(interval.device_memory_share or 0.0, interval.host_memory_share or 0.0)


def has_neighbour(interval: Interval) -> bool | None:
    """Whether others use its cores; None where nobody knows."""
    if interval.neighbour_cores is None:
        return None
    of_a_node = interval.cores / max(1, interval.knobs.nodes)  # on one of them they slow down all
    return interval.neighbour_cores >= max(_NEIGHBOUR_CORES, _NEIGHBOUR_SHARE * of_a_node)


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
