"""Turns public price lists into components/catalog/*/price_lists.yaml.

    $ python -m tools.price_lists DIR

`price_lists.yaml` beside this names the lists and the files that DIR must hold. Only what the catalogue has is kept:
its machine types, services and regions, without the regions that do not sell a type.
"""

import csv
import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from math import inf
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import yaml

from gangway.components.catalog.loader import MACHINE_MODELS, PROVIDERS, Catalog, Provider, read_catalog
from gangway.components.catalog.prices import FIELDS, LISTS
from gangway.components.catalog.validators import PLACEHOLDER_USD

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
    table = json.loads(path.read_text("utf-8"))
    for service, (section, key) in _SECTIONS.items():
        for region, usd in table.get(section, {}).items():
            if not key or key in usd:
                yield Stated(service, region, "usd", usd[key] if key else usd)


def _retail(path: Path) -> Iterator[Stated]:
    """Meters of Microsoft's retail price API, without tiered storage, of which the source has only the last tier."""
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


CATALOG = Path(__file__).parents[1] / "components" / "catalog"


def main(arguments: Sequence[str]) -> None:
    """Writes the files of every provider; nothing where one of them cannot be made."""
    source = Path(arguments[0])
    lists: dict[Provider, list[dict[str, Any]]] = yaml.safe_load(
        (Path(__file__).parent / "price_lists.yaml").read_text()
    )
    texts = {provider: list_text(provider, lists[provider], source) for provider in PROVIDERS}
    for provider, text in texts.items():
        assert len(text) < 1_000_000, f"{provider}: too large for a file of the repository"
        (CATALOG / provider / LISTS).write_text(text, "utf-8")


def list_text(provider: Provider, lists: Iterable[Mapping[str, Any]], source: Path) -> str:
    """The file of one provider."""
    catalog = read_catalog(CATALOG / provider, provider, MACHINE_MODELS[provider])
    head = "# Written by `python -m tools.price_lists`; prices.yaml has what no list states. - is not known."
    return f"{head}\nlists:\n" + "".join(_block(each, catalog, source) for each in lists)


def _block(about: Mapping[str, Any], catalog: Catalog, source: Path) -> str:
    reader = READERS[about["reader"]]
    files = [list(reader(source / about["name"] / name)) for name in about["files"]]
    machines = _machines(files, catalog, bool(about.get("only_offered")))
    services = _services(files[-1], catalog)
    dated = "as_of" if "as_of" in about else "read_on"
    day: date = about[dated]
    lines = [
        f'  - title: "{about["title"]}"',
        f"    url: {about['url']}",
        f"    {dated}: {day}",
        "    confidence: list-price",
    ]
    for name, columns, rows in (
        ("machines", ("machine_type", "region", *FIELDS), machines),
        ("services", ("service", "region", "usd"), services),
    ):
        lines += [f"    {name}: |", f"      # {' '.join(columns)}", *(f"      {row}" for row in rows)] if rows else []
    return "\n".join(lines) + "\n"


def _machines(files: Sequence[Sequence[Stated]], catalog: Catalog, only_offered: bool) -> list[str]:
    """Returns the newest file's prices.

    Spot is the lowest and highest over zones and files, typical the median over zones of the newest file that has one,
    as a provider's list may move for good.
    """
    fixed: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    spot: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for number, stated in enumerate(files):
        for each in stated:
            machine = catalog.machines.get(each.item)
            if machine is None or each.region not in catalog.regions or each.usd in (0, PLACEHOLDER_USD):
                continue
            offered = machine.offered
            if offered is not None and (
                offered.excludes(each.region) or (only_offered and each.region not in offered.regions)
            ):
                continue
            if each.field == "spot":
                spot[each.item, each.region][number].append(each.usd)
            elif stated is files[-1]:
                fixed[each.item, each.region][each.field] = each.usd
    for key, by_file in spot.items():
        # A zone without spare machines asks the price on demand, rounded; never more.
        most = fixed[key].get("on_demand", inf)
        seen = [min(usd, most) for zones in by_file.values() for usd in zones]
        typical = min(median(by_file[max(by_file)]), most)
        fixed[key] |= {"spot_low": min(seen), "spot_typical": typical, "spot_high": max(seen)}
    order, regions = list(catalog.machines), list(catalog.regions)
    keys = sorted(fixed, key=lambda key: (order.index(key[0]), regions.index(key[1])))
    return [" ".join((*key, *(_number(fixed[key].get(field)) for field in FIELDS))) for key in keys]


def _services(stated: Sequence[Stated], catalog: Catalog) -> list[str]:
    known = {price.service for price in catalog.services}
    rows = {
        (name, each.region): each.usd
        for each in stated
        for name in [each.item if each.field == "usd" else f"instance-{each.item}"]
        if name in known and each.region in catalog.regions and each.field in ("usd", "on_demand")
    }
    regions = list(catalog.regions)
    keys = sorted(rows, key=lambda key: (key[0], regions.index(key[1])))
    return [f"{service} {region} {_number(rows[service, region])}" for service, region in keys]


def _number(usd: float | None) -> str:
    return "-" if usd is None else f"{usd:.6f}".rstrip("0").rstrip(".")


if __name__ == "__main__":
    main(sys.argv[1:])
