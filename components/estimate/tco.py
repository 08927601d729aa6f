"""Renting nodes against owning them, per node over H hours: what both cost today (present value), and from which use or
month on owning pays. An owned node draws and costs the same whatever its use, and stands still until it is repaired;
a rented one is paid while it is used, and the cloud replaces it. Money is worth what its owner could earn with it: the
cost of capital stands for interest as well. `load_onprem` holds assumptions (none for most accelerators): no taxes,
price changes or waiting.

    cloud(H)  = A(H) * (price * utilisation + fixed)
    onprem(H) = (capex - resale + A(H) * (kW * PUE * price of a kWh + colocation + operations)) / availability
    A(H)      = hours, each by what a dollar paid in it is worth at the beginning
    resale    = capex * share that can be sold * ((1 - decline) / (1 + r))^years
    >>> round(reserved_break_even(reserved=18.83, on_demand=27.197), 2)
    0.69
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from components.catalog.schema import Fact, Frozen
from components.catalog.tables import read_file, with_facts
from components.estimate.cost import HOURS_PER_MONTH

__all__ = [
    "HOURS_PER_YEAR",
    "RULE_MONTHS",
    "RULE_UTILISATION",
    "CloudSide",
    "OnPremNode",
    "OnPremSide",
    "OnPremTable",
    "availability",
    "break_even_months",
    "break_even_utilisation",
    "cloud_usd",
    "discounted_hours",
    "engineers",
    "keeps_rule",
    "load_onprem",
    "onprem_usd",
    "onprem_usd_per_hour",
    "reserved_break_even",
]

HOURS_PER_YEAR = 12 * HOURS_PER_MONTH
"""As Infracost counts: twelve months of 730 hours."""
RULE_UTILISATION = (0.7, 0.8)
RULE_MONTHS = (12.0, 24.0)
"""The rule of thumb: nodes that are used 70 to 80 % of the time pay for themselves within 12 to 24 months."""

_NO_RATE = 1e-12
"""A cost of capital below changes no digit that anybody reads, and its logarithm has few."""


class OnPremNode(Frozen):
    """What is assumed of one node of one's own: its price with its share of network and racks, and its peak draw."""

    capex_usd: Fact[float]
    peak_kw: Fact[float]


class OnPremTable(Frozen):
    """Assumptions about nodes of one's own.

    Attributes:
        nodes: by accelerator, such as `H100x8`; one that is not listed nobody here has a price of.
        pue: power of the building over power of the machines.
        usd_per_kwh: of electricity.
        colo_usd_per_kw_month: space, cooling and power capacity, by the peak draw, without the electricity.
        engineer_usd_per_year: one of those who operate the nodes; maintenance and spare parts are in their price.
        nodes_of_first_engineer: nodes that keep the first one busy; fewer take a share of the working time.
        accelerators_per_engineer: beyond those, how many each further one operates.
        sold_share: of the price, what is in things that can be sold: not cables, racks and installation.
        resale_decline: share of its value that a machine loses in a year.
        cost_of_capital: what money costs its owner in a year, as a share.
        utilisation: share of the hours in which a node works.
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


@cache
def load_onprem() -> OnPremTable:
    """The assumptions, read once a process."""
    tables, sources = read_file(Path(__file__).parents[1] / "catalog" / "onprem.yaml")
    nodes = {name: with_facts(OnPremNode, row, sources) for name, row in tables["nodes"].items()}
    return OnPremTable.model_validate({"nodes": nodes, **with_facts(OnPremTable, tables["rates"], sources)})


@dataclass(frozen=True)
class CloudSide:
    """One rented node. `usd_per_hour`: while it runs; `utilisation`: share of the hours in which it runs, 0 to 1;
    `fixed_usd_per_hour`: what is paid whether it runs or not: storage, head node.
    """

    usd_per_hour: float
    utilisation: float
    fixed_usd_per_hour: float = 0.0

    def at(self, utilisation: float) -> "CloudSide":
        """The same node at another use."""
        return replace(self, utilisation=utilisation)


@dataclass(frozen=True)
class OnPremSide:
    """One node of one's own.

    Attributes:
        capex_usd: its price, with its share of what is between the nodes.
        resale_usd: what it brings at the end, in today's dollars.
        kw: mean draw of the machine.
        pue: power of the building over power of the machine.
        usd_per_kwh: of electricity.
        colo_usd_per_hour: space, cooling and power capacity.
        ops_usd_per_hour: staff, maintenance contract, spare parts.
        availability: share of the hours in which it is not broken: as much more has to be owned.
    """

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
        """Electricity of the machine and of the building around it."""
        return self.kw * self.pue * self.usd_per_kwh

    @property
    def running_usd_per_hour(self) -> float:
        """Everything that is paid by the hour."""
        return self.power_usd_per_hour + self.colo_usd_per_hour + self.ops_usd_per_hour

    @property
    def net_capex_usd(self) -> float:
        """What buying and selling the node costs."""
        return self.capex_usd - self.resale_usd


def discounted_hours(hours: float, rate: float) -> float:
    """Hours, each by what a dollar paid in it is worth at the beginning. `rate`: cost of capital a year, 0 or more.

    >>> round(discounted_hours(3 * HOURS_PER_YEAR, 0.08) / HOURS_PER_YEAR, 3)
    2.679
    """
    if rate < _NO_RATE:
        return hours
    return HOURS_PER_YEAR * -math.expm1(-hours / HOURS_PER_YEAR * math.log1p(rate)) / math.log1p(rate)


def availability(failures_per_hour: float, repair_hours: float) -> float:
    """The share of the time in which a node works that fails so often and is repaired so fast."""
    return 1 / (1 + failures_per_hour * repair_hours)


def engineers(num_nodes: float, accelerators: float, first_nodes: float, per_engineer: float) -> float:
    """Who operates so many nodes of so many accelerators: one engineer the first few, each further one many more.

    >>> [round(engineers(nodes, 8, first_nodes=4, per_engineer=250), 2) for nodes in (1, 4, 128)]
    [0.25, 1.0, 4.97]
    """
    return min(1.0, num_nodes / first_nodes) + max(0.0, num_nodes - first_nodes) * accelerators / per_engineer


def cloud_usd(side: CloudSide, hours: float, rate: float = 0.0) -> float:
    """One rented node, had for `hours`, in today's US dollars."""
    return discounted_hours(hours, rate) * (side.usd_per_hour * side.utilisation + side.fixed_usd_per_hour)


