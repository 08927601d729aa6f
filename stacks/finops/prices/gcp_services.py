"""Google Cloud's services in the Cloud Billing Catalog: which entry is which service of the catalogue."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["GCP_SERVICES", "Entry", "usd_of"]

_COMPUTE = "Compute Engine"
_STORAGE = "Cloud Storage"
_FILES = "Cloud Filestore"


@dataclass(frozen=True)
class Entry:
    """One service in Google's words.

    Attributes:
        listed_in: display name of the Catalog's service.
        begins: what the description begins with; a place follows.
        group: its resource group; empty where the description says enough.
    """

    listed_in: str
    begins: str
    group: str = ""

    def matches(self, sku: Mapping[str, Any]) -> bool:
        """Whether an entry of the Catalog is this one."""
        category = sku["category"]
        group = not self.group or category["resourceGroup"] == self.group
        return category["usageType"] == "OnDemand" and group and str(sku["description"]).startswith(self.begins)


GCP_SERVICES: Mapping[str, Entry] = {
    "gcs-standard": Entry(_STORAGE, "Standard Storage ", "RegionalStorage"),
    "pd-balanced": Entry(_COMPUTE, "Balanced PD Capacity"),
    "pd-ssd": Entry(_COMPUTE, "SSD backed PD Capacity"),
    "hyperdisk-balanced": Entry(_COMPUTE, "Hyperdisk Balanced Capacity"),
    "filestore-basic-hdd": Entry(_FILES, "Filestore Capacity Basic HDD"),
    "filestore-basic-ssd": Entry(_FILES, "Filestore Capacity Basic SSD"),
    "filestore-zonal": Entry(_FILES, "Filestore Capacity Zonal"),
}
"""All of them by the GiB and month."""


def usd_of(sku: Mapping[str, Any]) -> tuple[float, str, str]:
    """The first tier that costs something, the unit, the currency. KeyError, TypeError, ValueError, IndexError: not the
    documented shape.
    """
    expression = sku["pricingInfo"][-1]["pricingExpression"]
    prices = [rate["unitPrice"] for rate in expression["tieredRates"]]
    known: Iterator[tuple[float, str]] = ((_number(price), str(price.get("currencyCode", "USD"))) for price in prices)
    usd, currency = next((found for found in known if found[0]), (0.0, "USD"))
    return usd, str(expression["usageUnit"]), currency


def _number(price: Mapping[str, Any]) -> float:
    return int(price.get("units", 0)) + int(price.get("nanos", 0)) / 1e9
