"""One interval of training as policies see it, equal on every worker.

None is a missing figure: no meter, no price, or not enough data.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import median
from types import MappingProxyType
from typing import NamedTuple

from gangway.trainer.config.values.control import Objective

Value = int | float | str
_MOST_SHARE = 1.1
"""Above 1, as parts of the time are measured by separate clocks."""
_SHARES = frozenset(
    {
        *("loader_share", "allreduce_share", "checkpoint_share", "cpu_wait_share"),
        *("device_use", "cpu_use", "device_memory_share", "host_memory_share"),
    }
)
_NOISE_SCALES = 5
"""Most recent estimates that count."""


class Knobs(NamedTuple):
    """What may change while a run trains.

    Attributes:
        batch_size: global batch.
        batch_gpu: images a worker takes at once; 0 for all of its share.
        precision: of the forward passes.
        loader_threads: of one worker.
        prefetch: batches read ahead.
        threads: of one worker's operators on a CPU.
        power_share: of each GPU's own power limit, 0..1.
        compile: of the losses, on or off.
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

    def with_value(self, knob: str, value: Value) -> "Knobs":
        """Returns them with one changed."""
        return Knobs(**{**self._asdict(), knob: value})


class Decision(NamedTuple):
    """One change of one knob.

    Attributes:
        knob: a field of `Knobs`.
        policy: that decided; `judge` for an undo.
        reason: with its figures.
        expected_gain: share of the objective; 0.1 is a tenth more.
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
        resolution: of the images that growing networks make, pixels; the speed depends on it.
        phase_sec: seconds of one step's phases, by key, of the slowest worker; empty where not measured.
        loader_share: of its time, waiting for images, 0..1.
        allreduce_share: waiting for other workers' gradients; None with one worker, or where not measured.
        checkpoint_share: waiting for saves.
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
        decision: made at its end and applied.
        failed: made at its end, but not applied.
        told: broken meters, in words; such an interval is not used.
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
            elif name in _SHARES and value > _MOST_SHARE:
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
    """Returns an image's progress relative to the run's first batch (Pollux, Qiao et al. 2021).

    (noise + base) / (noise + batch); 1 where the noise is unknown, or the batch is the first one's.
    """
    if noise_scale is None or batch_size == base:
        return 1.0
    return (noise_scale + base) / (noise_scale + batch_size)


def find_noise_scale(history: Sequence[Interval]) -> float | None:
    """Returns the median of the last estimates, as a single one may be far off."""
    known = [each.noise_scale for each in history if each.noise_scale is not None]
    return median(known[-_NOISE_SCALES:]) if known else None


def score(interval: Interval, objective: Objective, base: int) -> float | None:
    """Returns goodput a second, dollar, joule or gram (`gangway.trainer.config.values.control.UNITS`); None without
    figures.

    `base` is the run's first batch.
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
