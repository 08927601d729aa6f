"""Cost components: what is billed, in which unit, at which price, from which source. The shape is Infracost's (hourly,
monthly of 730 h, components); a price nobody knows stays None and is listed as such instead of counting as zero. Pure;
each provider package turns its own resources into components.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Protocol

from components.catalog.resolve import PriceQuote
from components.catalog.schema import EVERYWHERE, Fact, ServicePrice, dated

__all__ = [
    "HOURS_PER_MONTH",
    "Bound",
    "CostComponent",
    "CostEstimate",
    "Declared",
    "bound",
    "estimate",
    "foreign_mark",
    "foreign_note",
    "foreign_regions",
    "from_fact",
    "from_service",
    "get_key",
    "marked_usd",
    "of_resources",
    "paid_once",
    "price_line",
    "unknown_price",
    "used_once",
]

HOURS_PER_MONTH = 730


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
        of: the resources that it is the bill of, as `get_key` writes them; none of what no declaration fixes.
        read_on: day the source was read, ISO 8601; empty where only its own date is known.
        priced_in: the region whose price stands in for that of the stack's own; empty where none does.
        is_limit: whether the price is one that is not exceeded and may not be reached.
        price_high: US dollars per unit at most, where that is more than `price`; of spot.
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
    priced_in: str = ""
    is_limit: bool = False
    price_high: float | None = None

    @property
    def dated(self) -> str:
        """The source's own date, or that it has none; empty without a source."""
        return dated(self.as_of, self.read_on, self.confidence)

    @property
    def hourly_high(self) -> float | None:
        """US dollars per hour at most."""
        if self.price_high is None or self.hourly is None:
            return self.hourly
        return self.hourly / self.price * self.price_high if self.price else self.price_high * self.quantity


def get_key(kind: str, name: str) -> str:
    """A resource by its type and its name, as a URN ends."""
    return f"{kind}::{name}"


def of_resources(lines: Iterable[CostComponent], *resources: Declared) -> Iterator[CostComponent]:
    """The lines, as the bill of these resources."""
    of = tuple(get_key(resource.type, resource.name) for resource in resources)
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
        read_on=fact.read_text,
        confidence=fact.confidence,
        standby=standby,
    )


def from_service(
    name: str, price: ServicePrice, quantity: float, region: str, *, standby: bool = False
) -> CostComponent:
    """A component priced as a service of the catalogue."""
    line = from_fact(name, price.usd, quantity, unit=price.unit, standby=standby)
    return _stand_in(line, price, region)


def used_once(name: str, price: ServicePrice, quantity: float, region: str) -> CostComponent:
    """What a run uses up once, such as GiB that pass a gateway; its price is per `unit` and not per hour."""
    fact = price.usd
    line = CostComponent(
        name=name,
        unit=price.unit,
        quantity=quantity,
        price=fact.value,
        hourly=None if fact.value is None else 0.0,
        source=fact.source,
        as_of=fact.as_of_text,
        read_on=fact.seen_on.isoformat(),
        confidence=fact.confidence,
        once=0.0 if fact.value is None else fact.value * quantity,
    )
    return _stand_in(line, price, region)


def _stand_in(line: CostComponent, price: ServicePrice, region: str) -> CostComponent:
    """The line, marked where its price is another region's."""
    if price.region in (region, EVERYWHERE) or price.usd.value is None:
        return line
    return replace(line, source=f"{line.source} (price of {price.region})", priced_in=price.region)


def unknown_price(name: str, quantity: float, why: str, *, unit: str = "hour", standby: bool = False) -> CostComponent:
    """A component that nobody knows the price of."""
    return CostComponent(name, f"{unit}s", quantity, None, None, why, "", "unknown", standby)


def price_line(
    name: str,
    quantity: float,
    quote: PriceQuote | None,
    *,
    kind: str,
    cap_usd: float | None = None,
    unit: str = "hour",
    standby: bool = False,
    note: str = "",
) -> CostComponent:
    """A component at a resolved price. `kind`: of capacity, named where nobody knows its price; `cap_usd`: what is paid
    at most, whatever the market asks; `note`: on the price.
    """
    if cap_usd is not None and (quote is None or quote.usd is None or cap_usd < quote.usd):
        why = f"no {kind} price in the catalogue"
        if quote is not None and not quote.limit:
            why = f"below the typical {kind} price in the catalogue, {quote.usd:g} USD"
        source = f"max_usd_per_hour, as a limit: {why}"
        hourly = cap_usd * quantity
        return CostComponent(
            f"{name}, at most", f"{unit}s", quantity, cap_usd, hourly, source, "", "stack file", standby, is_limit=True
        )
    if quote is None:
        return unknown_price(name, quantity, f"no {kind} price in the catalogue", unit=unit, standby=standby)
    is_limit = bool(quote.limit) and quote.is_bounded
    line = from_fact(f"{name}, at most" if is_limit else name, quote.expected, quantity, unit=unit, standby=standby)
    high = quote.high if cap_usd is None or quote.high is None else min(quote.high, cap_usd)
    return replace(
        line,
        source=f"{quote.source}{note}",
        priced_in=quote.foreign_region,
        is_limit=is_limit,
        price_high=None if high == quote.usd else high,
    )