def onprem_usd(side: OnPremSide, hours: float, rate: float = 0.0) -> float:
    """One node of one's own that works like one that never fails, had for `hours`, in today's US dollars."""
    running = discounted_hours(hours, rate) * side.running_usd_per_hour
    return (side.net_capex_usd + running) / side.availability


def onprem_usd_per_hour(side: OnPremSide, hours: float, rate: float = 0.0) -> float:
    """What an hour of such a node costs, used or not, were it rented for all of `hours` at the same present value."""
    return onprem_usd(side, hours, rate) / discounted_hours(hours, rate)


def break_even_utilisation(cloud: CloudSide, onprem: OnPremSide, hours: float, rate: float = 0.0) -> float:
    """The use from which on owning is cheaper over `hours`. Above 1 renting is cheaper even for a node that never
    rests; below 0 owning is, even for one that always does.
    """
    return (onprem_usd_per_hour(onprem, hours, rate) - cloud.fixed_usd_per_hour) / cloud.usd_per_hour


def break_even_months(cloud: CloudSide, onprem: OnPremSide, rate: float = 0.0) -> float:
    """Months of 730 hours after which what owning saves has paid for the node; infinite where it never has."""
    saved_an_hour = cloud_usd(cloud, 1) - onprem.running_usd_per_hour / onprem.availability
    net = onprem.net_capex_usd / onprem.availability
    if net <= 0 and saved_an_hour >= 0:
        return 0.0
    if saved_an_hour <= 0:
        return math.inf
    years = net / saved_an_hour / HOURS_PER_YEAR  # as many, were a later dollar worth as much
    if rate >= _NO_RATE:
        spent = years * math.log1p(rate)
        years = -math.log1p(-spent) / math.log1p(rate) if spent < 1 else math.inf
    return years * 12


def keeps_rule(cloud: CloudSide, onprem: OnPremSide, rate: float = 0.0) -> bool:
    """Whether the rule of thumb holds for these inputs: at 70 and at 80 % use, owning pays within 12 to 24 months."""
    months = [break_even_months(cloud.at(share), onprem, rate) for share in RULE_UTILISATION]
    return all(RULE_MONTHS[0] <= month <= RULE_MONTHS[1] for month in months)


def reserved_break_even(reserved: float, on_demand: float) -> float:
    """The use from which on a reservation, paid whether used or not, is cheaper than paying by the hour.

    >>> round(reserved_break_even(reserved=62.92, on_demand=98.32), 2)
    0.64
    """
    return reserved / on_demand
