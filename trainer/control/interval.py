"""One interval of training, equal on every worker, its bottleneck, and what policies see; None is a missing figure."""

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from statistics import median
from types import MappingProxyType
from typing import NamedTuple, Protocol

from gangway.trainer.config.values.control import JUDGE, Objective

Value = int | float | str
_MOST_SHARE = 1.1  # Above 1, as parts of the time are measured by separate clocks
_OTHER_SHARES = ("device_use", "cpu_use")
_NOISE_SCALES = 5  # Most recent estimates that count


class Knobs(NamedTuple):
    """What may change while a run trains."""

    batch_size: int  # global batch
    batch_gpu: int = 0  # images a worker takes at once; 0 for all of its share
    precision: str = "fp32"  # of the forward passes
    loader_threads: int = 1  # of one worker
    prefetch: int = 2  # batches read ahead
    threads: int = 1  # of one worker's operators on a CPU
    power_share: float = 1.0  # of each GPU's own power limit, 0..1
    nodes: int = 1
    compile: str = "off"  # of the losses, on or off

    def with_value(self, knob: str, value: Value) -> "Knobs":
        """Returns them with one changed."""
        return Knobs(**{**self._asdict(), knob: value})


class Decision(NamedTuple):
    """One change of one knob."""

    knob: str  # a field of `Knobs`
    value: Value
    was: Value
    policy: str  # that decided; `judge` for an undo
    reason: str  # with its figures
    expected_gain: float  # share of the objective; 0.1 is a tenth more
    undone_if: str  # what would undo it, in words

    def undoing(self, why: str, expected_gain: float = 0.0) -> "Decision":
        """Returns the judge's decision that undoes it."""
        reason = f"undoes {self.knob} {self.value}: {why}"
        return Decision(self.knob, self.was, self.value, JUDGE, reason, expected_gain, "nothing: it is as it was")


class Interval(NamedTuple):
    """One interval of training."""

    images: int  # real images shown before its end
    seconds: float  # that it took, quality metrics left out
    images_per_sec: float  # of all workers
    knobs: Knobs
    workers: int = 1
    resolution: int = 0  # of the images that growing networks make, pixels; the speed depends on it
    # seconds of one step's phases, by key, of the slowest worker; empty where not measured
    phase_sec: Mapping[str, float] = MappingProxyType({})
    loader_share: float = 0.0  # of its time, waiting for images, 0..1
    # waiting for other workers' gradients; None with one worker, or where not measured
    allreduce_share: float | None = None
    checkpoint_share: float = 0.0  # waiting for saves
    on_cpu: bool = True
    device_use: float | None = None  # of the GPU, 0..1; None without one, or without a meter
    device_memory_share: float | None = None  # of the GPU's memory in use at most, within it
    cpu_use: float = 0.0  # of all cores of its nodes, by the workers, 0..1
    # of their threads' time, ready and without a core; None where the kernel does not count it
    cpu_wait_share: float | None = 0.0
    neighbour_cores: float | None = None  # cores that other processes of the nodes used, in all
    cores: int = 1  # of all its nodes
    host_memory_share: float | None = None  # of its fullest node
    watts: float | None = None  # of all devices, by meter or model; None where one has neither
    noise_scale: float | None = None  # gradient noise scale (McCandlish et al. 2018), images
    usd_per_hour: float | None = None  # price of all nodes now
    g_per_kwh: float | None = None  # carbon intensity of the grid now
    guard: float | None = None  # the last value of the guard metric (lower is better) that was measured within it
    decision: Decision | None = None  # made at its end and applied
    failed: Decision | None = None  # made at its end, but not applied
    told: tuple[str, ...] = ()  # broken meters, in words; such an interval is not used

    @property
    def invalid(self) -> tuple[str, ...]:
        """Why it cannot be used: broken meters and impossible values; else empty."""
        found = list(self.told)
        if self.images_per_sec == 0:
            found.append("images_per_sec is 0: no step was made")
        for name in self._fields:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if not (math.isfinite(value) and value >= 0):
                found.append(f"{name} is {value:g}")
            elif (name.endswith("_share") or name in _OTHER_SHARES) and value > _MOST_SHARE:
                found.append(f"{name} is {value:g}, which is no share")
        return tuple(found)

    @property
    def after(self) -> Knobs:
        """The knobs after its end."""
        return self.knobs if self.decision is None else self.knobs.with_value(self.decision.knob, self.decision.value)

    @property
    def conditions(self) -> tuple[float, ...]:
        """What affects its time besides knobs: resolution, workers of a node, cores of a node."""
        return self.resolution, self.workers / self.knobs.nodes, self.cores / self.knobs.nodes

    def ended_by(self, decision: Decision, *, failed: bool) -> "Interval":
        """Returns it with the decision made at its end."""
        return self._replace(failed=decision) if failed else self._replace(decision=decision)


def efficiency(noise_scale: float | None, batch_size: int, base: int) -> float:
    """Returns an image's progress relative to the first batch's (Pollux, Qiao et al. 2021); 1 if unknown."""
    if noise_scale is None or batch_size == base:
        return 1.0
    return (noise_scale + base) / (noise_scale + batch_size)


def find_noise_scale(history: Sequence[Interval]) -> float | None:
    """Returns the median of the last estimates, as a single one may be far off."""
    known = [each.noise_scale for each in history if each.noise_scale is not None]
    return median(known[-_NOISE_SCALES:]) if known else None


