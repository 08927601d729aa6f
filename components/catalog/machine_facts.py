"""Published facts of machines: power, emissions of making them, service life, failures; and statistics of spot markets
and of the jobs of shared clusters, for generated traces.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from gangway.components.catalog.schema import Fact, Frozen, MachineType
from gangway.components.catalog.tables import read_table, table_reader


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


class FailureBand(Frozen):
    """Hours between failures per accelerator, at the lowest and the highest published rate."""

    rarest: Fact[float]
    most_often: Fact[float]


class SpotMarket(Frozen):
    """Spot markets: share of time with capacity (mean, worst, best zone), and highest interruption rate per hour."""

    there: Fact[float]
    there_low: Fact[float]
    there_high: Fact[float]
    most_taken_per_hour: Fact[float]


class Repair(Frozen):
    """Hours from a failure of an on-premises node until it works again."""

    hours: Fact[float]


class ReliabilityTable(Frozen):
    """`accelerator_hours`: between failures that stop a job, per accelerator with its share of the machine."""

    accelerator_hours: Mapping[str, Fact[float]]
    other_accelerator_hours: Fact[float]
    band: FailureBand
    spot: SpotMarket
    repair: Repair


load_reliability = table_reader(ReliabilityTable, "reliability")


def failures_per_hour(machine: MachineType) -> Fact[float]:
    """Failures per hour, by accelerators: a simplification, half of the causes in the Llama 3 paper are not GPUs."""
    table, number = load_reliability(), machine.num_accelerators.value
    model = machine.accelerator.rpartition("x")[0]
    fact = table.accelerator_hours.get(model, table.other_accelerator_hours)
    return fact.model_copy(update={"value": number / fact.value})


def failure_band(machine: MachineType) -> tuple[float, float]:
    """The rate per hour at its lowest and at its highest."""
    band, number = load_reliability().band, machine.num_accelerators.value
    return number / band.rarest.value, number / band.most_often.value


class TraceStatistics(Frozen):
    """`log_spread`: standard deviation of log lengths; `gpus`: share by width; `ended_early`: killed or failed."""

    mean_sec: Fact[float]
    mean_gpus: Fact[float]
    log_spread: Fact[float]
    gpus: Fact[Mapping[int, float]]
    ended_early: Fact[float]

    @property
    def sources(self) -> tuple[str, ...]:
        """The distinct sources, each with its confidence."""
        facts = (self.mean_sec, self.mean_gpus, self.log_spread, self.gpus, self.ended_early)
        return tuple(dict.fromkeys(f"{fact.confidence}: {fact.source}" for fact in facts))


class JobTraces(Frozen):
    """Statistics by cluster."""

    philly: TraceStatistics


@cache
def load_philly() -> TraceStatistics:
    """Microsoft's Philly, 2017; read once per process."""
    return read_table(JobTraces, "job_traces").philly
