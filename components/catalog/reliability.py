"""How often nodes fail by themselves, and what is known of spot markets: facts, and a node's rate from them."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from components.catalog.schema import Fact, Frozen, MachineType
from components.catalog.tables import by_model, read_file, with_facts

__all__ = [
    "ReliabilityTable",
    "SpotMarket",
    "failure_band",
    "failures_per_hour",
    "load_reliability",
]


class Failures(Frozen):
    """Hours of one accelerator, with its share of the machine, from one failure that stops a job to the next."""

    accelerator_hours: Fact[float]


class FailureBand(Frozen):
    """The same, where they were rarest and where they came most often."""

    rarest: Fact[float]
    most_often: Fact[float]


class SpotMarket(Frozen):
    """Of GPU machines where somebody looked for weeks: the share of the time in which spot was to be had, in the mean
    and in the worst and best zone; how often a node was taken in an hour where that was most often.
    """

    there: Fact[float]
    there_low: Fact[float]
    there_high: Fact[float]
    most_taken_per_hour: Fact[float]


class Repair(Frozen):
    """Hours from a failure of one's own node until it works again."""

    hours: Fact[float]


class ReliabilityTable(Frozen):
    """`failures` by the accelerator's model; `others` stands for every other."""

    failures: Mapping[str, Failures]
    others: Failures
    band: FailureBand
    spot: SpotMarket
    repair: Repair


@cache
def load_reliability() -> ReliabilityTable:
    """The table, read once a process."""
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
    """How often one node fails in an hour. Machines of fewer accelerators fail as much less often, TPU slices as much
    more often as they have chips: a simplification, half of the causes in the Llama 3 paper are no GPU's.
    """
    table, number = load_reliability(), machine.num_accelerators.value
    fact = table.failures.get(machine.accelerator.rpartition("x")[0], table.others).accelerator_hours
    return fact.model_copy(update={"value": number / fact.value})


def failure_band(machine: MachineType) -> tuple[float, float]:
    """The same where failures are rarest and where they are most frequent."""
    band, number = load_reliability().band, machine.num_accelerators.value
    return number / band.rarest.value, number / band.most_often.value
