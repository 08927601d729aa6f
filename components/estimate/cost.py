"""Cost components: item, unit, price and source, shaped like Infracost's (hourly, monthly of 730 h). Pure.

An unknown price stays None and is reported instead of counting as zero. Each provider package converts its own
resources into components.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Protocol

from gangway.components.catalog.loader import Catalog
from gangway.components.catalog.prices import PriceQuote
from gangway.components.catalog.schema import EVERYWHERE, Fact, Frozen, ServicePrice, dated
from gangway.components.catalog.tables import table_reader

HOURS_PER_MONTH = 730


class Declared(Protocol):
    """A planned resource: type token, name, id for references, inputs as sent to the provider."""

    @property
    def type(self) -> str:
        """Type token."""

    @property
    def name(self) -> str:
        """Logical name."""

    @property
    def id(self) -> str:
        """The id in other resources' references."""

    @property
    def inputs(self) -> Mapping[str, Any]:
        """Inputs in camelCase."""


@dataclass(frozen=True)
class CostComponent:
    """One line of the bill.

    Attributes:
        quantity: units in use at any time.
        price: US dollars per unit, None if unknown.
        source: of the price, with its region.
        as_of: date of the source, ISO 8601; empty without a date or a price.
        standby: billed only while a fallback rung is in use; not in the totals.
        upfront: US dollars paid once at `up`; not in `hourly`.
        once: US dollars per run, however long, such as for data transfer; not in `hourly`.
        of: keys (`get_key`) of the billed resources; empty if no declaration fixes them.
        read_on: day the source was read, ISO 8601; empty if unknown.
        priced_in: the other region whose price is used; empty if none.
        is_limit: the price is an upper limit that may not be reached.
        price_high: maximum US dollars per unit if above `price`; for spot.
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
        """The source's date, or that it has none; empty without a source."""
        return dated(self.as_of, self.read_on, self.confidence)

    @property
    def hourly_high(self) -> float | None:
        """Maximum US dollars per hour."""
        if self.price_high is None or self.hourly is None:
            return self.hourly
        return self.hourly / self.price * self.price_high if self.price else self.price_high * self.quantity


def get_key(kind: str, name: str) -> str:
    """A resource's type and name, as at the end of a URN."""
    return f"{kind}::{name}"


def of_resources(lines: Iterable[CostComponent], *resources: Declared) -> Iterator[CostComponent]:
    """The lines, assigned to these resources."""
    of = tuple(get_key(resource.type, resource.name) for resource in resources)
    return (replace(line, of=of) for line in lines)


def paid_once(name: str, usd: float, source: str) -> CostComponent:
    """A purchase made by `up`, at the price in the stack file."""
    return CostComponent(name, "purchase", 1, usd, 0.0, source, "", "stack file", upfront=usd)


