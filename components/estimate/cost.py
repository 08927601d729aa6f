"""Cost components: what is billed, in which unit, at which price, from which source. The shape is Infracost's (hourly,
monthly of 730 h, components); a price nobody knows stays None and is listed as such instead of counting as zero. Pure;
each provider package turns its own resources into components.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from components.catalog.schema import Fact, MachinePrice, ServicePrice, dated

__all__ = [
    "HOURS_PER_MONTH",
    "CostComponent",
    "CostEstimate",
    "Declared",
    "Offer",
    "beyond_reach",
    "elsewhere",
    "estimate",
    "from_fact",
    "from_service",
    "key_of",
    "lowest_spot",
    "of_resources",
    "offers_of",
    "paid_once",
    "spot_line",
    "unknown_price",
    "used_once",
]

Offer = tuple[str, Fact[float | None]]
"""A price, and the region whose it is."""
HOURS_PER_MONTH = 730
# What `elsewhere` has written.
_ELSEWHERE = re.compile(r"\(price of ([\w-]+)\)")


class Declared(Protocol):
    """A resource of the plan: type token, name, id that others refer to it by, inputs as they go over the wire."""

    @property
    def type(self) -> str:
        """Type token."""
        ...

    @property
    def name(self) -> str:
        """Logical name."""
        ...

    @property
    def id(self) -> str:
        """What other resources refer to it by."""
        ...

    @property
    def inputs(self) -> Mapping[str, Any]:
        """Inputs in camelCase."""
        ...


@dataclass(frozen=True)
class CostComponent:
    """One line of the bill.

    Attributes:
        name: what is billed, in the user's words.
        unit: what `quantity` counts, such as `node-hours` or `GiB-months`.
        quantity: units in use at any time.
        price: US dollars per unit, None when not known.
        hourly: US dollars per hour, None when not known.
        source: where the price is from, and for which region.
        as_of: day the price's source is of, ISO 8601; empty where it bears no date, and where no list has the price.
        confidence: see `components.catalog.loader.Fact`.
        standby: billed only when a fallback rung steps in; left out of the totals.
        upfront: US dollars paid once, when the stack comes up; not part of `hourly`.
        once: US dollars of a run however long it takes, such as for data that passes once; not part of `hourly`.
        of: the resources that it is the bill of, as `key_of` writes them; none of what no declaration fixes.
        read_on: day the source was read, ISO 8601; empty where only its own date is known.
    """

    name: str
    unit: str
    quantity: float
    price: float | None
    hourly: float | None
    source: str
    as_of: str
    confidence: str
    standby: bool = False
    upfront: float = 0.0
    once: float = 0.0
    of: tuple[str, ...] = ()
    read_on: str = ""

    @property
    def dated(self) -> str:
        """The source's own date, or that it has none; empty without a source."""
        return dated(self.as_of, self.read_on, self.confidence)

    @property
    def priced_in(self) -> str:
        """The region whose price stands in for that of the stack's own; empty where none does."""
        found = _ELSEWHERE.search(self.source)
        return found[1] if found else ""


def key_of(kind: str, name: str) -> str:
    """A resource by its type and its name, as a URN ends."""
    return f"{kind}::{name}"


def of_resources(lines: Iterable[CostComponent], *resources: Declared) -> Iterator[CostComponent]:
    """The lines, as the bill of these resources."""
    of = tuple(key_of(resource.type, resource.name) for resource in resources)
    return (replace(line, of=of) for line in lines)


def paid_once(name: str, usd: float, source: str) -> CostComponent:
    """A purchase made by `up`, at the price its buyer wrote down."""
    return CostComponent(name, "purchase", 1, usd, 0.0, source, "", "stack file", upfront=usd)


def from_fact(
    name: str,
    fact: Fact[float | None],
    quantity: float,
    *,
    unit: str = "hour",
    standby: bool = False,
    note: str = "",
) -> CostComponent:
    """A component priced by a catalogue fact per `unit`: `hour`, or one that ends with `month`, such as `GiB-month`."""
    hours = HOURS_PER_MONTH if unit.endswith("month") else 1
    hourly = None if fact.value is None else fact.value * quantity / hours
    return CostComponent(
        name=name,
        unit=f"{unit}s",
        quantity=quantity,
        price=fact.value,
        hourly=hourly,
        source=f"{fact.source}{note}",
        as_of=fact.as_of_text,
        read_on=fact.seen_on.isoformat(),
        confidence=fact.confidence,
        standby=standby,
    )


def from_service(
    name: str, price: ServicePrice, quantity: float, region: str, *, standby: bool = False
) -> CostComponent:
    """A component priced as a service of the catalogue."""
    note = elsewhere(price.region, region)
    return from_fact(name, price.usd, quantity, unit=price.unit, standby=standby, note=note)


