"""Reads public price lists: what each states of an item in a region, in US dollars an hour or GiB-month."""

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

__all__ = ["READERS", "Stated"]

HOURS_PER_MONTH = 730
_REGION = re.compile(r'"([a-z0-9-]+)"(?:: \{|\] = map)')
_PRICE = re.compile(r'"([\w.-]+)":\s+([\d.]+)')
_ZONE = re.compile(r"[a-z0-9]+-az\d+")
"""The id of an availability zone; those of Local Zones have a city in them."""
_BUCKETS = {"standard": "gcs-standard"}
_DISKS = {"balanced": "pd-balanced", "ssd": "pd-ssd"}
_SECTIONS = {
    "blob-hot-lrs": ("blob_gb_month", ""),
    "ebs-gp3": ("ebs_gb_month", "gp3"),
    "filestore-zonal": ("filestore_gb_month", "zonal"),
    # Flow logs are kept in a storage account of the same kind.
    "flow-log-storage": ("blob_gb_month", ""),
    "hyperdisk-balanced": ("disk_gb_month", "hyperdisk-balanced"),
    "image-storage": ("ecr_gb_month", ""),
    "interface-endpoint": ("vpc_endpoint_hour", ""),
    "nat-gateway": ("nat_gateway_hour", ""),
    "public-ip": ("public_ip_hour", ""),
    "s3-standard": ("s3_gb_month", ""),
    **{f"premium-ssd-p{size}": ("disk_tier_month", f"P{size} LRS") for size in (4, 6, 10, 15, 20, 30, 40)},
}
"""Of zombiescan's table: a service's section, and its key in a region where that holds several prices."""
_SIZE = re.compile(r"(?:Standard_)?(N[CDV]+\d+[a-z]+)[ _]?([A-Z]+\d+X?)?[ _]?(v\d)( Spot)?")
"""A virtual machine with GPUs, which the retail price API spells in several ways."""
_LUSTRE = "AMLFS-Durable-Premium-"
_EGRESS = {"0-1": "egress-internet", "1-10": "egress-internet-from-1tb", "10n": "egress-internet-from-10tb"}


class Stated(NamedTuple):
    """One price. `field`: of `MachinePrice`, `spot` for one zone's price, or `usd` of a service."""

    item: str
    region: str
    field: str
    usd: float


def _karpenter(path: Path) -> Iterator[Stated]:
    """The Go tables of Karpenter's providers: on demand."""
    region = ""
    for line in path.read_text("utf-8").splitlines():
        if found := _REGION.search(line):
            region = found[1]
            continue
        for item, usd in _PRICE.findall(line):
            yield Stated(item, region, "on_demand", float(usd))


def _skypilot(path: Path) -> Iterator[Stated]:
    """SkyPilot's `vms.csv`: a row a zone."""
    with path.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            if not _ZONE.fullmatch(row["AvailabilityZone"]):
                continue
            for column, field in (("Price", "on_demand"), ("SpotPrice", "spot")):
                if row[column]:
                    yield Stated(row["InstanceType"], row["Region"], field, float(row[column]))


def _gcosts(path: Path) -> Iterator[Stated]:
    """Cyclenerd's `pricing.yml`; a committed price is a month's."""
    table = yaml.load(path.read_text("utf-8"), Loader=yaml.CSafeLoader)
    for item, about in table["compute"]["instance"].items():
        for region, cost in about.get("cost", {}).items():
            for name, field, hours in (
                ("hour", "on_demand", 1),
                ("hour_spot", "spot", 1),
                ("month_1y", "reserved_1y", HOURS_PER_MONTH),
                ("month_3y", "reserved_3y", HOURS_PER_MONTH),
            ):
                if cost.get(name):
                    yield Stated(item, region, field, cost[name] / hours)
    yield from _google_services(table)


def _google_services(table: Mapping[str, Any]) -> Iterator[Stated]:
    compute, nat = table["compute"], table["compute"]["network"]["nat"]
    for kinds, named in ((table["storage"]["bucket"], _BUCKETS), (compute["storage"], _DISKS)):
        for kind, service in named.items():
            yield from _by_region(service, kinds[kind]["cost"], "month")
    yield from _by_region("cloud-nat", nat["gateway"]["cost"], "hour")
    yield from _by_region("nat-data", nat["data"]["cost"], "month")
    yield from _by_region("public-ipv4", compute["network"]["ip"]["vm"]["cost"], "hour")
    tiers = compute["network"]["traffic"]["egress"]["internet"]["cost"]
    for region in tiers["0-1"]:
        usd = [tiers[tier].get(region, {}).get("month") for tier in _EGRESS]
        # Some regions' tiers are mixed up in the list: a later tier is never dearer.
        if None not in usd and usd == sorted(usd, reverse=True):
            yield from (
                Stated(service, region, "usd", each) for service, each in zip(_EGRESS.values(), usd, strict=True)
            )


def _by_region(service: str, costs: Mapping[str, Mapping[str, float]], unit: str) -> Iterator[Stated]:
    for region, cost in costs.items():
        if cost.get(unit):
            yield Stated(service, region, "usd", cost[unit])


def _zombiescan(path: Path) -> Iterator[Stated]:
    """The price table of zombiescan, which it makes from the provider's own API."""
    table = json.loads(path.read_text("utf-8"))
    for service, (section, key) in _SECTIONS.items():
        for region, usd in table.get(section, {}).items():
            if not key or key in usd:
                yield Stated(service, region, "usd", usd[key] if key else usd)


def _retail(path: Path) -> Iterator[Stated]:
    """Reads meters of Microsoft's retail price API, as JSON objects.

    Skips storage with tiers, of which Azure Pricing Radar has only the last.
    """
    for meter in json.loads(path.read_text("utf-8")):
        region, sku, usd = meter["armRegionName"], meter["skuName"], meter["retailPrice"]
        if meter["productName"] == "Azure Managed Lustre" and meter["meterName"] == "Provisioned Capacity":
            yield Stated(f"managed-lustre-{sku.removeprefix(_LUSTRE)}", region, "usd", usd * HOURS_PER_MONTH)
        elif "Windows" not in meter["productName"] and (size := _SIZE.fullmatch(sku)):
            name = "_".join(("Standard", *(part for part in size.groups()[:3] if part)))
            yield Stated(name, region, "spot" if size[4] else "on_demand", usd)


READERS: Mapping[str, Callable[[Path], Iterator[Stated]]] = {
    "gcosts": _gcosts,
    "karpenter": _karpenter,
    "retail": _retail,
    "skypilot": _skypilot,
    "zombiescan": _zombiescan,
}
