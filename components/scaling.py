"""How a data-parallel step grows with the number of workers: a fit to what was measured, and a projection beyond it.

    t(1) = compute                                              one worker has nobody to wait for
    t(n) = compute x (serial + (1 - serial) / n) + waits(n)     strong scaling: the batch is shared out
    t(n) = compute + waits(n)                                   weak scaling: each worker has a batch of its own
    waits(n) = max(0, all-reduce(n) - overlap x the compute of that step)

The all-reduce is hierarchical: g workers of a node reduce-scatter and gather inside it, and every one of them reduces
its share with those of the other nodes; the m nodes' network cards carry it all together:

    inside  = 2 (g - 1) / g x bytes / link + 2 (g - 1) x latency
    between = 2 (m - 1) / m x bytes / network + steps(m) x latency       steps: ring 2 (m - 1), tree 2 ceil(log2 m)

A TPU slice has another network, with a formula of its own: `components.scaling_torus`.

Pure. It knows nothing of stragglers, of shared networks, of a file system that is too slow, and so is an upper end. A
constant part, a part that falls with n and a ring's 2 (n - 1) / n cannot be told apart by times alone (the third is
twice the first minus twice the second): what the all-reduce takes is measured by itself and taken off first.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from components.catalog.links import latency, link_gbps
from components.catalog.rows import FABRIC_FIELDS
from components.catalog.schema import MachineType
from components.findings import InputError

__all__ = [
    "BUS_SHARE",
    "BUS_SHARE_SOURCE",
    "Algorithm",
    "AmdahlFit",
    "Links",
    "Network",
    "Spread",
    "StepModel",
    "efficiency",
    "fit_amdahl",
    "links_of",
    "measured_efficiency",
    "step_sec",
]

Mode = Literal["weak", "strong"]
Algorithm = Literal["ring", "tree"]

BUS_SHARE = 0.7
BUS_SHARE_SOURCE = "assumed: all-reduces reach 0.7 of nominal bandwidth (seen on p4d over EFA: 0.59 to 1.14)"


class Network(Protocol):
    """What an all-reduce travels over, and so how long it takes."""

    def all_reduce_sec(self, workers: int, num_bytes: float, algorithm: Algorithm = "ring") -> float:
        """Seconds of one all-reduce of each worker's `num_bytes`; 0 for one worker."""
        ...


@dataclass(frozen=True)
class Links:
    """What an all-reduce travels over.

    Attributes:
        gpus_per_node: accelerators of one machine.
        inside_gbps: of one accelerator to the others of its machine, one direction; infinite where nobody says, which
            is so only where it is alone.
        between_gbps: all network cards of one machine together.
        inside_latency_sec: of one message inside.
        between_latency_sec: of one message between machines.
        sources: where each comes from.
    """

    gpus_per_node: int
    inside_gbps: float
    between_gbps: float
    inside_latency_sec: float
    between_latency_sec: float
    sources: tuple[str, ...] = ()

    def all_reduce_sec(self, workers: int, num_bytes: float, algorithm: Algorithm = "ring") -> float:
        """Seconds of one all-reduce; 0 for one worker.

        Args:
            workers: above 0; nodes are filled one after the other.
            num_bytes: of each worker's buffer.
            algorithm: between machines; inside it is a ring.
        """
        in_node, nodes = min(workers, self.gpus_per_node), math.ceil(workers / self.gpus_per_node)
        gbit = num_bytes * 8e-9
        inside = 2 * (in_node - 1) * (gbit / in_node / self.inside_gbps + self.inside_latency_sec)
        steps = 2 * (nodes - 1) if algorithm == "ring" else 2 * math.ceil(math.log2(nodes))
        return inside + 2 * (nodes - 1) / nodes * gbit / self.between_gbps + steps * self.between_latency_sec


@dataclass(frozen=True)
class StepModel:
    """One step of one worker that is alone.

    Attributes:
        compute_sec: of the whole step.
        gradient_bytes: that all workers average in a step.
        serial_share: of the compute, which does not shrink when the batch is shared out, 0..1.
        overlap: share of a step's compute during which gradients can travel, 0..1.
        algorithm: between machines.
    """

    compute_sec: float
    gradient_bytes: float
    serial_share: float = 0.0
    overlap: float = 0.0
    algorithm: Algorithm = "ring"


