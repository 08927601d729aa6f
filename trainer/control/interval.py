"""What policies see of a run: one interval of training, equal on every worker, with what it was trained with.

None is a figure that nobody has: no meter, no price, or not enough data.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import median
from types import MappingProxyType
from typing import NamedTuple

from trainer.config.values.control import Objective

Value = int | float | str
_MOST_SHARE = 1.1
"""Of a share: parts of the time are measured by clocks of their own, and come to a little more than all of it."""
_SHARES = frozenset(
    {
        *("loader_share", "allreduce_share", "checkpoint_share", "cpu_wait_share"),
        *("device_use", "cpu_use", "device_memory_share", "host_memory_share"),
    }
)
_NOISE_SCALES = 5
"""Estimates of the gradients' noise that count."""


class Knobs(NamedTuple):
    """What may be changed while a run trains, as one interval had it.

    Attributes:
        batch_size: global batch.
        batch_gpu: images a worker takes at once; 0 for all of its share.
        precision: of the forward passes.
        loader_threads: of one worker.
        prefetch: batches read ahead.
        threads: of one worker's operators on a CPU.
        power_share: of each GPU's own power limit, 0..1.
        nodes: that train.
        compile: whether losses are compiled, on or off.
    """

    batch_size: int
    batch_gpu: int = 0
    precision: str = "fp32"
    loader_threads: int = 1
    prefetch: int = 2
    threads: int = 1
    power_share: float = 1.0
    nodes: int = 1
    compile: str = "off"

    def turned(self, knob: str, value: Value) -> "Knobs":
        """The same but for one of them."""
        return Knobs(**{**self._asdict(), knob: value})


class Decision(NamedTuple):
    """One change of one knob.

    Attributes:
        knob: a field of `Knobs`.
        value: from now on.
        was: up to now.
        policy: who decided; `judge` for what is undone.
        reason: why, with the figures that it rests on.
        expected_gain: share of the objective that it should bring; 0.1 is a tenth more.
        undone_if: what would undo it, in words.
    """

    knob: str
    value: Value
    was: Value
    policy: str
    reason: str
    expected_gain: float
    undone_if: str


class Interval(NamedTuple):
    """One interval of training.

    Attributes:
        images: real images shown before its end.
        seconds: that it took, quality metrics left out.
        images_per_sec: of all workers.
        knobs: what it was trained with.
        workers: that trained.
        resolution: of the images that growing networks make in it, pixels; their speed is another at each.
        phase_sec: seconds of one step's phases, by key, of the slowest worker; empty where nobody measures them.
        loader_share: of its time, that steps waited for images, 0..1.
        allreduce_share: that they waited for other workers' gradients; None with one worker, or where nobody measures.
        checkpoint_share: that they waited for saves.
        on_cpu: whether workers compute there.
        device_use: of the GPU, 0..1; None without one, or without a meter.
        device_memory_share: of the GPU's memory in use at most, within it.
        cpu_use: of all cores of its nodes, by the workers, 0..1.
        cpu_wait_share: of their threads' time, ready and without a core; None where the kernel does not count it.
        neighbour_cores: cores that other processes of the nodes used, in all.
        cores: of all its nodes.
        host_memory_share: of its fullest node.
        watts: of all devices, by meter or model; None where one has neither.
        noise_scale: gradient noise scale (McCandlish et al. 2018), images.
        usd_per_hour: price of all nodes now.
        g_per_kwh: carbon intensity of the grid now.
        guard: the last value of the guard metric (lower is better) that was measured within it.
        decision: made at its end, and carried out.
        failed: made at its end, and could not be carried out.
        told: broken meters, in words; such an interval decides nothing.
    """

    images: int
    seconds: float
    images_per_sec: float
    knobs: Knobs
    workers: int = 1
    resolution: int = 0
    phase_sec: Mapping[str, float] = MappingProxyType({})
    loader_share: float = 0.0
    allreduce_share: float | None = None
    checkpoint_share: float = 0.0
    on_cpu: bool = True
    device_use: float | None = None
    device_memory_share: float | None = None
    cpu_use: float = 0.0
    cpu_wait_share: float | None = 0.0
    neighbour_cores: float | None = None
    cores: int = 1
    host_memory_share: float | None = None
    watts: float | None = None
    noise_scale: float | None = None
    usd_per_hour: float | None = None
    g_per_kwh: float | None = None
    guard: float | None = None
    decision: Decision | None = None
    failed: Decision | None = None
    told: tuple[str, ...] = ()

    @property
    def invalid(self) -> tuple[str, ...]:
        """Why nothing may be decided or judged by it, in words: broken meters, values that cannot be; else empty."""
        found = list(self.told)
        if self.images_per_sec == 0:
            found.append("images_per_sec is 0: no step was made")
        for name in self._fields:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if not (math.isfinite(value) and value >= 0):
                found.append(f"{name} is {value:g}")
            elif name in _SHARES and value > _MOST_SHARE:
                found.append(f"{name} is {value:g}, which is no share")
        return tuple(found)

    @property
    def after(self) -> Knobs:
        """The knobs from its end on."""
        return self.knobs if self.decision is None else self.knobs.turned(self.decision.knob, self.decision.value)

    @property
    def conditions(self) -> tuple[float, ...]:
        """What its time hangs on and no knob of a node turns: resolution, workers of a node, cores of a node."""
        return self.resolution, self.workers / self.knobs.nodes, self.cores / self.knobs.nodes

    def ended_by(self, decision: Decision, *, failed: bool) -> "Interval":
        """The same with what was decided at its end, and whether it could not be carried out."""
        return self._replace(failed=decision) if failed else self._replace(decision=decision)


def efficiency(noise_scale: float | None, batch_size: int, base: int) -> float:
    """Progress by one image of a batch, in that of one image of the run's first batch (Pollux, Qiao et al. 2021):
    (noise + base) / (noise + batch). 1 where nobody knows the noise, or the batch is the first one's.
    """
    if noise_scale is None or batch_size == base:
        return 1.0
    return (noise_scale + base) / (noise_scale + batch_size)


def find_noise_scale(history: Sequence[Interval]) -> float | None:
    """The middle of the last estimates: one alone may be far off."""
    known = [each.noise_scale for each in history if each.noise_scale is not None]
    return median(known[-_NOISE_SCALES:]) if known else None


def score(interval: Interval, objective: Objective, base: int) -> float | None:
    """How much of the objective an interval made: goodput a second, dollar, joule or gram, see
    `trainer.config.values.control.UNITS`; None without the figures that it needs. `base` is the run's first batch.
    """
    knobs = interval.knobs
    goodput = interval.images_per_sec * efficiency(interval.noise_scale, knobs.batch_size, base)
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
