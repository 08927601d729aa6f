"""What an entry of Google's Cloud Billing Catalog is: a part of machines, such as a core of A3, on demand or spot.

Entries have no machine types, and a part is known by its description alone: `Spot Preemptible A3 Instance Core running
in Americas`, `Nvidia H100 80GB GPU attached to Spot Preemptible VMs running in Tokyo`. "Spot Preemptible" there means
spot whatever `usageType` says. Dropped is what nobody who rents a plain machine pays: Dynamic Workload Scheduler (flex
start and calendar mode), reservations (of which some are zero), commitments, sole tenancy, custom shapes. Pure.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["DROPPED", "Part", "PartPrice", "is_dropped", "part_prices"]

DROPPED = (
    "dws", "calendar mode", "reserved", "commitment", "sole tenancy", "custom", "premium", "suspended", "optimized tpu"
)  # fmt: skip
"""Words of descriptions."""
UNITS = {"h": 1.0, "GiBy.h": 1.0, "GiBy.mo": 1 / 730}
"""Usage units, and what makes an hourly price of one."""
_DESCRIPTION = re.compile(
    r"(?:spot preemptible )?(?P<part>.+?)(?: attached to spot preemptible vms)?(?: (?:running )?in [^(]+)?"
)


@dataclass(frozen=True)
class Part:
    """A part of machines in one region.

    Attributes:
        name: as in the description, in small letters, such as `a3 instance core`.
        spot: whether it is one of a spot machine.
    """

    name: str
    region: str
    spot: bool


@dataclass(frozen=True)
class PartPrice:
    """US dollars per hour of one core, GiB, card or chip; the identifiers of its entry."""

    usd_per_hour: float
    sku_id: str


def is_dropped(description: str) -> bool:
    """Whether the description is one of something else than a part of a plain machine."""
    return any(word in description.lower() for word in DROPPED)


def part_prices(sku: Mapping[str, Any]) -> Iterable[tuple[Part, PartPrice]]:
    """The prices of an entry, a region each; nothing where it is dropped.

    Raises:
        KeyError, TypeError, ValueError, IndexError: it has not the documented shape, or a unit or currency of its own.
    """
    description, usage = str(sku["description"]).lower(), sku["category"]["usageType"]
    if usage not in ("OnDemand", "Preemptible") or is_dropped(description):
        return
    match = _DESCRIPTION.fullmatch(description)
    name = match["part"] if match else description
    spot = "spot preemptible" in description or usage == "Preemptible"
    price = PartPrice(_usd_per_hour(sku), str(sku.get("skuId", "")))
    for region in sku["serviceRegions"]:
        yield Part(name, str(region), spot), price


def _usd_per_hour(sku: Mapping[str, Any]) -> float:
    """The first tier's price: what machines are made of has no others."""
    # In chronological order, says the API's reference; without a time range there is only one.
    expression = sku["pricingInfo"][-1]["pricingExpression"]
    unit, price = expression["usageUnit"], expression["tieredRates"][0]["unitPrice"]
    if unit not in UNITS:
        raise ValueError(f"unit {unit!r}")
    if price.get("currencyCode", "USD") != "USD":
        raise ValueError(f"currency {price['currencyCode']!r}")
    return (int(price.get("units", 0)) + int(price.get("nanos", 0)) / 1e9) * UNITS[unit]