@dataclass(frozen=True)
class Spread:
    """A median over rounds, and the lowest and the highest of them."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class AmdahlFit:
    """What strong scaling has shown.

    Attributes:
        compute_sec: a step of one worker, as measured.
        serial_share: fitted, 0..1.
        worst_residual: the greatest |fitted - measured| / measured over all numbers of workers.
    """

    compute_sec: float
    serial_share: float
    worst_residual: float

    def step_sec(self, workers: float, all_reduce: float) -> float:
        """The fitted step, with an all-reduce of so many seconds; exactly the measured one for one worker.

        A curve may ask between whole numbers of workers.
        """
        return self.compute_sec * (self.serial_share + (1 - self.serial_share) / workers) + all_reduce


def links_of(machine: MachineType, bus_share: float = BUS_SHARE) -> Links:
    """The links of machines of one type, by the catalogue.

    Args:
        machine: of the catalogue.
        bus_share: of nominal bandwidth that an all-reduce reaches, above 0.

    Raises:
        InputError: the catalogue does not know a bandwidth that is needed.
    """
    number, inside = machine.num_accelerators.value, link_gbps(machine.accelerator)
    network = machine.network_gbps
    if network.value is None or (number > 1 and inside.value is None):
        what = "network_gbps" if network.value is None else f"link between its {machine.accelerator}"
        raise InputError(
            machine.name,
            f"the catalogue knows no bandwidth of its {what}: nothing can be projected",
            fix="choose another machine type",
        )
    delays = latency()
    between = delays.between(_fabric_kind(machine))
    sources = [f"between machines: {network.value:g} Gbit/s, {network.source}"]
    if number > 1:
        sources.append(f"inside: {inside.value:g} Gbit/s, {inside.source}")
    sources.append(f"latency: {between.value:g} us between, {delays.inside_usec.value:g} inside, {between.source}")
    share = f"{bus_share:g} of nominal bandwidth"
    return Links(
        gpus_per_node=number,
        inside_gbps=(inside.value or math.inf) * bus_share,
        between_gbps=network.value * bus_share,
        inside_latency_sec=delays.inside_usec.value * 1e-6,
        between_latency_sec=between.value * 1e-6,
        sources=(*sources, BUS_SHARE_SOURCE if bus_share == BUS_SHARE else share),
    )


def _fabric_kind(machine: MachineType) -> str:
    """Every provider has a field of its own for it; `ethernet` where there is none."""
    fabrics = (getattr(machine, field, None) for field in FABRIC_FIELDS)
    return next((str(fabric.kind) for fabric in fabrics if fabric is not None), "ethernet")


def step_sec(model: StepModel, network: Network, workers: int, mode: Mode) -> float:
    """Seconds of one step of so many workers."""
    share = 1.0 if mode == "weak" else model.serial_share + (1 - model.serial_share) / workers
    compute = model.compute_sec * share
    travel = network.all_reduce_sec(workers, model.gradient_bytes, model.algorithm)
    return compute + max(0.0, travel - model.overlap * compute)


def efficiency(model: StepModel, network: Network, workers: int, mode: Mode) -> float:
    """Images a second of each worker, over those of one that is alone: above 0, at most 1; 1 for one worker."""
    one = model.compute_sec
    many = step_sec(model, network, workers, mode)
    return min(1.0, one / many if mode == "weak" else one / (workers * many))  # rounding may be above 1 by a bit


def measured_efficiency(one_sec: Sequence[float], many_sec: Sequence[float], workers: int, mode: Mode) -> Spread:
    """The efficiency of each round, which ran one worker and then so many.

    Args:
        one_sec: seconds of a step of one worker, by round.
        many_sec: of so many workers, in the same rounds.
        workers: how many.
        mode: whether each had a batch of its own (weak) or a share of one.
    """
    parts = 1 if mode == "weak" else workers
    values = [one / (parts * many) for one, many in zip(one_sec, many_sec, strict=True)]
    return Spread(statistics.median(values), min(values), max(values))


def fit_amdahl(step: Mapping[int, float], all_reduce: Mapping[int, float]) -> AmdahlFit:
    """The share of a step that does not shrink with the number of workers, by least squares.

    Through the measured step of one worker, so with y = (t(n) - all-reduce(n)) / t(1) and x = 1 - 1/n:
    y - 1/n = serial x x.

    Args:
        step: seconds of a step by number of workers, strong scaling; with that of one worker, and of another number.
        all_reduce: seconds that workers waited for each other in it, by number of workers above one.
    """
    one = step[1]
    many = [workers for workers in step if workers > 1]
    x = {workers: 1 - 1 / workers for workers in many}
    y = {workers: (step[workers] - all_reduce[workers]) / one - 1 / workers for workers in many}
    raw = sum(x[workers] * y[workers] for workers in many) / sum(x[workers] ** 2 for workers in many)
    fit = AmdahlFit(one, min(1.0, max(0.0, raw)), 0.0)
    residuals = [abs(fit.step_sec(n, all_reduce[n]) - step[n]) / step[n] for n in many]
    return AmdahlFit(one, fit.serial_share, max(residuals))
