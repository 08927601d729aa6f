"""Failure rates of nodes, and what is known about spot markets."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from gangway.components.catalog.schema import Fact, Frozen, MachineType
from gangway.components.catalog.tables import by_model, read_file, with_facts

__all__ = [
    "ReliabilityTable",
    "SpotMarket",
    "failure_band",
    "failures_per_hour",
    "load_reliability",
]


class Failures(Frozen):
    """Hours between failures that stop a job, per accelerator with its share of the machine."""

    accelerator_hours: Fact[float]


class FailureBand(Frozen):
    """The same, at the lowest and the highest published rate."""

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
    """`failures` by accelerator model; `others` covers every other model."""

    failures: Mapping[str, Failures]
    others: Failures
    band: FailureBand
    spot: SpotMarket
    repair: Repair


@cache
def load_reliability() -> ReliabilityTable:
    """The table, read once per process."""
    tables, sources = read_file(Path(__file__).parent / "reliability.yaml")
    return ReliabilityTable.model_validate(
        {
            "failures": by_model(Failures, tables["failures"], sources),
            **{
                name: with_facts(model, tables[name], sources)
                for name, model in (
                    ("others", Failures),
                    ("band", FailureBand),
                    ("spot", SpotMarket),
                    ("repair", Repair),
                )
            },
        }
    )


def failures_per_hour(machine: MachineType) -> Fact[float]:
    """Failures per hour, by accelerators: a simplification, half of the causes in the Llama 3 paper are not GPUs."""
    table, number = load_reliability(), machine.num_accelerators.value
    fact = table.failures.get(machine.accelerator.rpartition("x")[0], table.others).accelerator_hours
    return fact.model_copy(update={"value": number / fact.value})


def failure_band(machine: MachineType) -> tuple[float, float]:
    """The rate per hour at its lowest and at its highest."""
    band, number = load_reliability().band, machine.num_accelerators.value
    return number / band.rarest.value, number / band.most_often.value
