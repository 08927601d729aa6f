"""Google Cloud's prices from the Cloud Billing Catalog: parts summed to machines, TPU chips, and services."""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from fnmatch import fnmatchcase
from typing import Any, TypeAlias, cast

from gangway.components.catalog.loader import load_provider
from gangway.components.catalog.schema import GcpMachineType
from gangway.components.catalog.validators import SERVICE_FIELD, Observed, PriceField
from gangway.finops.prices import source

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
    "machine-image": "no known source names the Catalog entry for the storage of images",
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
    """Dollars per unit, unit, currency. KeyError, TypeError, ValueError, IndexError: an undocumented shape."""
    expression = sku["pricingInfo"][-1]["pricingExpression"]
    tiers = [rate for rate in expression["tieredRates"] if _start(rate) <= entry.amount]
    price = max(tiers, key=_start)["unitPrice"]
    listed_unit = str(expression["usageUnit"])
    is_expected = listed_unit in entry.listed_units or expression.get("usageUnitDescription") in entry.listed_units
    usd = int(price.get("units", 0)) + int(price.get("nanos", 0)) / 1e9
    return usd * entry.factor, entry.unit if is_expected else listed_unit, str(price.get("currencyCode", "USD"))


def _start(rate: Mapping[str, Any]) -> float:
    return float(rate.get("startUsageAmount", 0))


DROPPED = (
    "dws", "calendar mode", "reserved", "commitment", "sole tenancy", "custom", "premium", "suspended", "optimized tpu"
)  # fmt: skip
"""Words in descriptions."""
UNITS = {"h": 1.0, "GiBy.h": 1.0, "GiBy.mo": 1 / 730}
"""Usage units and the factor to an hourly price."""
_DESCRIPTION = re.compile(
    r"(?:spot preemptible )?(?P<part>.+?)(?: attached to spot preemptible vms)?(?: (?:running )?in [^(]+)?"
)
KEY_VARIABLE = "GANGWAY_GOOGLE_API_KEY"
"""An API key of a project with the Cloud Billing API, instead of Application Default Credentials."""
API_URL = "https://cloudbilling.googleapis.com/v1"
COMPUTE_ENGINE = "services/6F81-5844-456A"
COMPUTE_NAME = "Compute Engine"
TITLE = "Google Cloud Billing Catalog"
PAGE_SIZE = 5000
SSD = "ssd backed local storage"
E2_CORE, E2_RAM = "e2 instance core", "e2 instance ram"
TPU_PARTS: Mapping[str, str] = {"v5e": "tpuv5e", "v5p": "tpuv5p", "v6e": "tpuv6e"}
"""Generations whose chips Compute Engine lists."""
_FIELDS: Mapping[bool, tuple[PriceField, ...]] = {
    False: ("on_demand",),
    True: ("spot_low", "spot_typical", "spot_high"),
}


@dataclass(frozen=True)
class Part:
    """A machine part in one region. `name`: from the description, such as `a3 instance core`."""

    name: str
    region: str
    spot: bool


def is_dropped(description: str) -> bool:
    """Whether the description is not of a part of an ordinary machine."""
    return any(word in description.lower() for word in DROPPED)


def part_prices(sku: Mapping[str, Any]) -> Iterable[tuple[Part, float]]:
    """Dollars per hour of an entry's core, GiB, card or chip, by region. Raises as `get_price`."""
    description, usage = str(sku["description"]).lower(), sku["category"]["usageType"]
    if usage not in ("OnDemand", "Preemptible") or is_dropped(description):
        return
    match = _DESCRIPTION.fullmatch(description)
    name = match["part"] if match else description
    spot = "spot preemptible" in description or usage == "Preemptible"
    price = _usd_per_hour(sku)
    for region in sku["serviceRegions"]:
        yield Part(name, str(region), spot), price


def _usd_per_hour(sku: Mapping[str, Any]) -> float:
    """The first tier: machine parts have no others."""
    # In chronological order, says the API reference; without a time range there is only one.
    expression = sku["pricingInfo"][-1]["pricingExpression"]
    unit, price = expression["usageUnit"], expression["tieredRates"][0]["unitPrice"]
    if unit not in UNITS:
        raise ValueError(f"unit {unit!r}")
    if price.get("currencyCode", "USD") != "USD":
        raise ValueError(f"currency {price['currencyCode']!r}")
    return (int(price.get("units", 0)) + int(price.get("nanos", 0)) / 1e9) * UNITS[unit]


@dataclass(frozen=True)
class Family:
    """The parts of a machine family. `cards`: past and current names of the accelerator, the first with a price counts;
    `instance`: of cores and memory, empty if the card's price includes them; `ssd`: whether local SSDs are included in
    the machine.
    """

    cards: tuple[str, ...]
    instance: str = ""
    ssd: bool = False


