"""Emissions of making whole machines, with the range of the sources, and the service life of a machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gangway.components.catalog.schema import Fact, Frozen, MachineType
from gangway.components.catalog.tables import by_model, read_file, with_facts

__all__ = ["EmbodiedTable", "MachineEmissions", "life_hours", "load_embodied", "machine_emissions"]


class WholeMachine(Frozen):
    """A machine with all its accelerators: their number, its vCPUs, and kg CO2e with its range."""

    accelerators: Fact[int]
    vcpus: Fact[int]
    kg_co2e: Fact[float | None]
    low: Fact[float | None]
    high: Fact[float | None]


class Life(Frozen):
    """The service life of a machine."""

    hours: Fact[float]


class EmbodiedTable(Frozen):
    """Machines by accelerator model; `unknown` covers every other model."""

    machines: Mapping[str, WholeMachine]
    life: Life
    unknown: WholeMachine


@dataclass(frozen=True)
class MachineEmissions:
    """Emissions of making one machine, kg CO2e; None if unpublished. `share`: of the whole machine."""

    kg: Fact[float | None]
    low: Fact[float | None]
    high: Fact[float | None]
    share: float


@cache
def load_embodied() -> EmbodiedTable:
    """The table, read once per process."""
    tables, sources = read_file(Path(__file__).parent / "embodied.yaml")
    return EmbodiedTable.model_validate(
        {
            "machines": by_model(WholeMachine, tables["machines"], sources),
            "life": with_facts(Life, tables["life"], sources),
            "unknown": with_facts(WholeMachine, tables["unknown"], sources),
        }
    )


def machine_emissions(machine: MachineType) -> MachineEmissions:
    """Emissions of one machine: the larger share, by accelerators or vCPUs, of the whole machine that it occupies."""
    table = load_embodied()
    whole = table.machines.get(machine.accelerator.rpartition("x")[0], table.unknown)
    boards = machine.num_accelerators.value / whole.accelerators.value
    share = min(1.0, max(boards, machine.vcpus.value / whole.vcpus.value))
    kg, low, high = (_part(fact, share) for fact in (whole.kg_co2e, whole.low, whole.high))
    return MachineEmissions(kg, low, high, share)


def _part(fact: Fact[float | None], share: float) -> Fact[float | None]:
    return fact if fact.value is None else fact.model_copy(update={"value": fact.value * share})


def life_hours() -> Fact[float]:
    """Hours over which the emissions of a machine are spread."""
    return load_embodied().life.hours