def from_fact(
    name: str, fact: Fact[float | None], quantity: float, *, unit: str = "hour", standby: bool = False
) -> CostComponent:
    """A component priced by a catalogue fact per `unit`: `hour`, or one that ends with `month`, such as `GiB-month`."""
    hours = HOURS_PER_MONTH if unit.endswith("month") else 1
    return CostComponent(
        name=name,
        unit=f"{unit}s",
        quantity=quantity,
        price=fact.value,
        hourly=None if fact.value is None else fact.value * quantity / hours,
        source=fact.source,
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


@dataclass(frozen=True)
class PriceList:
    """A provider's prices in one region, from its catalogue."""

    catalog: Catalog
    provider: str
    region: str

    def service(
        self, name: str, service: str, quantity: float = 1, *, standby: bool = False, unit: str = "hour"
    ) -> CostComponent:
        """A component at a service's price, or an unknown price per `unit`."""
        if service not in self.catalog.get_services(self.provider):
            why = f"no price of {service} in the catalogue"
            return unknown_price(name, quantity, why, unit=unit, standby=standby)
        price = self.catalog.service_price(self.provider, self.region, service)
        return from_service(name, price, quantity, self.region, standby=standby)

    def machines(self, name: str, machine_type: str, number: int) -> CostComponent:
        """On-demand machines without accelerators, which are services of the catalogue."""
        if f"instance-{machine_type}" not in self.catalog.get_services(self.provider):
            return unknown_price(name, number, "no price in the catalogue")
        return self.service(name, f"instance-{machine_type}", number)


def used_once(name: str, price: ServicePrice, quantity: float, region: str) -> CostComponent:
    """What a run uses up once, such as GiB through a gateway, priced per `unit` and not per hour."""
    value = price.usd.value
    line = from_fact(name, price.usd, quantity)
    line = replace(line, unit=price.unit, hourly=None if value is None else 0.0, once=(value or 0.0) * quantity)
    return _stand_in(line, price, region)


def _stand_in(line: CostComponent, price: ServicePrice, region: str) -> CostComponent:
    if price.region in (region, EVERYWHERE) or price.usd.value is None:
        return line
    return replace(line, source=f"{line.source} (price of {price.region})", priced_in=price.region)


def unknown_price(name: str, quantity: float, why: str, *, unit: str = "hour", standby: bool = False) -> CostComponent:
    """A component without a known price."""
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
    """A component at a resolved price. `kind`: named if the price is unknown; `cap_usd`: limit."""
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
    """What a sum bounds: nothing if it mixes missing prices and limits, or uses another region's price."""

    NONE = ""
    AT_MOST = "at most"
    AT_LEAST = "at least"


def bound(lines: Iterable[CostComponent], *, at_most: bool = False) -> Bound:
    """The bound of the lines' sum. `at_most`: it is the sum of their highest prices."""
    lines = list(lines)
    unknown = any(line.hourly is None for line in lines)
    limited = at_most or any(line.is_limit for line in lines)
    if any(line.priced_in for line in lines) or (unknown and limited):
        return Bound.NONE
    return Bound.AT_LEAST if unknown else Bound.AT_MOST if limited else Bound.NONE


def marked_usd(amount: float, bound: Bound, *, is_foreign: bool, is_partial: bool) -> str:
    """`at most $1,234.56`: a sum with its bound. A star marks one that is no bound: it uses another region's price
    (`is_foreign`), or lacks a price (`is_partial`) without being a lower bound.

    >>> marked_usd(10, Bound.AT_LEAST, is_foreign=False, is_partial=True)
    'at least $10.00'
    >>> marked_usd(10, Bound.NONE, is_foreign=True, is_partial=False)
    '$10.00*'
    """
    star = "*" if is_foreign or (is_partial and bound is not Bound.AT_LEAST) else ""
    return f"{bound} ${amount:,.2f}{star}".strip()


def foreign_regions(lines: Iterable[CostComponent]) -> tuple[str, ...]:
    """The distinct other regions whose prices are used."""
    return tuple(dict.fromkeys(line.priced_in for line in lines if line.priced_in))


def foreign_note(regions: Iterable[str]) -> str:
    """The note beside a total with prices of these regions; empty if there are none.

    >>> foreign_note(["us-east-1"])
    'in part at the prices of us-east-1'
    """
    named = ", ".join(regions)
    return f"in part at the prices of {named}" if named else ""


def foreign_mark(lines: Iterable[CostComponent]) -> str:
    """`foreign_note` in parentheses, to follow the sum; empty if there is none."""
    note = foreign_note(foreign_regions(lines))
    return f" ({note})" if note else ""


@dataclass(frozen=True)
class CostEstimate:
    """Totals in US dollars of the components with a known price, and the names of the others.

    `monthly` and `run` include `upfront` and `once` once. `hourly_high` uses the highest prices. `standby_hourly` is
    the most expensive fallback rung at its highest price: rungs replace each other's missing nodes, so together they
    hold one rung's nodes, apart from some minutes of overlap. `bound`: what the totals are, unless empty;
    `foreign_regions`: other regions whose prices they use.
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
        """The components that are billed while no fallback rung is in use."""
        return tuple(component for component in self.components if not component.standby)

    def to_json(self) -> dict[str, Any]:
        """The estimate as plain JSON data, for `gangway plan --json`."""
        return {"currency": "USD", **asdict(self)}


def estimate(components: Sequence[CostComponent], run_hours: float) -> CostEstimate:
    """Add up `components` for an hour, a month of 730 hours and a run of `run_hours`."""
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


# Resource types that cost nothing or are billed by use alone, and how late each provider's bills are.


class FreeTypes(Frozen):
    """Types that cost nothing; with `when`, only resources with these inputs."""

    types: tuple[str, ...]
    usd: Fact[float]
    when: Mapping[str, str | bool] = {}


class ByUse(Frozen):
    """Types billed by use. `per`: the billed unit; `settings`: keys of gangway:estimate that price it."""

    types: tuple[str, ...]
    per: Fact[str]
    settings: tuple[str, ...] = ()


class BillingDelay(Frozen):
    """Typical hours until a budget counts a cost. `asks_every_hours`: the stop's polling; None without any."""

    least_hours: Fact[float]
    most_hours: Fact[float]
    asks_every_hours: Fact[float | None]

    @property
    def stop_hours(self) -> tuple[float, float]:
        """The fewest and the most hours from use until the stop."""
        return self.least_hours.value, self.most_hours.value + (self.asks_every_hours.value or 0.0)


class BillingTable(Frozen):
    """Free and usage-billed types of all providers; `delays` by provider."""

    free: tuple[FreeTypes, ...]
    by_use: tuple[ByUse, ...]
    delays: Mapping[str, BillingDelay]

    def free_of(self, kind: str, inputs: Mapping[str, Any]) -> Fact[float] | None:
        """The fact that a resource of this type is free; None if it may cost something."""
        rows = (row for row in self.free if kind in row.types)
        return next((row.usd for row in rows if all(inputs.get(name) == row.when[name] for name in row.when)), None)

    def by_use_of(self, kind: str) -> ByUse | None:
        """How a resource of this type is billed by use; None if it is not billed by use alone."""
        return next((row for row in self.by_use if kind in row.types), None)


load_billing = table_reader(BillingTable, "billing")
