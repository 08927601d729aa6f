"""The one rule for the price of a machine in a region, for plans, quotes, forecasts, simulations and autoscaling.

The region's own price comes first, then another region's, which is marked and bounds nothing. The expected spot price
is the typical one; its upper bound is the highest.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Literal, get_args

from gangway.components.catalog.schema import Fact, MachinePrice

Kind = Literal["on-demand", "spot", "reserved-1y", "reserved-3y", "capacity-block", "flex-start"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_NO_SPOT = "no spot price in the catalogue"
# Compute Engine documentation, "About Flex-start VMs": A4, A3 and A2 cost less than on demand.
_FLEX_START = "on-demand: flex-start costs this at most"

KnownPrice = Fact[float | None]


@dataclass(frozen=True)
class PriceQuote:
    """A price for a region, US dollars a unit. `high`: the highest seen, an upper bound unless another region's;
    `limit`: why the price is an upper limit that may not be reached, or empty.
    """

    region: str
    priced_in: str
    expected: KnownPrice
    low: float | None
    high: float | None
    limit: str = ""

    @property
    def usd(self) -> float | None:
        """The expected price."""
        return self.expected.value

    @property
    def foreign_region(self) -> str:
        """The other region whose price is used; empty if there is none."""
        return "" if self.priced_in == self.region else self.priced_in

    @property
    def is_bounded(self) -> bool:
        """Whether `high` is an upper bound: known, and this region's own."""
        return self.high is not None and not self.foreign_region

    @property
    def source(self) -> str:
        """Source, region and uncertainty of the price, as text."""
        where = f" (price of {self.foreign_region})" if self.foreign_region else ""
        return f"{self.expected.source}{f', {self.limit}' if self.limit else ''}{where}"


def resolve_price(rows: Iterable[MachinePrice], region: str, kind: Kind) -> PriceQuote | None:
    """The price of a node in `region` from its type's `rows`; None if no region has one."""
    # The region's own limit is nearer than another region's price. The sort is stable.
    for row in sorted(rows, key=lambda row: row.region != region):
        if (found := _of_row(row, region, kind)) is not None:
            return found
    return None


def stated_price(usd: float, region: str, setting: str) -> PriceQuote:
    """The price that a stack file states by `setting`; it overrides any list and has no date."""
    fact = Fact[float | None](value=usd, source=f"stated by the stack file: {setting}", confidence="stated")
    return PriceQuote(region, region, fact, usd, usd)


def _of_row(row: MachinePrice, region: str, kind: Kind) -> PriceQuote | None:
    match kind:
        case "spot" if row.spot_high.value is not None:
            typical = row.spot_typical if row.spot_typical.value is not None else row.spot_high
            # Spot never costs more than on demand, whose price may have dropped since.
            most = inf if row.on_demand.value is None else row.on_demand.value
            if typical.value is not None and typical.value > most:
                return _fixed(row.on_demand, row, region, "as a limit: spot was dearer")
            return PriceQuote(region, row.region, typical, row.spot_low.value, min(row.spot_high.value, most))
        case "spot":
            return _fixed(row.on_demand, row, region, f"as a limit: {_NO_SPOT}")
        case "flex-start":
            return _fixed(row.on_demand, row, region, _FLEX_START)
    fixed = {"reserved-1y": row.reserved_1y, "reserved-3y": row.reserved_3y, "capacity-block": row.block}
    return _fixed(fixed.get(kind, row.on_demand), row, region)


def _fixed(fact: KnownPrice, row: MachinePrice, region: str, limit: str = "") -> PriceQuote | None:
    if fact.value is None:
        return None
    return PriceQuote(region, row.region, fact, None if limit else fact.value, fact.value, limit)
