"""Published full-load power of whole machines, and the draw of hosts without accelerators."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

from gangway.components.catalog.schema import Fact, Frozen
from gangway.components.catalog.tables import by_model, read_file, with_facts

__all__ = [
    "FullLoad",
    "HostPower",
    "PowerTable",
    "ServerPower",
    "TrainingPower",
    "WaitingPower",
    "WaitingShare",
    "load_power",
]


class TrainingPower(Frozen):
    """A node in heavy training: average share of its rated power, and the observed maximum."""

    share: Fact[float]
    measured_peak_watts: Fact[float]


class ServerPower(Frozen):
    """A maker's own server: total rated power and its number of boards."""

    rated_watts: Fact[float]
    boards: Fact[int]
    board_watts: Fact[float]

    def host_watts(self, boards: int, share: float) -> float:
        """Watts of the host for this number of boards, at a share of the rating."""
        rest = self.rated_watts.value - self.boards.value * self.board_watts.value
        return rest * share * boards / self.boards.value


class HostPower(Frozen):
    """A host by processor, at half load."""

    watts_per_vcpu: Fact[float]
    watts_per_gib: Fact[float]

    def host_watts(self, vcpus: float, memory_gib: float) -> float:
        """Watts of a host of this size."""
        return vcpus * self.watts_per_vcpu.value + memory_gib * self.watts_per_gib.value


class WaitingPower(Frozen):
    """Draw of an idle board with a context."""

    watts: Fact[float]


class WaitingShare(Frozen):
    """Idle draw as a share of the board's rating, for models without a measurement."""

    share: Fact[float]


class FullLoad(Frozen):
    """Full-load power by machine type."""

    machines: Fact[Mapping[str, float]]


class PowerTable(Frozen):
    """`servers` and `waiting` by accelerator model, `hosts` by processor maker."""

    training: TrainingPower
    waiting: Mapping[str, WaitingPower]
    waiting_others: WaitingShare
    servers: Mapping[str, ServerPower]
    hosts: Mapping[Literal["intel", "amd"], HostPower]
    full_load: FullLoad


@cache
def load_power() -> PowerTable:
    """The table, read once per process."""
    tables, sources = read_file(Path(__file__).parent / "power.yaml")
    return PowerTable.model_validate(
        {
            "training": with_facts(TrainingPower, tables["training"], sources),
            "waiting": by_model(WaitingPower, tables["waiting"], sources),
            "waiting_others": with_facts(WaitingShare, tables["waiting_others"], sources),
            "servers": {model: with_facts(ServerPower, row, sources) for model, row in tables["servers"].items()},
            "hosts": {maker: with_facts(HostPower, row, sources) for maker, row in tables["hosts"].items()},
            "full_load": with_facts(FullLoad, tables["full_load_watts"], sources),
        }
    )
