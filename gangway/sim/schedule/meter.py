"""Usage of a simulated cluster over time: GPU-seconds paid and idle, dollars, energy, carbon."""

from collections.abc import Sequence
from dataclasses import dataclass

from gangway.sim.schedule.cluster import Cluster

__all__ = ["Meter"]


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
