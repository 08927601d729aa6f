"""A cluster to simulate: rungs of capacity in the order in which they are taken, what they cost, how often a node goes
and how long until such a node is to be had again; power, and what a restart and a checkpoint take.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from components.estimate.spot import RESTART_SEC, SAVE_SEC, best_interval_sec
from gangway.sim.schedule.hourly import Hourly

__all__ = ["Cluster", "Power", "Rung", "outages"]


@dataclass(frozen=True)
class Rung:
    """Nodes of one kind of capacity.

    Attributes:
        kind: reserved, spot, on-demand, as a stack file has it.
        nodes: of it, at most.
        usd_per_gpu_hour: None where nobody knows.
        always_paid: whether used or not, as what is reserved is; other nodes are paid while a job is on them.
        gone_per_hour: how often one node goes in an hour, taken or failed.
        back_hours: mean time until such a node is to be had again.
        notice_sec: warning before a node goes; one long enough for a checkpoint saves all work.
        priced_in: the other region whose price stands in; empty where none does.
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
    """Draw of a GPU with its share of the machine, watts, while a job has it and while it is paid without one."""

    busy_watts: float
    idle_watts: float
    pue: float
    gco2e_per_kwh: Hourly


@dataclass(frozen=True)
class Cluster:
    """All of it.

    Attributes:
        rungs: in the order in which their nodes are taken.
        gpus_per_node: of every node.
        power: None where nobody publishes what the machines draw.
        start_sec: from having its GPUs until a job's first step, each time.
        save_sec: training stands still for so long at each checkpoint.
        interval_sec: of training from one checkpoint to the next; the best one by the rates of the rungs (Young, Daly)
            where None, and none at all where no node ever goes.
    """

    rungs: tuple[Rung, ...]
    gpus_per_node: int = 1
    power: Power | None = None
    start_sec: float = RESTART_SEC
    save_sec: float = SAVE_SEC
    interval_sec: float | None = None

    @property
    def foreign_regions(self) -> tuple[str, ...]:
        """Other regions whose prices the dollars hold, each once."""
        return tuple(dict.fromkeys(rung.priced_in for rung in self.rungs if rung.priced_in))

    @property
    def num_nodes(self) -> int:
        """Of all rungs."""
        return sum(rung.nodes for rung in self.rungs)

    @property
    def num_gpus(self) -> int:
        """When every node is there."""
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
    """When a node changes, and whether it is there from then on: (second, there), from second 0 on. The times of a node
    are a stream of its own, so that every policy meets the same ones; both lengths are exponential, and so is the
    first, however long the node was there before.
    """
    if rung.gone_per_hour == 0:
        yield 0.0, True
        return
    draw = random.Random(f"outages {seed} {node}")
    mean_there_sec, mean_gone_sec = 3600 / rung.gone_per_hour, rung.back_hours * 3600
    there, sec = draw.random() < mean_there_sec / (mean_there_sec + mean_gone_sec), 0.0
    while True:
        yield sec, there
        mean_sec = mean_there_sec if there else mean_gone_sec
        sec += draw.expovariate(1 / mean_sec) if mean_sec > 0 else 0.0
        there = not there
