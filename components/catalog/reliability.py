"""Published statistics: failures of nodes, spot markets, and the jobs of shared clusters, for generated traces."""

from collections.abc import Mapping
from functools import cache

from gangway.components.catalog.schema import Fact, Frozen, MachineType
from gangway.components.catalog.tables import read_table, table_reader


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
