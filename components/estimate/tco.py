"""Renting against owning nodes, per node over H hours: present value, break-even use and break-even month.

An owned node draws and costs the same at any use, and is idle until repaired; a rented one is paid while used, and the
cloud replaces it. The cost of capital stands for interest too. `load_onprem` holds assumptions (none for most
accelerators): no taxes, price changes or waiting.

    cloud(H)  = A(H) * (price * utilisation + fixed)
    onprem(H) = (capex - resale + A(H) * (kW * PUE * price of a kWh + colocation + operations)) / availability
    A(H)      = hours, each discounted to the beginning
    resale    = capex * share that can be sold * ((1 - decline) / (1 + r))^years
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gangway.components.catalog.schema import Fact, Frozen
from gangway.components.catalog.tables import table_reader
from gangway.components.estimate.cost import HOURS_PER_MONTH

HOURS_PER_YEAR = 12 * HOURS_PER_MONTH
"""As Infracost counts: twelve months of 730 hours."""
RULE_UTILISATION = (0.7, 0.8)
RULE_MONTHS = (12.0, 24.0)
"""Rule of thumb: nodes used 70 to 80 % of the time pay for themselves within 12 to 24 months."""

_NO_RATE = 1e-12
"""A lower cost of capital changes no visible digit, and its logarithm loses precision."""


class OnPremNode(Frozen):
    """Assumptions about one owned node: price with its share of network and racks, and peak draw."""

    capex_usd: Fact[float]
    peak_kw: Fact[float]


class OnPremTable(Frozen):
    """Assumptions about owned nodes.

    Attributes:
        nodes: by accelerator, such as `H100x8`; others have no known price.
        colo_usd_per_kw_month: space, cooling and power capacity by peak draw, without electricity.
        engineer_usd_per_year: per operator; maintenance and spare parts are in the price.
        nodes_of_first_engineer: nodes that fill the first one's time; fewer take a share of it.
        accelerators_per_engineer: beyond those, per further operator.
        sold_share: share of the price in sellable parts: not cables, racks and installation.
    """

    nodes: Mapping[str, OnPremNode]
    pue: Fact[float]
    usd_per_kwh: Fact[float]
    colo_usd_per_kw_month: Fact[float]
    engineer_usd_per_year: Fact[float]
    nodes_of_first_engineer: Fact[float]
    accelerators_per_engineer: Fact[float]
    sold_share: Fact[float]
    resale_decline: Fact[float]
    cost_of_capital: Fact[float]
    utilisation: Fact[float]


load_onprem = table_reader(OnPremTable, "onprem")


@dataclass(frozen=True)
class CloudSide:
    """A rented node. `utilisation`: share of the hours in which it runs; `fixed_usd_per_hour`: always paid."""

    usd_per_hour: float
    utilisation: float
    fixed_usd_per_hour: float = 0.0

    def at(self, utilisation: float) -> "CloudSide":
        """The same node at another utilisation."""
        return replace(self, utilisation=utilisation)


@dataclass(frozen=True)
class OnPremSide:
    """`resale_usd`: in today's dollars; `availability`: share of hours it works; its inverse scales the number."""

    capex_usd: float
    resale_usd: float
    kw: float
    pue: float
    usd_per_kwh: float
    colo_usd_per_hour: float
    ops_usd_per_hour: float
    availability: float = 1.0

    @property
    def power_usd_per_hour(self) -> float:
        """Electricity of the machine and its share of the building."""
        return self.kw * self.pue * self.usd_per_kwh

    @property
    def running_usd_per_hour(self) -> float:
        """All hourly costs."""
        return self.power_usd_per_hour + self.colo_usd_per_hour + self.ops_usd_per_hour

    @property
    def net_capex_usd(self) -> float:
        """The purchase price minus the resale value."""
        return self.capex_usd - self.resale_usd


def discounted_hours(hours: float, rate: float) -> float:
    """Hours, each discounted to the beginning. `rate`: yearly cost of capital, 0 or more.

    >>> round(discounted_hours(3 * HOURS_PER_YEAR, 0.08) / HOURS_PER_YEAR, 3)
    2.679
    """
    if rate < _NO_RATE:
        return hours
    return HOURS_PER_YEAR * -math.expm1(-hours / HOURS_PER_YEAR * math.log1p(rate)) / math.log1p(rate)


def availability(failures_per_hour: float, repair_hours: float) -> float:
    """The share of the time in which a node works, by failure rate and repair time."""
    return 1 / (1 + failures_per_hour * repair_hours)


def engineers(num_nodes: float, accelerators: float, first_nodes: float, per_engineer: float) -> float:
    """Engineers for these nodes and accelerators: one for the first nodes, each further one for many more.

    >>> [round(engineers(nodes, 8, first_nodes=4, per_engineer=250), 2) for nodes in (1, 4, 128)]
    [0.25, 1.0, 4.97]
    """
    return min(1.0, num_nodes / first_nodes) + max(0.0, num_nodes - first_nodes) * accelerators / per_engineer


def cloud_usd(side: CloudSide, hours: float, rate: float = 0.0) -> float:
    """A rented node for `hours`, in today's US dollars."""
    return discounted_hours(hours, rate) * (side.usd_per_hour * side.utilisation + side.fixed_usd_per_hour)


def onprem_usd(side: OnPremSide, hours: float, rate: float = 0.0) -> float:
    """An owned node for `hours`, scaled to full availability, in today's US dollars."""
    running = discounted_hours(hours, rate) * side.running_usd_per_hour
    return (side.net_capex_usd + running) / side.availability


def onprem_usd_per_hour(side: OnPremSide, hours: float, rate: float = 0.0) -> float:
    """The hourly rent, used or not, with the same present value over `hours`."""
    return onprem_usd(side, hours, rate) / discounted_hours(hours, rate)


def break_even_utilisation(cloud: CloudSide, onprem: OnPremSide, hours: float, rate: float = 0.0) -> float:
    """Utilisation from which owning is cheaper over `hours`: above 1, never; below 0, always."""
    return (onprem_usd_per_hour(onprem, hours, rate) - cloud.fixed_usd_per_hour) / cloud.usd_per_hour


def break_even_months(cloud: CloudSide, onprem: OnPremSide, rate: float = 0.0) -> float:
    """Months of 730 hours after which the savings have paid for the node; infinite if never."""
    saved_an_hour = cloud_usd(cloud, 1) - onprem.running_usd_per_hour / onprem.availability
    net = onprem.net_capex_usd / onprem.availability
    if net <= 0 and saved_an_hour >= 0:
        return 0.0
    if saved_an_hour <= 0:
        return math.inf
    years = net / saved_an_hour / HOURS_PER_YEAR  # without discounting
    if rate >= _NO_RATE:
        spent = years * math.log1p(rate)
        years = -math.log1p(-spent) / math.log1p(rate) if spent < 1 else math.inf
    return years * 12


def keeps_rule(cloud: CloudSide, onprem: OnPremSide, rate: float = 0.0) -> bool:
    """Whether the rule of thumb holds: at 70 and at 80 % use, owning pays within 12 to 24 months."""
    months = [break_even_months(cloud.at(share), onprem, rate) for share in RULE_UTILISATION]
    return all(RULE_MONTHS[0] <= month <= RULE_MONTHS[1] for month in months)
