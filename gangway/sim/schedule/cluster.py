"""A simulated cluster: rungs of capacity with prices and outages, power, the cost of restarts, and what it uses."""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from gangway.components.estimate.spot import RESTART_SEC, SAVE_SEC, best_interval_sec


@dataclass(frozen=True)
class Hourly:
    """Constant within each hour. `values`: of hours 0, 1, ...; they repeat, so one value is a constant and 24 are a
    daily cycle.

    >>> Hourly((2.0, 4.0)).integral(1800, 5400)
    3.0
    """

    values: tuple[float, ...]

    def at(self, sec: float) -> float:
        """The value at a second."""
        return self.values[int(sec // 3600) % len(self.values)]

    def integral(self, from_sec: float, to_sec: float) -> float:
        """Value times hours between two seconds."""
        if len(self.values) == 1:
            return self.values[0] * (to_sec - from_sec) / 3600
        return self._up_to(to_sec / 3600) - self._up_to(from_sec / 3600)

    def _up_to(self, hours: float) -> float:
        rounds, rest = divmod(hours, len(self.values))
        whole = math.floor(rest)
        sums = (0.0, *accumulate(self.values))
        return rounds * sums[-1] + sums[whole] + (rest - whole) * self.values[whole % len(self.values)]


@dataclass(frozen=True)
class Rung:
    """Nodes of one kind of capacity. `gone_per_hour`: losses of one node; `back_hours`: mean time until it is back;
    `notice_sec`: enough for a checkpoint saves all work; `priced_in`: another region, or empty.
    """

    kind: str
    nodes: int
    usd_per_gpu_hour: Hourly | None = None
    always_paid: bool = False
    gone_per_hour: float = 0.0
    back_hours: float = 0.0
    notice_sec: float = 0.0
    priced_in: str = ""


@dataclass(frozen=True)
class Power:
    """Draw of a GPU with its share of the machine, watts: with a job, and paid but idle."""

    busy_watts: float
    idle_watts: float
    pue: float
    gco2e_per_kwh: Hourly


@dataclass(frozen=True)
class Cluster:
    """`start_sec`: from getting GPUs to the first step; `interval_sec`: of training between checkpoints, None for the
    best.
    """

    rungs: tuple[Rung, ...]
    gpus_per_node: int = 1
    power: Power | None = None
    start_sec: float = RESTART_SEC
    save_sec: float = SAVE_SEC
    interval_sec: float | None = None

    @property
    def foreign_regions(self) -> tuple[str, ...]:
        """Other regions whose prices are used, each once."""
        return tuple(dict.fromkeys(rung.priced_in for rung in self.rungs if rung.priced_in))

    @property
    def num_nodes(self) -> int:
        """Of all rungs."""
        return sum(rung.nodes for rung in self.rungs)

    @property
    def num_gpus(self) -> int:
        """With all nodes present."""
        return self.num_nodes * self.gpus_per_node

    def get_rung(self, node: int) -> int:
        """The rung of a node; nodes are numbered through the rungs."""
        for index, rung in enumerate(self.rungs):
            if node < rung.nodes:
                return index
            node -= rung.nodes
        raise IndexError(node)

    def interval_for(self, gpus: int) -> float:
        """Seconds of training between checkpoints of a job on so many GPUs, whose nodes may be of any rung."""
        if self.interval_sec is not None:
            return self.interval_sec
        rate = sum(rung.nodes * rung.gone_per_hour for rung in self.rungs) / self.num_nodes
        if rate == 0:
            return math.inf
        nodes = math.ceil(gpus / self.gpus_per_node)
        return best_interval_sec(self.save_sec, 3600 / (rate * nodes), self.start_sec)


def outages(rung: Rung, node: int, seed: int) -> Iterator[tuple[float, bool]]:
    """Yield (second, is present) per change. Every node has its own random stream: all policies meet the same."""
    if rung.gone_per_hour == 0:
        yield 0.0, True
        return
    draw = random.Random(f"outages {seed} {node}")
    mean_there_sec, mean_gone_sec = 3600 / rung.gone_per_hour, rung.back_hours * 3600
    is_present, sec = draw.random() < mean_there_sec / (mean_there_sec + mean_gone_sec), 0.0
    while True:
        yield sec, is_present
        mean_sec = mean_there_sec if is_present else mean_gone_sec
        sec += draw.expovariate(1 / mean_sec) if mean_sec > 0 else 0.0
        is_present = not is_present


@dataclass
class Meter:
    """Sums since second 0; `usd` is None without a price, `kwh` and `gco2e` without a power."""

    cluster: Cluster
    now_sec: float = 0.0
    paid_gpu_sec: float = 0.0
    idle_gpu_sec: float = 0.0
    usd: float | None = 0.0
    kwh: float | None = 0.0
    gco2e: float | None = 0.0

    def advance(self, to_sec: float, paid_nodes: Sequence[int], busy_gpus: Sequence[int]) -> None:
        """Advance time with so many paid nodes and busy GPUs per rung."""
        gap_sec, from_sec, self.now_sec = to_sec - self.now_sec, self.now_sec, to_sec
        if gap_sec <= 0:
            return
        watts = 0.0
        for rung, nodes, busy in zip(self.cluster.rungs, paid_nodes, busy_gpus, strict=True):
            paid = nodes * self.cluster.gpus_per_node
            self.paid_gpu_sec += paid * gap_sec
            self.idle_gpu_sec += (paid - busy) * gap_sec
            if paid and self.usd is not None:
                price = rung.usd_per_gpu_hour
                self.usd = None if price is None else self.usd + paid * price.integral(from_sec, to_sec)
            if self.cluster.power is not None:
                watts += busy * self.cluster.power.busy_watts + (paid - busy) * self.cluster.power.idle_watts
        if self.cluster.power is None or self.kwh is None or self.gco2e is None:
            self.kwh = self.gco2e = None
            return
        kilowatts = watts * self.cluster.power.pue / 1000
        self.kwh += kilowatts * gap_sec / 3600
        self.gco2e += kilowatts * self.cluster.power.gco2e_per_kwh.integral(from_sec, to_sec)
