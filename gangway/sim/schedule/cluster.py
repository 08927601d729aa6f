"""A simulated cluster: rungs of capacity with prices and outages, power, and the cost of restarts and checkpoints."""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from gangway.components.estimate.spot import RESTART_SEC, SAVE_SEC, best_interval_sec
from gangway.sim.schedule.hourly import Hourly

__all__ = ["Cluster", "Power", "Rung", "outages"]


@dataclass(frozen=True)
class Rung:
    """Nodes of one kind of capacity.

    Attributes:
        kind: reserved, spot, on-demand, as in a stack file.
        usd_per_gpu_hour: None if unknown.
        always_paid: used or not, such as reserved nodes; others are paid while a job is on them.
        gone_per_hour: rate of losing one node, interrupted or failed.
        back_hours: mean time until such a node is available again.
        notice_sec: warning before a node goes; one long enough for a checkpoint saves all work.
        priced_in: the region of a price from elsewhere; empty otherwise.
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
    """A cluster. `power`: None if not published; `start_sec`: from getting GPUs to the first step, each time;
    `save_sec`: pause of training per checkpoint; `interval_sec`: of training between checkpoints, None for the optimum
    by the rungs' rates (Young, Daly), or none if no node is ever lost.
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
    """Yield (second, is present) for each change of a node from second 0. Every node has its own random stream, so all
    policies meet the same outages. Both durations are exponential, hence memoryless: so is the first.
    """
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
