"""Emissions of making whole machines, with the band that the sources leave open, and how long a machine is in use."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from components.catalog.schema import Fact, Frozen, MachineType
from components.catalog.tables import by_model, read_file, with_facts

__all__ = ["EmbodiedTable", "MachineEmissions", "life_hours", "load_embodied", "machine_emissions"]


class WholeMachine(Frozen):
    """A machine with all its accelerators: how many, its vCPUs, and kg CO2e with its ends."""

    accelerators: Fact[int]
    vcpus: Fact[int]
    kg_co2e: Fact[float | None]
    low: Fact[float | None]
    high: Fact[float | None]


class Life(Frozen):
    """How long a machine is in use before another takes its place."""

    hours: Fact[float]


class EmbodiedTable(Frozen):
    """Machines by their accelerators' model; `unknown` stands for every other."""

    machines: Mapping[str, WholeMachine]
    life: Life
    unknown: WholeMachine


@dataclass(frozen=True)
class MachineEmissions:
    """Of making one machine of a type, kg CO2e; all None where nobody says. `share`: of the whole machine."""

    kg: Fact[float | None]
    low: Fact[float | None]
    high: Fact[float | None]
    share: float


@cache
def load_embodied() -> EmbodiedTable:
    """The table, read once a process."""
    tables, sources = read_file(Path(__file__).parent / "embodied.yaml")
    return EmbodiedTable.model_validate(
        {
            "machines": by_model(WholeMachine, tables["machines"], sources),
            "life": with_facts(Life, tables["life"], sources),
            "unknown": with_facts(WholeMachine, tables["unknown"], sources),
        }
    )


def machine_emissions(machine: MachineType) -> MachineEmissions:
    """Of one machine of the type: the larger of its accelerators' and its vCPUs' share of the whole machine, since what
    it holds of either nobody else can use.
    """
    table = load_embodied()
    whole = table.machines.get(machine.accelerator.rpartition("x")[0], table.unknown)
    boards = machine.num_accelerators.value / whole.accelerators.value
    share = min(1.0, max(boards, machine.vcpus.value / whole.vcpus.value))
    kg, low, high = (_part(fact, share) for fact in (whole.kg_co2e, whole.low, whole.high))
    return MachineEmissions(kg, low, high, share)


def _part(fact: Fact[float | None], share: float) -> Fact[float | None]:
    return fact if fact.value is None else fact.model_copy(update={"value": fact.value * share})


def life_hours() -> Fact[float]:
    """Hours over which a machine's emissions are shared out."""
    return load_embodied().life.hours
