"""Which meter of the retail prices API is which service of the catalogue. Names are from Infracost's resources
(infracost/infracost, 95ba4f4) and from programs that read the API.
"""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["AZURE_SERVICES", "AZURE_UNREAD", "Meter"]

_GLOBAL = "Global"
_DNS_ZONE = "Zone 1"
"""Worldwide, not a region; all zones but the governments' cost the same."""
HOURS_PER_MONTH = 730
DAYS_PER_MONTH = 30
_EGRESS = {"": 5_000.0, "-from-10tb": 20_000.0, "-from-50tb": 100_000.0, "-from-150tb": 200_000.0}
"""An amount in GB within each tier above the free one."""


@dataclass(frozen=True)
class Meter:
    """One service in Microsoft's terms.

    Attributes:
        field: `productName` or `serviceName`, matched against `named`.
        sku: its `skuName`; empty if the meter suffices.
        unit: the catalogue's unit.
        factor: converts a listed price to `unit`.
        amount: in listed units; selects the tier.
        place: `armRegionName` of a price for all regions, else empty.
    """

    field: str
    named: str
    meter: str
    sku: str
    listed_unit: str
    unit: str
    factor: float = 1.0
    amount: float = 0.0
    place: str = ""

    @property
    def condition(self) -> str:
        """As a filter expression."""
        return f"{self.field} eq '{self.named}'"

    def matches(self, row: Mapping[str, object]) -> bool:
        """Whether a row is of this meter."""
        is_meter = row[self.field] == self.named and row["meterName"] == self.meter
        return is_meter and (not self.sku or row["skuName"] == self.sku)


def _blob(copies: str) -> Meter:
    meter, sku = f"Hot {copies} Data Stored", f"Hot {copies}"
    return Meter("productName", "General Block Blob v2", meter, sku, "1 GB/Month", "GiB-month")


def _registry(tier: str) -> Meter:
    meter = f"{tier} Registry Unit"
    return Meter("serviceName", "Container Registry", meter, "", "1/Day", "month", DAYS_PER_MONTH)


AZURE_SERVICES: Mapping[str, Meter] = {
    "blob-hot-lrs": _blob("LRS"),
    "blob-hot-zrs": _blob("ZRS"),
    "flow-log-storage": _blob("LRS"),
    "acr-premium": _registry("Premium"),
    "acr-standard": _registry("Standard"),
    "public-ip": Meter("productName", "IP Addresses", "Standard IPv4 Static Public IP", "", "1 Hour", "hour"),
    "nat-gateway": Meter("serviceName", "NAT Gateway", "Standard Gateway", "", "1 Hour", "hour", place=_GLOBAL),
    "nat-data": Meter("serviceName", "NAT Gateway", "Standard Data Processed", "", "1 GB", "GiB", place=_GLOBAL),
    "log-ingestion": Meter(
        "serviceName", "Log Analytics", "Analytics Logs Data Ingestion", "", "1 GB", "GiB", amount=100.0
    ),
    **{
        f"premium-ssd-p{size}": Meter(
            "productName", "Premium SSD Managed Disks", f"P{size} LRS Disk", f"P{size} LRS", "1/Month", "month"
        )
        for size in (4, 6, 10, 15, 20, 30, 40)
    },
    **{
        f"managed-lustre-{tier}": Meter(
            "productName", "Azure Managed Lustre", "Provisioned Capacity", f"AMLFS-Durable-Premium-{tier}",
            "1 GiB/Hour", "GiB-month", HOURS_PER_MONTH,
        )
        for tier in (40, 125, 250, 500)
    },
    **{
        f"egress-internet{tier}": Meter(
            "productName", "Rtn Preference: MGN", "Standard Data Transfer Out", "", "1 GB", "GiB", amount=amount
        )
        for tier, amount in _EGRESS.items()
    },
    "private-endpoint": Meter(
        "productName", "Virtual Network Private Link", "Standard Private Endpoint", "", "1 Hour", "hour", place=_GLOBAL
    ),
    "private-dns-zone": Meter("serviceName", "Azure DNS", "Private Zone", "Private", "1", "month", place=_DNS_ZONE),
    **{
        f"bastion-{tier.lower()}": Meter("serviceName", "Azure Bastion", f"{tier} Gateway", tier, "1 Hour", "hour")
        for tier in ("Basic", "Standard")
    },
    **{
        f"query-alert-PT{minutes}M": Meter(
            "serviceName", "Azure Monitor", f"Alerts System Log Monitored at {minutes} Minute Frequency", "Alerts",
            "1/Month", "month",
        )
        for minutes in (5, 10, 15)
    },
    "aks-cluster": Meter(
        "serviceName", "Azure Kubernetes Service", "Standard Uptime SLA", "Standard", "1 Hour", "hour"
    ),
    # For a whole network; the first 5 GB a month are free.
    "flow-log-collection": Meter(
        "serviceName", "Network Watcher", "Standard VNet Flow Logs Collected", "", "1 GB", "GiB", amount=100.0
    ),
    "key-operations": Meter("productName", "Key Vault", "Operations", "Standard", "10K", "10k-operations"),
}  # fmt: skip

AZURE_UNREAD: Mapping[str, str] = {
    "transfer-between-zones": "Microsoft announced in May 2024 that it does not charge for it; the API lists a price",
}
"""Services of the catalogue that are not read, and why."""
