"""A figure of a job's record: a number that says where it came from, or why there is none. Unknown is never zero."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from pydantic import FiniteFloat

from trainer.records.quantity import Frozen


class Source(StrEnum):
    """Where a figure came from, the best first: noted by the engine, said by the job, said in the engines' file, of a
    catalogue's list, of a model.
    """

    MEASURED = "measured"
    REPORTED = "reported"
    TOLD = "told"
    LIST_PRICE = "list price"
    ESTIMATED = "estimated"


class Figure(Frozen):
    """`note`: what a reader has to know of it; may be empty."""

    value: FiniteFloat
    unit: str
    source: Source
    note: str = ""


@dataclass(frozen=True)
class Absent:
    """A figure that nobody has, and why."""

    why: str


Maybe: TypeAlias = Figure | Absent


def worst(*sources: Source) -> Source:
    """That of a figure made of several."""
    return max(sources, key=[*Source].index)


def measured(value: float, unit: str, note: str = "") -> Figure:
    """What the engine has noted."""
    return Figure(value=value, unit=unit, source=Source.MEASURED, note=note)


def product(parts: Mapping[str, Maybe], unit: str, note: str) -> Maybe:
    """Of figures by their names; absent where one of them is."""
    known = [part for part in parts.values() if isinstance(part, Figure)]
    if len(known) < len(parts):
        return _without(parts)
    value = math.prod(part.value for part in known)
    return Figure(value=value, unit=unit, source=worst(*(part.source for part in known)), note=note)


def ratio(top: tuple[str, Maybe], bottom: tuple[str, Maybe], unit: str, per: float = 1.0) -> Maybe:
    """`top` for `per` of `bottom`, each with its name; absent where one of them is, or there is none of `bottom`."""
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
    """The record says of each by itself why it is absent."""
    return Absent(", ".join(f"no {name}" for name, part in parts.items() if isinstance(part, Absent)))
