"""Whether a running job should move to another offer: the cost of the rest here and there, and of the move. Pure.

A move is a planned stop: no work is repeated; while checkpoint and data travel, the new nodes are paid for without
training. The interval of a saving covers half and twice the published or assumed interruption rate, against and for the
move, and a slow or fast transfer. A move is advised if the low end saves anything and the middle a tenth of the rest.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from gangway.components.catalog.schema import Fact
from gangway.components.estimate.offers import Offer
from gangway.components.estimate.quotes import Job, Quoted, Sort, quote
from gangway.components.estimate.spot import RESTART_SEC
from gangway.components.estimate.statistics import Band

LEAST_SHARE: Final = 0.1
"""Minimum share of the cost of staying: a smaller saving is not worth a person's hour."""
_BITS_PER_GIB = 8 * 2**30
UNITS: Final[dict[Sort, str]] = {"cost": "USD", "carbon": "gCO2e", "risk": "h"}
"""What each sort saves; risk is the time from now to the last image."""


@dataclass(frozen=True)
class Luggage:
    """Data to move, GiB, and the price per GiB to an offer; offers with an unknown price are not advised."""

    gib: float
    price_to: Callable[[Offer], Fact[float | None]]


@dataclass(frozen=True)
class Move:
    """`to`: the offer with the rest of the job, move included; `saves`: in the sort's unit; `traffic`: USD per GiB."""

    to: Quoted
    saves: Band
    hours: Band
    traffic_usd: float
    traffic: Fact[float | None]


@dataclass(frozen=True)
class Advice:
    """`best`: the move with the largest expected saving; None if no other offer is known well enough; `go`: advised."""

    here: Quoted
    best: Move | None
    go: bool
    reason: str


class _Case(NamedTuple):
    """One end, or the middle: interruption factors here and there, and the transfer rate, which is assumed."""

    here: float
    there: float
    gbps: float
    start_sec: float


_CASES = (
    _Case(here=0.5, there=2.0, gbps=0.5, start_sec=2 * RESTART_SEC),
    _Case(here=1.0, there=1.0, gbps=2.0, start_sec=RESTART_SEC),
    _Case(here=2.0, there=0.5, gbps=8.0, start_sec=RESTART_SEC),
)


def advise(here: Offer, others: Iterable[Offer], job: Job, luggage: Luggage, sort: Sort) -> Advice:
    """Compare offers for the rest of the job (`job.hours`, undisturbed). `others`: as `gangway quote` finds them."""
    job = replace(job, start_hours=0.0)  # already running; a move's start is part of its transfer
    staying = quote(here, job)
    if unknown := _unknown(staying, sort, job):
        return Advice(staying, None, go=False, reason=f"nobody knows what staying comes to: {unknown}")
    staying_value = _value(staying, sort, job)
    staying_values = [_value(quote(here, replace(job, times_taken=case.here)), sort, job) for case in _CASES]
    moves = [move for offer in others if (move := _move(here, offer, job, luggage, sort, staying_values)) is not None]

    def gain(move: Move) -> tuple[float, float, float]:
        # If staying never ends, all savings are equal: the cheapest offer is best.
        paid = move.traffic_usd if sort == "cost" else 0.0
        return move.saves.mid, move.saves.low, -_value(move.to, sort, job) - paid

    best = max(moves, key=gain, default=None)
    surely = [
        move
        for move in moves
        if move.saves.low > 0 and (math.isinf(staying_value) or move.saves.mid >= LEAST_SHARE * staying_value)
    ]
    if surely:
        return Advice(staying, max(surely, key=gain), go=True, reason="even at the low end it saves")
    return Advice(staying, best, go=False, reason=_why_not(best, staying_value, sort))


def _move(
    here: Offer, offer: Offer, job: Job, luggage: Luggage, sort: Sort, staying_values: Sequence[float]
) -> Move | None:  # fmt: skip
    """The move to an offer; None for the current one, or if unknown or infeasible. `staying_values`: by case."""
    if offer.label == here.label or (price := luggage.price_to(offer)).value is None:
        return None
    gib = luggage.gib if (offer.provider, offer.region) != (here.provider, here.region) else 0.0
    usd = gib * price.value
    saves, hours = list[float](), list[float]()
    to: Quoted | None = None
    for number, case in enumerate(_CASES):
        move_hours = (case.start_sec + gib * _BITS_PER_GIB / 1e9 / case.gbps) / 3600
        moved = quote(offer, replace(job, hours=job.hours + move_hours, times_taken=case.there))
        value = _value(moved, sort, job)
        if number == 1:
            to = moved
            if not math.isfinite(value):
                return None
        paid = usd if sort == "cost" else 0.0
        saves.append(-math.inf if not math.isfinite(value) else staying_values[number] - value - paid)
        hours.append(move_hours)
    assert to is not None, "the middle case"
    return Move(to, Band(min(saves), saves[1], max(saves)), Band(min(hours), hours[1], max(hours)), usd, price)


def _value(quoted: Quoted, sort: Sort, job: Job) -> float:
    """The figure to minimise; infinite if the job is not done, not in time, or it is unknown."""
    value = _figure(quoted, sort)
    return math.inf if value is None or quoted.missing or quoted.unpriced or _is_failing(quoted, job) else value


def _unknown(quoted: Quoted, sort: Sort, job: Job) -> str:
    if _is_failing(quoted, job):
        return ""  # whatever it costs
    no_figure = f"no figure of its {sort}" if _figure(quoted, sort) is None else ""
    return quoted.missing or quoted.unpriced or no_figure


def _figure(quoted: Quoted, sort: Sort) -> float | None:
    return {"cost": quoted.usd, "carbon": quoted.gco2e, "risk": quoted.wall_hours}[sort]


def _is_failing(quoted: Quoted, job: Job) -> bool:
    return bool(quoted.problem) or quoted.wall_hours > (job.deadline_hours or math.inf)


def _why_not(best: Move | None, staying: float, sort: Sort) -> str:
    if best is None:
        return "nothing else is known well enough, or done there"
    if best.saves.mid <= 0:
        return "nothing else is expected to save anything"
    if best.saves.low <= 0:
        return "what is expected to save the most may as well save nothing"
    return f"it saves less than {LEAST_SHARE:.0%} of the {staying:,.4g} {UNITS[sort]} that are left"