def score(interval: Interval, objective: Objective, base: int) -> float | None:
    """Returns goodput a second, dollar, joule or gram, None without figures; `base` is the run's first batch."""
    goodput = interval.images_per_sec * efficiency(interval.noise_scale, interval.knobs.batch_size, base)
    match objective:
        case "time":
            per_sec: float | None = 1.0
        case "cost":
            per_sec = None if interval.usd_per_hour is None else interval.usd_per_hour / 3600
        case "energy":
            per_sec = interval.watts
        case "carbon":
            known = interval.watts is not None and interval.g_per_kwh is not None
            per_sec = (interval.watts or 0.0) * (interval.g_per_kwh or 0.0) / 3.6e6 if known else None
    return goodput / per_sec if per_sec else None


LOADER_SHARE = 0.1  # Share of time waiting for images. A loader that keeps up waits only for the first batch
_ALLREDUCE_SHARE = 0.25  # Share of time waiting for gradients; part of it is the workers' skew
_CHECKPOINT_SHARE = 0.1
CPU_WAIT_SHARE = 0.1
"""Share of their time that threads were ready without a core. A machine without neighbours shows 1 to 3 %."""
_NEIGHBOUR_CORES, _NEIGHBOUR_SHARE = 0.25, 0.05
"""Cores used by others, and their share of a node's, that count as a neighbour: a quiet machine of two cores shows 0.01
to 0.06. Threads that meet after every operator are as slow as the one that shares its core: half a used core has halved
the speed of a run on two.
"""
MEMORY_SHARE = 0.93  # Of a device or host: above it a larger tensor ends the run
_DEVICE_USE = 0.85  # Of a busy GPU (NVML's share of time with a kernel running)
_CPU_USE = 0.85


class Kind(StrEnum):
    """What limits a run's speed."""

    DATA = "data"
    HOST = "host"
    DEVICE = "device"
    NETWORK = "network"
    MEMORY = "memory"
    WAITING = "waiting"


class _Bottleneck(NamedTuple):
    kind: Kind
    evidence: str


def bottleneck(now: Interval) -> _Bottleneck:
    """Returns the first that applies of memory, data, host, network and checkpoints, else device or unknown waits."""
    for place, share in (("the device's", now.device_memory_share), ("the host's", now.host_memory_share)):
        if share is not None and share >= MEMORY_SHARE:
            return _Bottleneck(Kind.MEMORY, f"{share:.0%} of {place} memory is in use")
    if now.loader_share >= LOADER_SHARE:
        threads = f"{now.knobs.loader_threads} loader thread{'s' * (now.knobs.loader_threads > 1)} a worker"
        return _Bottleneck(Kind.DATA, f"steps waited for images {now.loader_share:.0%} of the time, with {threads}")
    if now.cpu_wait_share is not None and now.cpu_wait_share >= CPU_WAIT_SHARE:
        others = f", and others use {now.neighbour_cores:.1f} of {now.cores}" if has_neighbour(now) else ""
        return _Bottleneck(Kind.HOST, f"threads had no core {now.cpu_wait_share:.0%} of their time{others}")
    if now.allreduce_share is not None and now.allreduce_share >= _ALLREDUCE_SHARE:
        waited = f"steps waited for other workers' gradients {now.allreduce_share:.0%} of the time"
        return _Bottleneck(Kind.NETWORK, waited)
    if now.checkpoint_share >= _CHECKPOINT_SHARE:
        return _Bottleneck(Kind.WAITING, f"steps waited for checkpoints {now.checkpoint_share:.0%} of the time")
    if now.device_use is not None:
        if now.device_use >= _DEVICE_USE:
            return _Bottleneck(Kind.DEVICE, f"the device computed {now.device_use:.0%} of the time")
        return _Bottleneck(Kind.WAITING, f"the device computed {now.device_use:.0%} of the time, and no meter says why")
    if not now.on_cpu:
        return _Bottleneck(Kind.DEVICE, "steps wait for nothing else, and no meter says how busy the device is")
    if now.cpu_use >= _CPU_USE or now.knobs.threads * now.workers >= now.cores:
        return _Bottleneck(Kind.DEVICE, f"workers used {now.cpu_use:.0%} of {now.cores} cores")
    return _Bottleneck(Kind.WAITING, f"workers used {now.cpu_use:.0%} of {now.cores} cores, with nothing to wait for")


def memory_share(interval: Interval) -> float:
    """Of the device or the host, whichever is fuller; 0 where both are unknown."""
    return max(interval.device_memory_share or 0.0, interval.host_memory_share or 0.0)


def has_neighbour(interval: Interval) -> bool | None:
    """Whether other processes use its cores; None where unknown."""
    if interval.neighbour_cores is None:
        return None
    node_cores = interval.cores / max(1, interval.knobs.nodes)  # on one of them they slow down all
    return interval.neighbour_cores >= max(_NEIGHBOUR_CORES, _NEIGHBOUR_SHARE * node_cores)


Allowed = Mapping[str, Sequence[Value]]
"""By knob, its possible values including the current one, in rising order; missing knobs stay."""


class Room(NamedTuple):
    """What a policy may choose from."""

    allowed: Allowed  # see `Allowed`; what has just been undone is left out for a while
    objective: Objective  # what there should be more of
    start: Knobs  # the knobs that the run began with
    on_cpu: bool  # whether workers compute there: a GPU may be without a meter, and is none the less one
    seed: int = 0  # of the run; for policies that draw


class Policy(Protocol):
    """Returns one change, or none, for a history. Pure, so that runs can be replayed and resumed."""

    @property
    def name(self) -> str:
        """Its name in the stack file and the record."""
        ...

    def decide(self, history: Sequence[Interval], room: Room) -> Decision | None:
        """Returns the next change, or None. `history` is not empty, and no decision waits to be judged."""
        ...


class Fixed:
    """Changes nothing: the control arm of an experiment."""

    name = "fixed"

    def decide(self, history: Sequence[Interval], room: Room) -> Decision | None:
        """See `Policy`."""
        del history, room
        return None