class Bound(StrEnum):
    """What a sum says of what is paid: nothing, where it lacks a price and holds a limit, or holds another region's
    price, which may be too high or too low.
    """

    NONE = ""
    AT_MOST = "at most"
    AT_LEAST = "at least"


def bound(lines: Iterable[CostComponent], *, at_most: bool = False) -> Bound:
    """Of the lines' sum. `at_most`: whether it is of their highest prices."""
    lines = list(lines)
    unknown = any(line.hourly is None for line in lines)
    limited = at_most or any(line.is_limit for line in lines)
    if any(line.priced_in for line in lines) or (unknown and limited):
        return Bound.NONE
    return Bound.AT_LEAST if unknown else Bound.AT_MOST if limited else Bound.NONE


def marked_usd(amount: float, bound: Bound, *, is_foreign: bool, is_partial: bool) -> str:
    """`at most $1,234.56`: a sum with what it is. A star marks one that is no bound: it holds another region's price
    (`is_foreign`), or lacks a price (`is_partial`) without being at least so much.

    >>> marked_usd(10, Bound.AT_LEAST, is_foreign=False, is_partial=True)
    'at least $10.00'
    >>> marked_usd(10, Bound.NONE, is_foreign=True, is_partial=False)
    '$10.00*'
    """
    star = "*" if is_foreign or (is_partial and bound is not Bound.AT_LEAST) else ""
    return f"{bound} ${amount:,.2f}{star}".strip()


def foreign_regions(lines: Iterable[CostComponent]) -> tuple[str, ...]:
    """The other regions whose prices stand in, each once."""
    return tuple(dict.fromkeys(line.priced_in for line in lines if line.priced_in))


def foreign_note(regions: Iterable[str]) -> str:
    """What stands beside a total that holds prices of these regions; empty where there are none.

    >>> foreign_note(["us-east-1"])
    'in part at the prices of us-east-1'
    """
    named = ", ".join(regions)
    return f"in part at the prices of {named}" if named else ""


def foreign_mark(lines: Iterable[CostComponent]) -> str:
    """`foreign_note` of these lines in parentheses, to stand behind their sum; empty where there is none."""
    note = foreign_note(foreign_regions(lines))
    return f" ({note})" if note else ""


@dataclass(frozen=True)
class CostEstimate:
    """Totals in US dollars of the components whose price is known, and the names of those whose price is not. `monthly`
    and `run` hold `upfront` once, and `once`, what one run uses up. `hourly_high` is at the highest prices.
    `standby_hourly` is of the dearest fallback rung, at its highest price: a rung makes up for the nodes that those
    above it lack, so that all together hold one rung's nodes; while one fills as another empties there are more for
    some minutes. `bound`: what the totals are, unless it is empty; `foreign_regions`: whose prices they hold beside
    the stack's own region's.
    """

    hourly: float
    hourly_high: float
    upfront: float
    once: float
    monthly: float
    run: float
    run_hours: float
    standby_hourly: float
    bound: Bound
    foreign_regions: tuple[str, ...]
    unknown: tuple[str, ...]
    components: tuple[CostComponent, ...]

    @property
    def in_use(self) -> tuple[CostComponent, ...]:
        """The components that are billed while no fallback rung steps in."""
        return tuple(component for component in self.components if not component.standby)

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
            of_rungs[component.name.partition(":")[0]] += component.hourly_high or 0.0
    return CostEstimate(
        hourly=hourly,
        hourly_high=sum(component.hourly_high or 0.0 for component in in_use),
        upfront=upfront,
        once=once,
        monthly=hourly * HOURS_PER_MONTH + upfront + once,
        run=hourly * run_hours + upfront + once,
        run_hours=run_hours,
        standby_hourly=max(of_rungs.values(), default=0.0),
        bound=bound(in_use),
        foreign_regions=foreign_regions(in_use),
        unknown=tuple(component.name for component in in_use if component.hourly is None),
        components=tuple(components),
    )
