"""A figure of a job's record: a number with its source, or the reason it is missing. Unknown is never zero."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from pydantic import FiniteFloat

from gangway.trainer.records.quantity import Frozen


class Source(StrEnum):
    """Where a figure came from, best first: recorded by the engine, reported by the job, declared in the engines' file,
    from a price list, from a model.
    """

    MEASURED = "measured"
    REPORTED = "reported"
    DECLARED = "told"
    LIST_PRICE = "list price"
    ESTIMATED = "estimated"


class Figure(Frozen):
    """`note`: what the reader should know; may be empty."""

    value: FiniteFloat
    unit: str
    source: Source
    note: str = ""


@dataclass(frozen=True)
class Absent:
    """A missing figure, and why."""

    why: str


Maybe: TypeAlias = Figure | Absent


def worst(*sources: Source) -> Source:
    """The source of a figure computed from several."""
    return max(sources, key=[*Source].index)


def measured(value: float, unit: str, note: str = "") -> Figure:
    """A figure that the engine recorded."""
    return Figure(value=value, unit=unit, source=Source.MEASURED, note=note)


def product(parts: Mapping[str, Maybe], unit: str, note: str) -> Maybe:
    """Of named figures; absent if one of them is."""
    known = [part for part in parts.values() if isinstance(part, Figure)]
    if len(known) < len(parts):
        return _without(parts)
    value = math.prod(part.value for part in known)
    return Figure(value=value, unit=unit, source=worst(*(part.source for part in known)), note=note)


def ratio(top: tuple[str, Maybe], bottom: tuple[str, Maybe], unit: str, per: float = 1.0) -> Maybe:
    """`top` per `per` of `bottom`, each with its name; absent if one is absent or `bottom` is 0."""
    (top_name, above), (bottom_name, below) = top, bottom
    if not (isinstance(above, Figure) and isinstance(below, Figure)):
        return _without(dict((top, bottom)))
    if not below.value:
        return Absent(f"{bottom_name} is 0")
    if not math.isfinite(value := above.value / below.value * per):
        return Absent(f"{bottom_name} is next to 0")
    return Figure(
        value=value, unit=unit, source=worst(above.source, below.source),
        note=f"{top_name} / {bottom_name}",
    )  # fmt: skip


def _without(parts: Mapping[str, Maybe]) -> Absent:
    """The record gives each missing figure's reason separately."""
    return Absent(", ".join(f"no {name}" for name, part in parts.items() if isinstance(part, Absent)))