FAMILIES: Mapping[str, Family] = {
    "a2-highgpu": Family(("nvidia tesla a100 gpu",), "a2 instance"),
    "a2-ultragpu": Family(("nvidia tesla a100 80gb gpu",), "a2 instance", ssd=True),
    "a3-highgpu": Family(("nvidia h100 80gb gpu",), "a3 instance", ssd=True),
    "a3-megagpu": Family(("nvidia h100 80gb mega gpu", "nvidia h100 80gb plus gpu"), "a3plus instance", ssd=True),
    "a3-ultragpu": Family(("h200 141gb gpu", "nvidia h200 141gb gpu"), "a3ultra instance", ssd=True),
    "a4-highgpu": Family(("a4 nvidia b200 (1 gpu slice)",)),
    "g2-standard": Family(("nvidia l4 gpu",), "g2 instance"),
}

_Prices: TypeAlias = Mapping[Part, tuple[float, ...]]


class GcpSource:
    """The Cloud Billing Catalog. `machines`: to sum the parts for; `today`: the prices' date."""

    name = "gcp"

    def __init__(
        self,
        web: source.Web,
        machines: Mapping[str, GcpMachineType],
        today: date,
        how: str,
        key: str | None = None,
        api_url: str = API_URL,
    ) -> None:
        self._web, self._machines, self._today, self._key, self._api_url = web, machines, today, key, api_url
        self.how = how
        self._read: _Prices | None = None
        self._services: dict[tuple[str, str], list[Observed]] = {}
        self._has_services = False
        self._odd: list[source.Gap] = []

    def fetch(self, queries: Sequence[source.Query]) -> Iterable[source.Answer]:
        """Fetch prices, see `PriceSource`."""
        if self._read is None:
            self._read = self._walk()
            yield from self._odd
        services = [query for query in queries if query.is_service]
        if services and not self._has_services:
            yield from self._walk_services()
            self._has_services = True
        for query in services:
            yield from self._service(query, self._read)
        yield from source.unreadable_gaps([query.item for query in services], GCP_UNREAD)
        for query in (query for query in queries if not query.is_service):
            for spot in (False, True):
                if query.item in TPU_PARTS:
                    yield from self._chip(query, spot, self._read)
                elif family := FAMILIES.get(query.item.rpartition("-")[0]):
                    yield from self._machine(query, family, spot, self._read)

    def _walk(self) -> _Prices:
        found: dict[Part, tuple[float, ...]] = {}
        names, entries = _needed_parts(), _entries_in(COMPUTE_NAME)
        for sku in self._rows(f"{COMPUTE_ENGINE}/skus", "skus"):
            try:
                for part, price in part_prices(sku):
                    if part.name in names:
                        found[part] = (*found.get(part, ()), price)
            except (KeyError, TypeError, ValueError, IndexError, AttributeError) as problem:
                self._odd += _gap(sku, problem, names, ())
            self._odd += self._keep(sku, entries)
        return found

    def _rows(self, path: str, key: str) -> Iterator[Any]:
        query = {"currencyCode": "USD"} if key == "skus" else {}
        query |= {"pageSize": str(PAGE_SIZE), **({"key": self._key} if self._key else {})}
        while True:
            page = self._web.json(f"{self._api_url}/{path}", query)
            if not isinstance(page.get(key), list):
                raise source.SourceError(f"{self._api_url} answered without {key}: {str(page)[:80]!r}")
            yield from page[key]
            if not page.get("nextPageToken"):
                return
            query["pageToken"] = page["nextPageToken"]

    def _service(self, query: source.Query, prices: _Prices) -> Iterator[source.Answer]:
        """The service's price in the region or in all; for a machine, the sum of its parts."""
        if query.item in E2_MACHINES:
            cores, gib = E2_MACHINES[query.item]
            usd, lacking = _total({E2_CORE: cores, E2_RAM: gib}, query.region, False, prices)
            if not lacking:
                (found,) = self._observed(query, False, usd, f"{E2_CORE} + {E2_RAM}", "hour")
                yield replace(found, field=SERVICE_FIELD)
        for region in (query.region, EVERY_REGION):
            yield from (replace(each, region=query.region) for each in self._services.get((query.item, region), ()))

    def _walk_services(self) -> Iterator[source.Answer]:
        missing = {name: entry for name, entry in GCP_SERVICES.items() if not entry.is_listed_in(COMPUTE_NAME)}
        for row in self._rows("services", "services"):
            display_name = str(row.get("displayName"))
            entries = {} if display_name == COMPUTE_NAME else _entries_in(display_name)
            missing = {name: entry for name, entry in missing.items() if name not in entries}
            for sku in self._rows(f"{row['name']}/skus", "skus") if entries else ():
                yield from self._keep(sku, entries)
        for name, entry in missing.items():
            yield source.Gap("", name, f"the Catalog has no service {entry.listed_in!r}")

    def _keep(self, sku: Mapping[str, Any], entries: Mapping[str, Entry]) -> Iterator[source.Gap]:
        """Store an entry's prices if it is one of the services; a gap if its shape is unexpected."""
        try:
            for name in (name for name, entry in entries.items() if entry.matches(sku)):
                for each in self._observe_service(name, entries[name], sku):
                    self._services.setdefault((name, each.region), []).append(each)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as problem:
            yield from _gap(sku, problem, (), entries.values())

    def _observe_service(self, name: str, entry: Entry, sku: Mapping[str, Any]) -> Iterator[Observed]:
        usd, unit, currency = get_price(sku, entry)
        about = (f"{TITLE}: {sku['description']}", self._today)
        for region in sku["serviceRegions"]:
            place, url = (self.name, name, str(region), SERVICE_FIELD), f"{API_URL}/services"
            yield Observed(*place, usd, *about, url=url, unit=unit, currency=currency)

    def _machine(self, query: source.Query, family: Family, spot: bool, prices: _Prices) -> Iterator[source.Answer]:
        machine = self._machines[query.item]
        cards = [name for name in family.cards if Part(name, query.region, spot) in prices]
        amounts = {cards[0] if cards else family.cards[0]: float(machine.num_accelerators.value)}
        if family.instance:
            amounts[f"{family.instance} core"] = machine.vcpus.value
            amounts[f"{family.instance} ram"] = machine.memory_gib.value
        if family.ssd:
            amounts[SSD] = machine.instance_store_gib.value or 0
        usd, lacking = _total(amounts, query.region, spot, prices)
        if not lacking:
            yield from self._observed(query, spot, usd, " + ".join(amounts), "hour")
        elif cards:
            # Without its card the machine is not sold there, so nothing is missing.
            label = f"{query.item}, {'spot' if spot else 'on demand'}"
            yield source.Gap(query.region, label, f"no unique price for its {', '.join(lacking)}")

    def _chip(self, query: source.Query, spot: bool, prices: _Prices) -> Iterator[source.Answer]:
        for usd in prices.get(Part(TPU_PARTS[query.item], query.region, spot), ()):
            yield from self._observed(query, spot, usd, TPU_PARTS[query.item], "chip-hour")

    def _observed(self, query: source.Query, spot: bool, usd: float, parts: str, unit: str) -> Iterator[Observed]:
        about = (f"{TITLE}: {parts}{', spot' if spot else ''}", self._today)
        for field in _FIELDS[spot]:
            place, url = (self.name, query.item, query.region, field), f"{API_URL}/{COMPUTE_ENGINE}/skus"
            yield Observed(*place, usd, *about, url=url, unit=unit)


