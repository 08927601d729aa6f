"""How a data-parallel step scales with workers: a fit, a projection over fabrics, and all-reduce on TPU slices."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from gangway.components.catalog.schema import MachineType
from gangway.components.catalog.tables import FABRIC_FIELDS, link_gbps, load_links
from gangway.components.core.findings import InputError

Mode = Literal["weak", "strong"]


class Network(Protocol):
    """The time of an all-reduce over a network."""

    def all_reduce_sec(self, workers: int, num_bytes: float) -> float:
        """Seconds of one all-reduce of each worker's `num_bytes`; 0 for one worker."""


@dataclass(frozen=True)
class Links:
    """Links between and inside machines. `inside_gbps`: of one accelerator, one direction, infinite if unknown."""

    gpus_per_node: int
    inside_gbps: float
    between_gbps: float
    inside_latency_sec: float
    between_latency_sec: float
    sources: tuple[str, ...] = ()

    def all_reduce_sec(self, workers: int, num_bytes: float) -> float:
        """Seconds of one all-reduce; the slower link sets the pace. Between two nodes NCCL uses trees, not a ring."""
        in_node, nodes = min(workers, self.gpus_per_node), math.ceil(workers / self.gpus_per_node)
        gbit = num_bytes * 8e-9
        ring = 2 * (workers - 1) / workers * gbit
        between = {1: 0.0, 2: gbit}.get(nodes, ring)
        inside = ring if in_node > 1 else 0.0
        latency_sec = 2 * (in_node - 1) * self.inside_latency_sec + 2 * (nodes - 1) * self.between_latency_sec
        return max(inside / self.inside_gbps, between / self.between_gbps) + latency_sec


@dataclass(frozen=True)
class StepModel:
    """`serial_share`: of the compute, does not shrink with the batch; `overlap`: overlaps communication."""

    compute_sec: float
    gradient_bytes: float
    serial_share: float = 0.0
    overlap: float = 0.0


@dataclass(frozen=True)
class Spread:
    """Median, minimum and maximum over rounds."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class AmdahlFit:
    """Strong scaling. `serial_share`: 0..1; `worst_residual`: maximum |fitted - measured| / measured."""

    compute_sec: float
    serial_share: float
    worst_residual: float

    def step_sec(self, workers: float, all_reduce: float) -> float:
        """The fitted step with an all-reduce of these seconds; workers may be fractional, one worker is as measured."""
        return self.compute_sec * (self.serial_share + (1 - self.serial_share) / workers) + all_reduce


def get_links(machine: MachineType) -> Links:
    """The catalogue's links. InputError: unknown bandwidth."""
    number, inside = machine.num_accelerators.value, link_gbps(machine.accelerator)
    network = machine.network_gbps
    if network.value is None or (number > 1 and inside.value is None):
        what = "network_gbps" if network.value is None else f"link between its {machine.accelerator}"
        raise InputError(
            machine.name,
            f"the catalogue knows no bandwidth of its {what}: nothing can be projected",
            fix="choose another machine type",
        )
    table = load_links()
    fabrics = (getattr(machine, field, None) for field in FABRIC_FIELDS)
    kind = next((str(fabric.kind) for fabric in fabrics if fabric is not None), "ethernet")
    delays, between = table.latency, table.latency.between(kind)
    own, outer = table.bus_share, table.efa_bus_share if kind == "efa" else table.bus_share
    sources = [f"between machines: {network.value:g} Gbit/s, {network.source}"]
    if number > 1:
        sources.append(f"inside: {inside.value:g} Gbit/s, {inside.source}")
    sources.append(f"latency: {between.value:g} us between, {delays.inside_usec.value:g} inside, {between.source}")
    sources += dict.fromkeys((own.source, outer.source))
    return Links(
        gpus_per_node=number,
        inside_gbps=(inside.value or math.inf) * own.value,
        between_gbps=network.value * outer.value,
        inside_latency_sec=delays.inside_usec.value * 1e-6,
        between_latency_sec=between.value * 1e-6,
        sources=tuple(sources),
    )


def step_sec(model: StepModel, network: Network, workers: int, mode: Mode) -> float:
    """Seconds of one step of so many workers."""
    share = 1.0 if mode == "weak" else model.serial_share + (1 - model.serial_share) / workers
    compute = model.compute_sec * share
    travel = network.all_reduce_sec(workers, model.gradient_bytes)
    return compute + max(0.0, travel - model.overlap * compute)


def efficiency(model: StepModel, network: Network, workers: int, mode: Mode) -> float:
    """Images a second per worker relative to a single worker, in (0, 1]."""
    one = model.compute_sec
    many = step_sec(model, network, workers, mode)
    return min(1.0, one / many if mode == "weak" else one / (workers * many))  # rounding may exceed 1


def measured_efficiency(one_sec: Sequence[float], many_sec: Sequence[float], workers: int, mode: Mode) -> Spread:
    """The efficiency of each round: seconds of a step of one worker, and of all workers, by round."""
    parts = 1 if mode == "weak" else workers
    values = [one / (parts * many) for one, many in zip(one_sec, many_sec, strict=True)]
    return Spread(statistics.median(values), min(values), max(values))


