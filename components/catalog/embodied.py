"""Emissions of making the accelerators: kg CO2e a card, and over how many hours they are shared out.

The M of Software Carbon Intensity, (E * I + M) / R. Only the cards: nobody publishes the machines around them, so a
share worked out from this is a lower end. What a run makes of it is `components.energy`.

    >>> card_kg("H100x8").value
    575.0
    >>> card_kg("H200x8").value is None
    True
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from components.catalog.rows import by_model, read_file, with_facts
from components.catalog.schema import Fact, Frozen

__all__ = ["EmbodiedTable", "card_kg", "life_hours", "load_embodied"]


class CardEmissions(Frozen):
    """Of one accelerator card."""

    kg_co2e: Fact[float | None]


class Life(Frozen):
    """How long a card is in use before another takes its place."""

    hours: Fact[float]


class EmbodiedTable(Frozen):
    """Cards by their model; `unknown` stands for every other."""

    cards: Mapping[str, CardEmissions]
    life: Life
    unknown: CardEmissions


@cache
def load_embodied() -> EmbodiedTable:
    """The table, read once a process."""
    tables, sources = read_file(Path(__file__).parent / "embodied.yaml")
    return EmbodiedTable.model_validate(
        {
            "cards": by_model(CardEmissions, tables["cards"], sources),
            "life": with_facts(Life, tables["life"], sources),
            "unknown": with_facts(CardEmissions, tables["unknown"], sources),
        }
    )


def card_kg(accelerator: str) -> Fact[float | None]:
    """Of one card of `accelerator`, such as `H100x8`, in kg CO2e; None where nobody says."""
    table = load_embodied()
    return table.cards.get(accelerator.rpartition("x")[0], table.unknown).kg_co2e


def life_hours() -> Fact[float]:
    """Hours over which a card's emissions are shared out."""
    return load_embodied().life.hours
