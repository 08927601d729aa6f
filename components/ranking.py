"""Which offer to take: quotes by cost, carbon or risk, each with the reason for its place in words.

What cannot be done is set apart, and so is what lacks a figure: nothing is ranked by a guess. The quotes are made by
`components.quotes`. Pure.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from components.offers import KINDS
from components.quotes import Quoted

__all__ = ["SORTS", "Ranking", "Sort", "rank"]

Sort = Literal["cost", "carbon", "risk"]
SORTS: tuple[Sort, ...] = get_args(Sort)
# Sums of floats that differ by rounding alone are equal, and the next criterion decides.
DIGITS = 9


@dataclass(frozen=True)
class Ranking:
    """Offers by what becomes of the job on them.

    Attributes:
        ranked: best first, each with the reason for its place.
        infeasible: the job is not done on them, or not in time.
        unknown: they lack a figure.
    """

    ranked: tuple[tuple[Quoted, str], ...]
    infeasible: tuple[Quoted, ...]
    unknown: tuple[Quoted, ...]


def rank(quoted: Iterable[Quoted], sort: Sort) -> Ranking:
    """Sorts out what cannot be done and what is not known, ranks the rest and says why each stands where it does."""
    able: list[Quoted] = []
    infeasible: list[Quoted] = []
    unknown: list[Quoted] = []
    for each in quoted:
        lacks = each.missing or (sort == "carbon" and each.gco2e is None)
        (infeasible if each.problem else unknown if lacks else able).append(each)
    able.sort(key=lambda q: (*_criteria(q, sort), KINDS.index(q.offer.kind), q.offer.label))
    reasons = (_reason(place, each, able, sort) for place, each in enumerate(able))
    return Ranking(tuple(zip(able, reasons, strict=True)), tuple(infeasible), tuple(unknown))


def _criteria(quoted: Quoted, sort: Sort) -> tuple[float, ...]:
    """Smaller is better; the first difference decides."""
    usd = math.inf if quoted.usd is None else round(quoted.usd, DIGITS)
    carbon = math.inf if quoted.gco2e is None else round(quoted.gco2e, DIGITS)
    match sort:
        case "cost":
            return usd, quoted.risk_hours, carbon
        case "carbon":
            return carbon, usd, quoted.risk_hours
        case "risk":
            return quoted.risk_hours, usd, carbon


def _reason(place: int, quoted: Quoted, able: Sequence[Quoted], sort: Sort) -> str:
    """Why it ranks where it does, in words: against the best, and what its kind means."""
    best = able[0]
    if place == 0:
        first = {"cost": "the cheapest", "carbon": "emits least", "risk": "least at risk"}[sort]
        parts = [first if len(able) > 1 else "the only one", _against_on_demand(quoted)]
    elif sort == "carbon":
        parts = [_more(quoted.gco2e, best.gco2e, "emissions"), _more(quoted.usd, best.usd, "dollars")]
    elif sort == "risk" and quoted.risk_hours > best.risk_hours:
        parts = [f"{_hours(quoted.risk_hours)} expected to be lost", _more(quoted.usd, best.usd, "dollars")]
    else:
        parts = [_more(quoted.usd, best.usd, "dollars"), _more(quoted.gco2e, best.gco2e, "emissions")]
    return "; ".join(part for part in (*parts, quoted.details) if part)


def _against_on_demand(quoted: Quoted) -> str:
    """The saving of spot against on demand at the same place, for the whole job."""
    offer = quoted.offer
    if offer.kind != "spot" or not offer.on_demand or not offer.price.value or quoted.spot is None:
        return ""
    saving = 1 - offer.price.value / offer.on_demand * quoted.spot.goodput**-1
    return f"{saving:.0%} below on demand at the same place" if saving > 0 else "no saving over on demand there"


def _more(value: float | None, best: float | None, unit: str) -> str:
    """`12 % more dollars` than the best; empty where one of both is not known, or they are equal."""
    if value is None or best is None or best == 0:
        return ""
    ratio = value / best
    if abs(ratio - 1) < 0.005:
        return f"the same {unit}"
    if ratio >= 2:
        return f"{ratio:.1f} times the {unit}"
    return f"{abs(ratio - 1):.0%} {'more' if ratio > 1 else 'fewer'} {unit}"


def _hours(hours: float) -> str:
    return f"{hours * 60:.0f} min" if hours < 1 else f"{hours:.1f} h"
