"""Renting nodes against owning them, per node over H hours: what both cost, and from which use or month on owning
pays. An owned node draws and costs the same whatever its use; a rented one is paid while it is used. `load_onprem`
holds assumptions (none for most accelerators): no taxes, interest, financing, depreciation, price changes or
waiting.

    cloud(H)  = H * (price * utilisation + fixed)
    onprem(H) = capex - resale + H * (kW * PUE * price of a kWh + colocation + operations)
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
    "break_even_months",
    "break_even_utilisation",
    "cloud_usd",
    "keeps_rule",
    "load_onprem",
    "onprem_usd",
    "reserved_break_even",
]

HOURS_PER_YEAR = 12 * HOURS_PER_MONTH
"""As Infracost counts: twelve months of 730 hours."""
RULE_UTILISATION = (0.7, 0.8)
RULE_MONTHS = (12.0, 24.0)
"""The rule of thumb: nodes that are used 70 to 80 % of the time pay for themselves within 12 to 24 months."""


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
        ops_usd_per_node_month: staff, maintenance contract and spare parts.
        resale_share: of the price, when the machines are sold.
        utilisation: share of the hours in which a node works.
    """

    nodes: Mapping[str, OnPremNode]
    pue: Fact[float]
    usd_per_kwh: Fact[float]
    colo_usd_per_kw_month: Fact[float]
    ops_usd_per_node_month: Fact[float]
    resale_share: Fact[float]
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
        resale_usd: what it brings at the end.
        kw: mean draw of the machine.
        pue: power of the building over power of the machine.
        usd_per_kwh: of electricity.
        colo_usd_per_hour: space, cooling and power capacity.
        ops_usd_per_hour: staff, maintenance contract, spare parts.
    """

    capex_usd: float
    resale_usd: float
    kw: float
    pue: float
    usd_per_kwh: float
    colo_usd_per_hour: float
    ops_usd_per_hour: float

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


def cloud_usd(side: CloudSide, hours: float) -> float:
    """One rented node, had for `hours`, in US dollars."""
    return hours * (side.usd_per_hour * side.utilisation + side.fixed_usd_per_hour)


def onprem_usd(side: OnPremSide, hours: float) -> float:
    """One node of one's own, had for `hours` and then sold, in US dollars."""
    return side.net_capex_usd + hours * side.running_usd_per_hour


def break_even_utilisation(cloud: CloudSide, onprem: OnPremSide, hours: float) -> float:
    """The use from which on owning is cheaper over `hours`. Above 1 renting is cheaper even for a node that never
    rests; below 0 owning is, even for one that always does.
    """
    return (onprem_usd(onprem, hours) / hours - cloud.fixed_usd_per_hour) / cloud.usd_per_hour


def break_even_months(cloud: CloudSide, onprem: OnPremSide) -> float:
    """Months of 730 hours after which owning has been cheaper; infinite where it never is."""
    saved_an_hour = cloud_usd(cloud, 1) - onprem.running_usd_per_hour
    if onprem.net_capex_usd <= 0 and saved_an_hour >= 0:
        return 0.0
    return math.inf if saved_an_hour <= 0 else onprem.net_capex_usd / saved_an_hour / HOURS_PER_MONTH


def keeps_rule(cloud: CloudSide, onprem: OnPremSide) -> bool:
    """Whether the rule of thumb holds for these inputs: at 70 and at 80 % use, owning pays within 12 to 24 months."""
    months = [break_even_months(cloud.at(share), onprem) for share in RULE_UTILISATION]
    return all(RULE_MONTHS[0] <= month <= RULE_MONTHS[1] for month in months)


def reserved_break_even(reserved: float, on_demand: float) -> float:
    """The use from which on a reservation, paid whether used or not, is cheaper than paying by the hour.

    >>> round(reserved_break_even(reserved=62.92, on_demand=98.32), 2)
    0.64
    """
    return reserved / on_demand
