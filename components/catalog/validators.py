"""Whether an observed price may replace the known one; `judge` rejects what is wrong, but proves no price right."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal, get_args

PriceField = Literal["on_demand", "spot_low", "spot_typical", "spot_high", "reserved_1y", "reserved_3y", "block", "usd"]
SERVICE_FIELD: PriceField = "usd"
PRICE_FIELDS: tuple[PriceField, ...] = tuple(field for field in get_args(PriceField) if field != SERVICE_FIELD)
STALE_DAYS = 180  # older prices are reported as old in a plan and rejected here
OWN_WORD = ("stated", "stack file")  # confidences that the user vouches for, whatever their date
LARGEST_JUMP = 10.0  # the largest plausible factor between two prices
PLACEHOLDER_USD = 700.0  # SkyPilot's placeholder for an unknown price, high enough that it is never chosen
OLD_P5_USD = 98.32  # us-east-1 p5.48xlarge until June 2025; lists still hold it. Azure's ND H100 v5 does cost that
_SPOT: tuple[PriceField, ...] = ("spot_low", "spot_typical", "spot_high")


@dataclass(frozen=True)
class Observed:
    """A price in a public list. `unit`: `hour`, `chip-hour`, or the service's; `as_of`: if live, the day asked."""

    provider: str
    item: str
    region: str
    field: PriceField
    value: float
    source: str
    as_of: date
    url: str = ""
    unit: str = "hour"
    currency: str = "USD"


def is_stale(as_of: str, confidence: str, today: date) -> bool:
    """Whether a figure is too old to rely on, by its source's own date, ISO 8601. A recalled figure or one without a
    date may be any age, whenever it was read.

    >>> is_stale("2026-11-01", "list-price", date(2026, 11, 21)), is_stale("", "list-price", date(2026, 11, 21))
    (False, True)
    """
    if confidence in OWN_WORD:
        return False
    return not as_of or confidence == "recalled" or (today - date.fromisoformat(as_of)).days > STALE_DAYS


@dataclass(frozen=True)
class Refusal:
    """A rejected price and the reason."""

    observed: Observed
    reason: str


@dataclass(frozen=True)
class Verdict:
    """The outcome of a batch: at most one accepted price per field."""

    accepted: tuple[Observed, ...]
    refused: tuple[Refusal, ...]


def judge(
    batch: Sequence[Observed],
    present: Mapping[PriceField, float],
    elsewhere: Mapping[PriceField, float],
    *,
    regions: Collection[str],
    unit: str,
    today: date,
) -> Verdict:
    """Judge prices of one item in one region. `elsewhere`: another region's, the reference for a first price."""
    reasons: dict[Observed, str] = {}
    for each in batch:
        if reason := _price_problem(each, regions, unit, today) or _jump_problem(
            each, present.get(each.field, elsewhere.get(each.field))
        ):
            reasons[each] = reason
    for field in (*PRICE_FIELDS, SERVICE_FIELD):
        same = [each for each in batch if each.field == field and each not in reasons]
        values = sorted({each.value for each in same})
        if len(values) > 1:
            reasons |= {each: f"stated twice: {', '.join(f'{v:g}' for v in values)}" for each in same}
    _refuse_against_others(batch, present, reasons)
    accepted = {each.field: each for each in batch if each not in reasons}
    return Verdict(tuple(accepted.values()), tuple(Refusal(each, reason) for each, reason in reasons.items()))


def _price_problem(each: Observed, regions: Collection[str], unit: str, today: date) -> str:
    age = (today - each.as_of).days
    checks = {
        "no number": not math.isfinite(each.value),
        "zero stands for a price that the list does not know": each.value == 0,
        "negative": each.value < 0,
        f"{PLACEHOLDER_USD:g} is a placeholder of public lists": math.isclose(each.value, PLACEHOLDER_USD),
        f"the price of before June 2025, {OLD_P5_USD:g}": (each.provider, each.item, each.field)
        == ("aws", "p5.48xlarge", "on_demand")
        and math.isclose(each.value, OLD_P5_USD),
        f"in {each.currency}, not in USD": each.currency != "USD",
        f"per {each.unit}, not per {unit}": each.unit != unit,
        f"of {each.as_of}, {age} days ago; {STALE_DAYS} are too old": age > STALE_DAYS,
        f"of {each.as_of}, which is still to come": age < -1,
        f"of {each.region}, which was not asked about": each.region not in regions,
    }
    return next((reason for reason, applies in checks.items() if applies), "")


def _jump_problem(each: Observed, known: float | None) -> str:
    if known is None or known / LARGEST_JUMP <= each.value <= known * LARGEST_JUMP:
        return ""
    return f"more than {LARGEST_JUMP:g} times {'above' if each.value > known else 'below'} the {known:g} known so far"


def _refuse_against_others(
    batch: Sequence[Observed], present: Mapping[PriceField, float], reasons: dict[Observed, str]
) -> None:
    def standing(field: PriceField) -> float | None:
        values = (each.value for each in batch if each.field == field and each not in reasons)
        return next(values, present.get(field))

    for each in _accepted_so_far(batch, ("on_demand",), reasons):
        # At its highest, spot cost as much as on demand, so it moves with it.
        spot = standing("spot_typical") or standing("spot_high")
        if spot is not None and each.value < spot:
            reasons[each] = f"below spot at {spot:g}: some lists state a discounted price as that on demand"
    on_demand = standing("on_demand")
    for each in _accepted_so_far(batch, (*_SPOT, "reserved_1y", "reserved_3y"), reasons):
        if on_demand is not None and each.value > on_demand:
            reasons[each] = f"above the price on demand, {on_demand:g}"
    # Both ends of a range are one observation.
    spots = _accepted_so_far(batch, _SPOT, reasons)
    low, typical, high = (next((e.value for e in spots if e.field == field), None) for field in _SPOT)
    if low is None or high is None:
        reasons |= dict.fromkeys(spots, "only one end of the span over zones is left")
    elif low > high:
        reasons |= dict.fromkeys(spots, f"the lowest, {low:g}, is above the highest, {high:g}")
    elif typical is not None and not low <= typical <= high:
        reasons |= dict.fromkeys(spots, f"the typical, {typical:g}, is not from {low:g} to {high:g}")


def _accepted_so_far(
    batch: Sequence[Observed], fields: Collection[str], reasons: Mapping[Observed, str]
) -> list[Observed]:
    return [each for each in batch if each.field in fields and each not in reasons]
