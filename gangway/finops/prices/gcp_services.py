"""Which entry of the Cloud Billing Catalog is which service of the catalogue. Names are from Infracost's resources
(infracost/infracost, 95ba4f4), Cyclenerd's google-cloud-pricing-cost-calculator (dac3128, the source of the catalogue's
prices) and zombiescan; Managed Lustre's from a customer's pricing export.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

__all__ = ["E2_MACHINES", "EVERY_REGION", "GCP_SERVICES", "GCP_UNREAD", "Entry", "get_price"]

EVERY_REGION = "global"
"""The region of entries with one price for all regions."""
_COMPUTE = "Compute Engine"
_STORAGE = "Cloud Storage"
_FILES = "Cloud Filestore"
_KMS = "Cloud Key Management Service (KMS)"
_NETWORK = "Networking"
_EGRESS = {"": 10.0, "-from-1tb": 5_000.0, "-from-10tb": 20_000.0}
"""An amount in GiB within each tier."""
_NAT_MACHINES = 32
"""A gateway's price is capped at this many machines."""


@dataclass(frozen=True)
class Entry:
    """One service in Google's terms.

    Attributes:
        listed_in: display name of the Catalog's service; `*` is a wildcard.
        description: likewise; a place often follows.
        listed_units: abbreviated and in words, since the Catalog has either.
        unit: the catalogue's unit.
        group: its resource group; empty if the description suffices.
        factor: converts a listed price to `unit`.
        amount: in listed units; selects the tier, above the free one.
    """

    listed_in: str
    description: str
    listed_units: tuple[str, ...] = ("GiBy.mo",)
    unit: str = "GiB-month"
    group: str = ""
    factor: float = 1.0
    amount: float = 10.0

    def is_listed_in(self, display_name: str) -> bool:
        """Whether the Catalog's service of this name lists it."""
        return fnmatchcase(display_name, self.listed_in)

    def is_described(self, description: str) -> bool:
        """Whether the description alone matches."""
        return fnmatchcase(description, self.description)

    def matches(self, sku: Mapping[str, Any]) -> bool:
        """Whether an entry of the Catalog is this one."""
        category = sku["category"]
        is_group = not self.group or category["resourceGroup"] == self.group
        return category["usageType"] == "OnDemand" and is_group and self.is_described(str(sku["description"]))


GCP_SERVICES: Mapping[str, Entry] = {
    "gcs-standard": Entry(_STORAGE, "Standard Storage *", group="RegionalStorage"),
    "pd-balanced": Entry(_COMPUTE, "Balanced PD Capacity*"),
    "pd-ssd": Entry(_COMPUTE, "SSD backed PD Capacity*"),
    "hyperdisk-balanced": Entry(_COMPUTE, "Hyperdisk Balanced Capacity*"),
    "filestore-basic-hdd": Entry(_FILES, "Filestore Capacity Basic HDD*"),
    "filestore-basic-ssd": Entry(_FILES, "Filestore Capacity Basic SSD*"),
    "filestore-zonal": Entry(_FILES, "Filestore Capacity Zonal*"),
    **{
        f"managed-lustre-{tier}": Entry("*Lustre*", f"Managed Lustre Capacity {tier}-Perf *", ("GiBy.mo",))
        for tier in (125, 250, 500, 1000)
    },
    "cloud-nat": Entry(_NETWORK, "Networking Cloud Nat Gateway Uptime", ("h",), "hour", factor=_NAT_MACHINES),
    "cloud-nat-machine": Entry(_NETWORK, "Networking Cloud Nat Gateway Uptime", ("h",), "hour"),
    "nat-data": Entry(_NETWORK, "Networking Cloud Nat Data Processing", ("GiBy",), "GiB"),
    # Cloud NAT's addresses: our machines have none.
    "public-ipv4": Entry(_NETWORK, "Networking Cloud NAT IP Usage", ("h",), "hour", group="Nat"),
    **{
        f"egress-internet{tier}": Entry(
            _COMPUTE,
            "Network Internet Data Transfer Out from * to Americas",
            ("GiBy",),
            "GiB",
            group="PremiumInternetEgress",
            amount=amount,
        )
        for tier, amount in _EGRESS.items()
    },
    "transfer-between-zones": Entry(_COMPUTE, "Network Inter Zone Data Transfer Out", ("GiBy",), "GiB"),
    "kms-key": Entry(_KMS, "Active software symmetric key versions", ("active key versions", "mo"), "month"),
    "key-operations": Entry(
        _KMS, "Cryptographic operations with a software symmetric key", ("count",), "10k-operations", factor=10_000
    ),
    "secret-version": Entry("Secret Manager", "Secret version replica storage", ("mo",), "month"),
    "gke-cluster": Entry("Kubernetes Engine", "Regional Kubernetes Clusters", ("h",), "hour"),
    "log-ingestion": Entry("Cloud Logging", "Log Storage cost", ("GiBy",), "GiB", amount=100.0),
    "dns-zone": Entry("Cloud DNS", "ManagedZone", ("mo",), "month"),
    "image-storage": Entry("Artifact Registry", "Artifact Registry Storage"),
}

GCP_UNREAD: Mapping[str, str] = {
    "alert-condition": "no known source names the Catalog entry for a condition of an alerting policy",
}
"""Services of the catalogue that are not read, and why."""

E2_MACHINES: Mapping[str, tuple[float, float]] = {
    "instance-e2-small": (0.5, 2.0),
    "instance-e2-medium": (1.0, 4.0),
    "instance-e2-standard-2": (2.0, 8.0),
    "instance-e2-standard-4": (4.0, 16.0),
}
"""Machines without accelerators: billed cores (may be fractional) and GiB of memory."""


def get_price(sku: Mapping[str, Any], entry: Entry) -> tuple[float, str, str]:
    """US dollars per catalogue unit, the unit, the currency. An unexpected unit is returned unchanged, to be refused.
    KeyError, TypeError, ValueError, IndexError: an undocumented shape.
    """
    expression = sku["pricingInfo"][-1]["pricingExpression"]
    tiers = [rate for rate in expression["tieredRates"] if _start(rate) <= entry.amount]
    price = max(tiers, key=_start)["unitPrice"]
    listed_unit = str(expression["usageUnit"])
    is_expected = listed_unit in entry.listed_units or expression.get("usageUnitDescription") in entry.listed_units
    usd = int(price.get("units", 0)) + int(price.get("nanos", 0)) / 1e9
    return usd * entry.factor, entry.unit if is_expected else listed_unit, str(price.get("currencyCode", "USD"))


def _start(rate: Mapping[str, Any]) -> float:
    return float(rate.get("startUsageAmount", 0))
