"""Azure's retail prices (no credentials): on demand, spot, one- and three-year reservations priced for the whole term,
services. Excludes Windows, low priority, dev/test, dedicated hosts and future meters.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from urllib.parse import urlsplit

from gangway.components.catalog.validators import SERVICE_FIELD, Observed, PriceField
from gangway.finops.prices import source

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
    "snapshot-lrs": "no known source names the meter of images in galleries",
    "transfer-between-zones": "Microsoft announced in May 2024 that it does not charge for it; the API lists a price",
}
"""Services of the catalogue that are not read, and why."""


API_URL = "https://prices.azure.com/api/retail/prices"
VERSION = "2023-01-01-preview"
TITLE = "Azure retail prices API"
HOURS_OF_TERM: Mapping[str, tuple[PriceField, int]] = {
    "1 Year": ("reserved_1y", 8760),
    "3 Years": ("reserved_3y", 26280),
}
UNITS = {"1 Hour": "hour"}
# Parts of product or meter names that mean something other than an ordinary Linux machine.
LEFT_OUT = ("Windows", "Low Priority", "Dedicated Host", "CloudServices", "Cloud Services")


class AzureSource:
    """The retail prices API. `today`: the prices' date; the API has none."""

    name = "azure"
    how = "the retail prices API, without credentials"

    def __init__(self, web: source.Web, today: date, api_url: str = API_URL) -> None:
        self._web, self._today, self._api_url = web, today, api_url

    def fetch(self, queries: Sequence[source.Query]) -> Iterable[source.Answer]:
        """Fetch prices, see `PriceSource`."""
        for region in dict.fromkeys(query.region for query in queries):
            own = [query for query in queries if query.region == region]
            if sizes := [query.item for query in own if not query.is_service]:
                yield from self._region(region, sizes)
            yield from self._services(region, [query.item for query in own if query.is_service])

    def _services(self, region: str, services: Sequence[str]) -> Iterator[source.Answer]:
        sizes = [name.removeprefix(source.INSTANCE) for name in services if name.startswith(source.INSTANCE)]
        yield from source.as_services(self._region(region, sizes)) if sizes else ()
        meters = {name: AZURE_SERVICES[name] for name in services if name in AZURE_SERVICES}
        for place in dict.fromkeys(meter.place for meter in meters.values()):
            selected = {name: meter for name, meter in meters.items() if meter.place == place}
            yield from self._service_prices(region, place or region, selected)
        yield from source.unreadable_gaps(services, AZURE_UNREAD)

    def _service_prices(self, region: str, place: str, meters: Mapping[str, Meter]) -> Iterator[source.Answer]:
        """The tier of each meter that holds its amount. `place`: the region to query."""
        conditions = " or ".join(dict.fromkeys(meter.condition for meter in meters.values()))
        region_filter = f"armRegionName eq '{place}' and priceType eq 'Consumption' and ({conditions})"
        current: dict[str, dict[str, Any]] = {}
        for row in self._rows(region_filter):
            try:
                for name, meter in meters.items():
                    if meter.matches(row) and _tier(row) <= meter.amount and _effective(row) <= self._today:
                        current[name] = max(current.get(name, row), row, key=_service_ranks)
            except (KeyError, TypeError, AttributeError, ValueError):
                yield source.Gap(region, str(row)[:80], "a meter lacks documented fields")
        for name, row in current.items():
            meter, listed_unit = meters[name], str(row["unitOfMeasure"])
            usd, unit = (
                float(row["retailPrice"]) * meter.factor,
                meter.unit if listed_unit == meter.listed_unit else listed_unit,
            )
            about = f"{row['productName']}, {row['meterName']}"
            yield self._price(name, region, SERVICE_FIELD, usd, about, unit, row["currencyCode"])

    def _region(self, region: str, sizes: Sequence[str]) -> Iterator[source.Answer]:
        current: dict[tuple[str, PriceField], dict[str, Any]] = {}
        names = " or ".join(f"armSkuName eq '{size}'" for size in sizes)
        condition = f"serviceName eq 'Virtual Machines' and armRegionName eq '{region}' and ({names})"
        for meter in self._rows(condition):
            try:
                field = self._field(meter)
                key = (str(meter["armSkuName"]), field) if field else None
                if key and _ranks(meter) > _ranks(current.get(key, {})):
                    current[key] = meter
            except (KeyError, TypeError, AttributeError, ValueError):
                yield source.Gap(region, str(meter)[:80], "a meter lacks documented fields")
        for (size, field), meter in current.items():
            if size in sizes:
                yield from self._observed(size, field, meter)

    def _rows(self, condition: str) -> Iterator[dict[str, Any]]:
        page = self._web.json(self._api_url, {"api-version": VERSION, "currencyCode": "'USD'", "$filter": condition})
        while True:
            if not isinstance(page.get("Items"), list):
                raise source.SourceError(f"{self._api_url} answered without Items: {str(page)[:80]!r}")
            yield from page["Items"]
            following = page.get("NextPageLink")
            if not following:
                return
            if urlsplit(following).hostname != urlsplit(self._api_url).hostname:
                raise source.SourceError(f"{self._api_url} names a next page on another host: {following[:80]!r}")
            page = self._web.json(following)

    def _field(self, meter: Mapping[str, Any]) -> PriceField | None:
        names = f"{meter['productName']} {meter['meterName']} {meter['skuName']}"
        if any(part in names for part in LEFT_OUT) or _effective(meter) > self._today:
            return None
        if meter["type"] == "Reservation":
            term = HOURS_OF_TERM.get(meter.get("reservationTerm", ""))
            return term[0] if term else None
        if meter["type"] != "Consumption":
            return None
        return "spot_high" if "Spot" in names else "on_demand"

    def _observed(self, size: str, field: PriceField, meter: Mapping[str, Any]) -> Iterator[Observed]:
        reserved = field in ("reserved_1y", "reserved_3y")
        hours = HOURS_OF_TERM[meter["reservationTerm"]][1] if reserved else 1
        term = f", {meter['reservationTerm']} over {hours} hours" if reserved else ""
        # Spot has one price per region.
        ends: tuple[PriceField, ...] = ("spot_low", "spot_typical", "spot_high") if field == "spot_high" else (field,)
        usd, unit, region = (
            float(meter["retailPrice"]) / hours,
            str(meter["unitOfMeasure"]),
            str(meter["armRegionName"]),
        )
        about, currency = f"{meter['meterName']}{term}", meter["currencyCode"]
        for end in ends:
            yield self._price(size, region, end, usd, about, UNITS.get(unit, unit), currency)

    def _price(
        self, item: str, region: str, field: PriceField, usd: float, about: str, unit: str, currency: object
    ) -> Observed:
        source = f"{TITLE}, {about}"
        place = (self.name, item, region, field)
        return Observed(*place, usd, source, self._today, url=API_URL, unit=unit, currency=str(currency))


def _effective(meter: Mapping[str, Any]) -> date:
    return date.fromisoformat(str(meter["effectiveStartDate"])[:10])


def _tier(meter: Mapping[str, Any]) -> float:
    return float(meter["tierMinimumUnits"])


def _service_ranks(meter: Mapping[str, Any]) -> tuple[float, date]:
    """The highest tier up to the amount holds it; of two prices of a tier the newer counts."""
    return _tier(meter), _effective(meter)


def _ranks(meter: Mapping[str, Any]) -> tuple[bool, bool, date]:
    """Of two meters for one thing the primary one counts, then the newer."""
    if not meter:
        return False, False, date.min
    return True, bool(meter.get("isPrimaryMeterRegion")), _effective(meter)


def open_source(now: datetime) -> source.PriceSource:
    """The retail prices API, which wants no credentials."""
    return AzureSource(source.Web(source.plain_session()), now.date())