def fit_amdahl(step: Mapping[int, float], all_reduce: Mapping[int, float]) -> AmdahlFit:
    """Fit the serial share of a step by least squares through the measured step of one worker: with y = (t(n) -
    all-reduce(n)) / t(1) and x = 1 - 1/n, y - 1/n = serial x x. `step`: seconds by number of workers, strong scaling,
    with one worker and another number; `all_reduce`: seconds of waiting in it, by number of workers above one.
    """
    one = step[1]
    many = [workers for workers in step if workers > 1]
    x = {workers: 1 - 1 / workers for workers in many}
    y = {workers: (step[workers] - all_reduce[workers]) / one - 1 / workers for workers in many}
    raw = sum(x[workers] * y[workers] for workers in many) / sum(x[workers] ** 2 for workers in many)
    fit = AmdahlFit(one, min(1.0, max(0.0, raw)), 0.0)
    residuals = [abs(fit.step_sec(n, all_reduce[n]) - step[n]) / step[n] for n in many]
    return AmdahlFit(one, fit.serial_share, max(residuals))


@dataclass(frozen=True)
class Slice:
    """One slice. `sides`: chips along each axis longer than one; `wraps`: the ends of every axis are linked."""

    sides: tuple[int, ...]
    wraps: bool

    @property
    def chips(self) -> int:
        """All of them."""
        return math.prod(self.sides)


@dataclass(frozen=True)
class Torus:
    """Slices of one TPU generation, ascending. `link_gbps`: between neighbours, one direction."""

    slices: tuple[Slice, ...]
    link_gbps: float
    hop_sec: float
    sources: tuple[str, ...] = ()

    def all_reduce_sec(self, workers: int, num_bytes: float) -> float:
        """Seconds of one all-reduce on a slice with that many chips."""
        if workers == 1:
            return 0.0
        found = next(one for one in self.slices if one.chips == workers)
        axes = len(found.sides)
        gbps = self.link_gbps * (2 if found.wraps else 1)
        parts = [num_bytes * 8e-9 / axes] * axes
        seconds = 0.0
        for phase in range(axes):
            sides = [found.sides[(part + phase) % axes] for part in range(axes)]
            seconds += max(
                gbit * (side - 1) / side / gbps + (side - 1) * self.hop_sec
                for gbit, side in zip(parts, sides, strict=True)
            )
            parts = [gbit / side for gbit, side in zip(parts, sides, strict=True)]
        return 2 * seconds


def get_torus(generation: str, topologies: Iterable[str]) -> Torus:
    """Slices of a TPU generation. `topologies`: ascending, several chips each."""
    table, chip = load_links(), link_gbps(f"{generation}x1")
    facts, hop = table.ici[generation], table.latency.ici_usec
    assert chip.value is not None, "a test holds every generation against links.yaml"
    every = facts.wraps_every.value
    sides = [[int(side) for side in topology.split("x")] for topology in topologies]
    return Torus(
        slices=tuple(
            Slice(tuple(side for side in each if side > 1), all(side % every == 0 for side in each)) for each in sides
        ),
        link_gbps=chip.value / facts.ports.value * table.bus_share.value,
        hop_sec=hop.value * 1e-6,
        sources=(
            f"ICI: {chip.value:g} Gbit/s of a chip in one direction, {chip.source}",
            f"its links: {facts.ports.value}, {facts.ports.source}",
            f"wraps round: every side a multiple of {every}, {facts.wraps_every.source}",
            f"latency: {hop.value:g} us a hop, {hop.source}",
            table.bus_share.source,
        ),
    )


@dataclass(frozen=True)
class Slices:
    """Slices of one shape that average inside, then between. `between_gbps`: all chips of one slice together."""

    torus: Torus
    chips: int
    workers: int
    between_gbps: float
    between_latency_sec: float
    sources: tuple[str, ...] = ()

    def all_reduce_sec(self, workers: int, num_bytes: float) -> float:
        """Seconds of one all-reduce. `workers`: of whole slices; `num_bytes`: of each worker's buffer."""
        inside, num = self.torus.all_reduce_sec(self.chips, num_bytes), workers // self.workers
        between = num_bytes * 8e-9 / num / self.between_gbps + self.between_latency_sec
        return inside + 2 * (num - 1) * between


def get_slices(generation: str, topology: str, workers: int, num_slices: int) -> Slices:
    """Slices of that topology, each with so many workers. InputError: the network speed between them is unknown."""
    torus, table = get_torus(generation, [topology]), load_links()
    dcn = table.ici[generation].dcn_gbps
    if num_slices > 1 and dcn.value is None:
        raise InputError(
            generation,
            "the catalogue knows no bandwidth of the network between its slices (DCN): nothing can be projected",
            fix="one slice, or another generation",
        )
    (one,) = torus.slices
    several = () if num_slices == 1 else (f"between slices: {dcn.value:g} Gbit/s of a chip, {dcn.source}",)
    return Slices(
        torus=torus,
        chips=one.chips,
        workers=workers,
        between_gbps=math.inf if dcn.value is None else dcn.value * one.chips * table.bus_share.value,
        between_latency_sec=table.latency.ethernet_usec.value * 1e-6,
        sources=(*torus.sources, *several),
    )