def used_once(name: str, price: ServicePrice, quantity: float, region: str) -> CostComponent:
    """What a run uses up once, such as GiB that pass a gateway; its price is per `unit` and not per hour."""
    fact, note = price.usd, elsewhere(price.region, region)
    return CostComponent(
        name=name,
        unit=price.unit,
        quantity=quantity,
        price=fact.value,
        hourly=None if fact.value is None else 0.0,
        source=f"{fact.source}{note}",
        as_of=fact.as_of_text,
        read_on=fact.seen_on.isoformat(),
        confidence=fact.confidence,
        once=0.0 if fact.value is None else fact.value * quantity,
    )


def unknown_price(name: str, quantity: float, why: str, *, unit: str = "hour", standby: bool = False) -> CostComponent:
    """A component that nobody knows the price of."""
    return CostComponent(name, f"{unit}s", quantity, None, None, why, "", "unknown", standby)


def offers_of(price: MachinePrice | None) -> tuple[Offer | None, Offer | None]:
    """On spot and on demand, of a row of the catalogue."""
    return (None, None) if price is None else ((price.region, price.spot_high), (price.region, price.on_demand))


def lowest_spot(prices: Iterable[MachinePrice | None]) -> MachinePrice | None:
    """The row with the lowest price that spot was seen at; None where one of them is not known: it may be lower."""
    rows = list(prices)
    known = [(row.spot_low.value, row) for row in rows if row is not None and row.spot_low.value is not None]
    return min(known, key=lambda each: each[0])[1] if known and len(known) == len(rows) else None


def beyond_reach(cap_usd: float | None, lowest: MachinePrice | None) -> bool:
    """Whether no machine comes to who pays so much at most: spot has never been seen as cheap. What is not known keeps
    nothing away.
    """
    low = None if lowest is None else lowest.spot_low.value
    return cap_usd is not None and low is not None and cap_usd < low


def spot_line(
    name: str,
    quantity: float,
    region: str,
    spot: Offer | None,
    on_demand: Offer | None,
    *,
    cap_usd: float | None = None,
    unit: str = "hour",
    standby: bool = False,
    note: str = "",
) -> CostComponent:
    """A component on spot. Where nobody knows its price, or a cap is below that, it is counted at its limit: no
    provider takes more than the cap, or than the price on demand. `note`: on the spot price.
    """
    why = "no spot price in the catalogue"
    counted, said, limit = spot, note, False
    if spot is None or spot[1].value is None:
        counted, said, limit = on_demand, f", as a limit: {why}", True
    value = None if counted is None else counted[1].value
    if cap_usd is not None and (value is None or cap_usd < value):
        below = why if limit else f"below the spot price in the catalogue, {value:g} USD"
        source, hourly = f"max_usd_per_hour, as a limit: {below}", cap_usd * quantity
        named = f"{name}, at most"
        return CostComponent(named, f"{unit}s", quantity, cap_usd, hourly, source, "", "stack file", standby)
    if counted is None or value is None:
        return unknown_price(name, quantity, why, unit=unit, standby=standby)
    named = f"{name}, at most" if limit else name
    said += elsewhere(counted[0], region)
    return from_fact(named, counted[1], quantity, unit=unit, standby=standby, note=said)


def elsewhere(priced: str, region: str) -> str:
    """Says so where a price is another region's."""
    return "" if priced == region else f" (price of {priced})"


@dataclass(frozen=True)
class CostEstimate:
    """Totals in US dollars of the components whose price is known, and the names of those whose price is not. `monthly`
    and `run` hold `upfront` once, and `once`, what one run uses up. `standby_hourly` is of the dearest fallback rung:
    a rung makes up for the nodes that those above it lack, so that all together hold one rung's nodes; while one fills
    as another empties there are more for some minutes.
    """

    hourly: float
    upfront: float
    once: float
    monthly: float
    run: float
    run_hours: float
    standby_hourly: float
    unknown: tuple[str, ...]
    components: tuple[CostComponent, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data, as `gangway plan --json` prints it."""
        return {"currency": "USD", **asdict(self)}


def estimate(components: Sequence[CostComponent], run_hours: float) -> CostEstimate:
    """Adds up `components` for an hour, a month of 730 hours and a run of `run_hours`."""
    in_use = [component for component in components if not component.standby]
    hourly = sum(component.hourly or 0.0 for component in in_use)
    upfront = sum(component.upfront for component in components)
    once = sum(component.once for component in in_use)
    of_rungs: dict[str, float] = defaultdict(float)
    for component in components:
        if component.standby:  # their lines begin with the rung's name
            of_rungs[component.name.partition(":")[0]] += component.hourly or 0.0
    return CostEstimate(
        hourly=hourly,
        upfront=upfront,
        once=once,
        monthly=hourly * HOURS_PER_MONTH + upfront + once,
        run=hourly * run_hours + upfront + once,
        run_hours=run_hours,
        standby_hourly=max(of_rungs.values(), default=0.0),
        unknown=tuple(component.name for component in in_use if component.hourly is None),
        components=tuple(components),
    )