def _total(amounts: Mapping[str, float], region: str, spot: bool, prices: _Prices) -> tuple[float, list[str]]:
    """The sum of the parts, and the parts without one clear price. A part at 0 makes the total 0, which is no price."""
    known = {name: prices.get(Part(name, region, spot), ()) for name in amounts}
    lacking = [name for name, found in known.items() if len(set(found)) != 1]
    if lacking or not all(found[0] for found in known.values()):
        return 0.0, lacking
    return sum(amounts[name] * found[0] for name, found in known.items()), []


def _entries_in(display_name: str) -> dict[str, Entry]:
    return {name: entry for name, entry in GCP_SERVICES.items() if entry.is_listed_in(display_name)}


def _needed_parts() -> frozenset[str]:
    """The parts needed here; the Catalog has tens of thousands."""
    instances = {family.instance for family in FAMILIES.values() if family.instance}
    cards = {card for family in FAMILIES.values() for card in family.cards}
    return frozenset(
        {
            *cards,
            SSD,
            E2_CORE,
            E2_RAM,
            *TPU_PARTS.values(),
            *(f"{name} {part}" for name in instances for part in ("core", "ram")),
        }
    )


def _gap(sku: object, problem: Exception, parts: Collection[str], entries: Iterable[Entry]) -> list[source.Gap]:
    """A gap for an unexpected shape, only if it looks like a wanted part or service."""
    description = str(sku.get("description", "")) if isinstance(sku, dict) else ""
    is_part = any(name in description.lower() for name in parts) and not is_dropped(description)
    if not is_part and not any(entry.is_described(description) for entry in entries):
        return []
    return [source.Gap("", description[:80], f"an entry lacks documented fields: {problem!r}")]


def open_source(now: datetime) -> source.PriceSource:
    """The Cloud Billing Catalog. SourceError: there are neither credentials nor a key."""
    from gangway.components.gcp.tpu.api import TpuError, open_session

    key = os.environ.get(KEY_VARIABLE)
    if key:
        session, how = source.plain_session(), f"the Cloud Billing Catalog, with the key in {KEY_VARIABLE}"
    else:
        try:
            session = cast("source.WebSession", open_session(API_URL))
        except TpuError as problem:
            raise source.SourceError(f"{problem}; an API key in {KEY_VARIABLE} also works") from None
        how = "the Cloud Billing Catalog, with Application Default Credentials"
    machines = cast("dict[str, GcpMachineType]", dict(load_provider("gcp").machines))
    return GcpSource(source.Web(session), machines, now.date(), how, key or None)
