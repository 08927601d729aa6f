"""The power of machines and their hosts, the emissions of making machines, and how long machines serve."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gangway.components.catalog.schema import Fact, Frozen, MachineType
from gangway.components.catalog.tables import table_reader


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


class PowerTable(Frozen):
    """`waiting`: watts of an idle board by model; `waiting_others`: as a share of the rating; `servers`: by model."""

    training: TrainingPower
    busy_share: Fact[float]
    error_band: Fact[float]
    waiting: Mapping[str, Fact[float]]
    waiting_others: Fact[float]
    servers: Mapping[str, ServerPower]
    hosts: Mapping[Literal["intel", "amd"], HostPower]
    full_load_watts: Fact[Mapping[str, float]]


load_power = table_reader(PowerTable, "power")


class WholeMachine(Frozen):
    """A machine with all its accelerators: their number, its vCPUs, and kg CO2e with its range."""

    accelerators: Fact[int]
    vcpus: Fact[int]
    kg_co2e: Fact[float | None]
    low: Fact[float | None]
    high: Fact[float | None]


class EmbodiedTable(Frozen):
    """Machines by accelerator model; `unknown` covers every other model."""

    machines: Mapping[str, WholeMachine]
    life_hours: Fact[float]
    unknown: WholeMachine


@dataclass(frozen=True)
class MachineEmissions:
    """Emissions of making one machine, kg CO2e; None if unpublished. `share`: of the whole machine."""

    kg: Fact[float | None]
    low: Fact[float | None]
    high: Fact[float | None]
    share: float


load_embodied = table_reader(EmbodiedTable, "embodied")


def machine_emissions(machine: MachineType) -> MachineEmissions:
    """Emissions of one machine: the larger share, by accelerators or vCPUs, of the whole machine that it occupies."""
    table = load_embodied()
    whole = table.machines.get(machine.accelerator.rpartition("x")[0], table.unknown)
    boards = machine.num_accelerators.value / whole.accelerators.value
    share = min(1.0, max(boards, machine.vcpus.value / whole.vcpus.value))
    kg, low, high = (
        fact if fact.value is None else fact.model_copy(update={"value": fact.value * share})
        for fact in (whole.kg_co2e, whole.low, whole.high)
    )
    return MachineEmissions(kg, low, high, share)
