"""AWS's prices, with the caller's credentials (Price List Query API, spot history, blocks) or from the offer files."""

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import partial
from itertools import islice
from statistics import median
from typing import Any

from gangway.components.catalog.validators import SERVICE_FIELD, Observed, PriceField
from gangway.finops.prices.source import (
    INSTANCE,
    Answer,
    Gap,
    PriceSource,
    Query,
    SourceError,
    UnreachableError,
    Web,
    as_services,
    plain_session,
    unreadable_gaps,
)

_EGRESS = {"": 0.0, "-from-10tb": 20_000.0, "-from-50tb": 100_000.0, "-from-150tb": 200_000.0}
"""An amount in GB within each tier."""
_HOUR = "Hrs"
_LUSTRE = "CreateFileSystem:Lustre"


@dataclass(frozen=True)
class Product:
    """One service in AWS's terms.

    Attributes:
        code: of its price list, such as `AmazonEC2`.
        usage: its usage type after the region's prefix, which us-east-1 often lacks: `EUC1-EBS:VolumeUsage.gp3`, or
            `eu-west-1-KMS-Keys`. Empty if family and operation suffice.
        listed_unit: the list's unit; `Hrs` matches every spelling of an hour.
        unit: the catalogue's unit.
        factor: converts a listed price to `unit`.
        amount: in listed units; selects the tier.
        operation: empty if the usage type suffices.
        is_global: listed without a region, at one price for all.
    """

    code: str
    family: str
    usage: str
    listed_unit: str
    unit: str
    factor: float = 1.0
    amount: float = 0.0
    operation: str = ""
    is_global: bool = False

    def filters(self, region: str) -> dict[str, str]:
        """Filters for the Price List API."""
        # Traffic has two ends; the first is the region.
        field = "fromRegionCode" if self.code == "AWSDataTransfer" else "regionCode"
        place = {"usagetype": self.usage} if self.is_global else {field: region}
        return {**({"productFamily": self.family} if self.family else {}), **place}

    @property
    def mark(self) -> str:
        """A text in every offer file line of this product."""
        return f'{self.usage}"' if self.usage else f'"{self.operation}"'

    def matches(self, usage_type: str, operation: str) -> bool:
        """Whether usage type (in any region) and operation match."""
        prefix = r"(?:[A-Z]+\d*-|[a-z]{2}(?:-[a-z]+)+-\d+-)?"
        is_usage = not self.usage or re.fullmatch(rf"{prefix}{re.escape(self.usage)}", usage_type) is not None
        return is_usage and self.operation in ("", operation)

    def get_unit(self, listed: str) -> str:
        """The catalogue's unit for the expected listed one; any other unchanged, to be refused."""
        is_hour = self.listed_unit == _HOUR and listed.lower() in ("hrs", "hours", "hour")
        return self.unit if is_hour or listed == self.listed_unit else listed


def holds(begin: str, end: str, amount: float) -> bool:
    """Whether a tier, with its ends as listed, holds an amount.

    >>> holds("0", "10240", 0.0), holds("10240", "Inf", 0.0)
    (True, False)
    """
    return float(begin) <= amount < float(end)


AWS_SERVICES: Mapping[str, Product] = {
    "ebs-gp3": Product("AmazonEC2", "Storage", "EBS:VolumeUsage.gp3", "GB-Mo", "GiB-month"),
    "ebs-gp3-throughput": Product(
        "AmazonEC2", "Provisioned Throughput", "EBS:VolumeP-Throughput.gp3", "GiBps-mo", "MiBps-month", 1 / 1024
    ),
    "ebs-snapshot": Product("AmazonEC2", "Storage Snapshot", "EBS:SnapshotUsage", "GB-Mo", "GiB-month"),
    "nat-gateway": Product("AmazonEC2", "NAT Gateway", "NatGateway-Hours", "Hrs", "hour"),
    "nat-data": Product("AmazonEC2", "NAT Gateway", "NatGateway-Bytes", "GB", "GiB"),
    "interface-endpoint": Product("AmazonVPC", "VpcEndpoint", "VpcEndpoint-Hours", "Hrs", "hour"),
    "s3-standard": Product("AmazonS3", "Storage", "TimedStorage-ByteHrs", "GB-Mo", "GiB-month"),
    "image-storage": Product("AmazonECR", "EC2 Container Registry", "TimedStorage-ByteHrs", "GB-Mo", "GiB-month"),
    "log-ingestion": Product("AmazonCloudWatch", "Data Payload", "DataProcessing-Bytes", "GB", "GiB"),
    "metric": Product("AmazonCloudWatch", "Metric", "CW:MetricMonitorUsage", "Metrics", "month"),
    "metric-alarm": Product("AmazonCloudWatch", "Alarm", "CW:AlarmMonitorUsage", "Alarms", "month"),
    "transfer-between-zones": Product("AWSDataTransfer", "Data Transfer", "DataTransfer-Regional-Bytes", "GB", "GiB"),
    **{
        f"egress-internet{tier}": Product(
            "AWSDataTransfer", "Data Transfer", "DataTransfer-Out-Bytes", "GB", "GiB", amount=amount
        )
        for tier, amount in _EGRESS.items()
    },
    **{
        f"lustre-persistent-2-{tier}": Product("AmazonFSx", "Storage", f"Storage.SSD.{tier}", "GB-Mo", "GiB-month")
        for tier in (125, 250, 500, 1000)
    },
    # The oldest type of file system has the plainest name.
    "lustre-scratch-2": Product("AmazonFSx", "Storage", "Storage", "GB-Mo", "GiB-month", operation=_LUSTRE),
    "lustre-metadata-iops": Product("AmazonFSx", "Provisioned IOPS", "", "IOPS-Mo", "IOPS-month", operation=_LUSTRE),
    "kms-key": Product("awskms", "Encryption Key", "KMS-Keys", "Keys", "month"),
    # Above the free tier.
    "key-operations": Product(
        "awskms", "API Request", "KMS-Requests", "Requests", "10k-operations", 10_000, amount=1_000_000.0
    ),
    "eks-cluster": Product("AmazonEKS", "Compute", "AmazonEKS-Hours:perCluster", _HOUR, "hour"),
    "public-ipv4": Product("AmazonVPC", "", "PublicIPv4:InUseAddress", _HOUR, "hour"),
    "dns-zone": Product("AmazonRoute53", "DNS Zone", "HostedZone", "HostedZone", "month", is_global=True),
    "dns-firewall-name": Product("AmazonRoute53", "DNS Domain Names", "DNS-FirewallDomainName", "Mo", "month"),
    "dashboard": Product(
        "AmazonCloudWatch", "Dashboard", "DashboardsUsageHour", "Dashboards", "month", amount=100.0, is_global=True
    ),
    "composite-alarm": Product("AmazonCloudWatch", "Alarm", "CW:CompositeAlarmMonitorUsage", "Alarms", "month"),
}

AWS_UNREAD: Mapping[str, str] = {}
"""Services of the catalogue that are not read, and why."""


Clients = Callable[[str, str], Any]
"""Makes a boto3 client from a service and a region."""
API_URL = "https://api.pricing.us-east-1.amazonaws.com"
EC2_URL = "https://docs.aws.amazon.com/AWSEC2/latest/APIReference/"
PRICING_REGION = "us-east-1"
"""The Price List Query API answers for all regions from here."""
FILTERS: Mapping[str, str] = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "licenseModel": "No License required",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}
TERMS: Mapping[str, PriceField] = {"1yr": "reserved_1y", "3yr": "reserved_3y"}
PLATFORM = "Linux/UNIX"
MAX_ATTEMPTS = 6
BLOCK_HOURS = 24
BLOCK_FAMILIES = ("p4d.", "p4de.", "p5.", "p5e.", "p5en.", "p6-b200.", "p6-b300.", "trn1.", "trn2.")
"""Families sold in capacity blocks."""
SPOT_BATCH = 50
"""Machine types per spot request."""
_NEVER = datetime.min.replace(tzinfo=UTC)
FILES_URL = "https://pricing.us-east-1.amazonaws.com/offers/v1.0/aws"
EC2 = "AmazonEC2"
_API, _FILE = "AWS Price List API", "AWS public offer file"


class AwsSource:
    """AWS's own APIs. `now`: time of spot prices, and the date of undated prices."""

    name = "aws"
    how = "the Price List API, spot history and capacity block offerings, with your credentials"

    def __init__(self, clients: Clients, now: datetime) -> None:
        self._clients, self._now = clients, now
        self._pricing: Any = None

    def fetch(self, queries: Sequence[Query]) -> Iterable[Answer]:
        """Fetch prices, see `PriceSource`. If EC2 fails in a region, its price list may still be readable."""
        if self._pricing is None:
            self._pricing = self._clients("pricing", PRICING_REGION)
        machines = [query for query in queries if not query.is_service]
        for query in machines:
            yield from self._on_demand(query)
        for query in (query for query in queries if query.is_service):
            yield from self._service(query)
        yield from unreadable_gaps([query.item for query in queries if query.is_service], AWS_UNREAD)
        for region in dict.fromkeys(query.region for query in machines):
            types = [query.item for query in machines if query.region == region]
            try:
                yield from self._spot(region, types)
            except SourceError as problem:
                yield Gap(region, "spot prices", str(problem))
            yield from self._blocks(region, types)

    def _on_demand(self, query: Query) -> Iterator[Answer]:
        filters = {**FILTERS, "instanceType": query.item, "regionCode": query.region}
        return self._products(query, EC2, filters, self._product_prices)

    def _service(self, query: Query) -> Iterator[Answer]:
        """The price of the tier that holds the service's amount; for a machine, its on-demand price."""
        if query.item.startswith(INSTANCE):
            yield from as_services(self._on_demand(Query(query.item.removeprefix(INSTANCE), query.region)))
        elif product := AWS_SERVICES.get(query.item):
            read = partial(self._service_prices, query, product)
            yield from self._products(query, product.code, product.filters(query.region), read)

    def _products(
        self,
        query: Query,
        code: str,
        filters: Mapping[str, str],
        read: Callable[[Mapping[str, Any]], Iterable[Observed]],
    ) -> Iterator[Answer]:
        terms = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in filters.items()]
        for text in self._pages(self._pricing, "get_products", "PriceList", ServiceCode=code, Filters=terms):
            try:
                yield from read(json.loads(text) if isinstance(text, str) else text)
            except (KeyError, TypeError, ValueError, AttributeError) as problem:
                yield Gap(query.region, query.item, f"a product lacks documented fields: {problem!r}")

    def _service_prices(self, query: Query, product: Product, row: Mapping[str, Any]) -> Iterator[Observed]:
        attributes = row["product"]["attributes"]
        if not product.matches(attributes["usagetype"], attributes.get("operation", "")):
            return
        published = _day(row.get("publicationDate"), self._now.date())
        for term in row["terms"].get("OnDemand", {}).values():
            for rate in self._current_rates(term):
                ((currency, usd),) = rate["pricePerUnit"].items()
                if holds(rate["beginRange"], rate["endRange"], product.amount):
                    yield _service_price(query, product, usd, str(rate["unit"]), currency, _API, published, API_URL)

    def _product_prices(self, product: Mapping[str, Any]) -> Iterator[Observed]:
        terms = product["terms"]
        for term in terms.get("OnDemand", {}).values():
            yield from self._term_price(product, term, "on_demand")
        for term in terms.get("Reserved", {}).values():
            about = term["termAttributes"]
            field = TERMS.get(about["LeaseContractLength"])
            if field and (about["OfferingClass"], about["PurchaseOption"]) == ("standard", "No Upfront"):
                # No upfront: the hourly price is the total over the hours.
                yield from self._term_price(product, term, field)

    def _term_price(self, product: Mapping[str, Any], term: Mapping[str, Any], field: PriceField) -> Iterator[Observed]:
        attributes = product["product"]["attributes"]
        item, region = attributes["instanceType"], attributes["regionCode"]
        published = _day(product.get("publicationDate"), self._now.date())
        for rate in self._current_rates(term):
            ((currency, usd),) = rate["pricePerUnit"].items()
            yield _machine_price(item, region, field, usd, str(rate["unit"]), currency, _API, published, API_URL)

    def _current_rates(self, term: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
        is_future = _day(term.get("effectiveDate"), self._now.date()) > self._now.date()
        rates: Mapping[str, Mapping[str, Any]] = {} if is_future else term["priceDimensions"]
        return rates.values()

    def _spot(self, region: str, types: Sequence[str]) -> Iterator[Answer]:
        client = self._clients("ec2", region)
        newest: dict[tuple[str, str], tuple[datetime, float]] = {}
        for start in range(0, len(types), SPOT_BATCH):
            for row in self._pages(
                client,
                "describe_spot_price_history",
                "SpotPriceHistory",
                InstanceTypes=list(types[start : start + SPOT_BATCH]),
                ProductDescriptions=[PLATFORM],
                # With the current time, EC2 returns the last change before it: the current price.
                StartTime=self._now,
            ):
                key = row["InstanceType"], row["AvailabilityZone"]
                if row["ProductDescription"] == PLATFORM and row["Timestamp"] >= newest.get(key, (_NEVER, 0.0))[0]:
                    newest[key] = row["Timestamp"], float(row["SpotPrice"])
        for type_ in types:
            prices = [price for (zone_type, _), (_, price) in newest.items() if zone_type == type_]
            if prices:
                description = f"EC2 spot price history, {len(prices)} zones, newest of each"
                yield self._describe_region(type_, region, "spot_low", min(prices), description)
                yield self._describe_region(type_, region, "spot_typical", median(prices), description)
                yield self._describe_region(type_, region, "spot_high", max(prices), description)

    def _blocks(self, region: str, types: Sequence[str]) -> Iterator[Answer]:
        client, reported = self._clients("ec2", region), set()
        for type_ in (name for name in types if name.startswith(BLOCK_FAMILIES)):
            try:
                offers = list(self._block_prices(client, type_))
            except SourceError as problem:
                if str(problem) not in reported:
                    yield Gap(region, f"capacity blocks of {type_}", str(problem))
                reported.add(str(problem))
                continue
            if offers:
                value, currency = min(offers)
                description = f"EC2 capacity block offerings: cheapest of {len(offers)}, {BLOCK_HOURS} hours, one node"
                yield self._describe_region(type_, region, "block", value, description, currency)

    def _block_prices(self, client: Any, type_: str) -> Iterator[tuple[float, str]]:
        """Per node-hour, with currency."""
        for row in self._pages(
            client,
            "describe_capacity_block_offerings",
            "CapacityBlockOfferings",
            InstanceType=type_,
            InstanceCount=1,
            CapacityDurationHours=BLOCK_HOURS,
        ):
            hours = row["CapacityBlockDurationHours"] + row.get("CapacityBlockDurationMinutes", 0) / 60
            yield float(row["UpfrontFee"]) / (row["InstanceCount"] * hours), row["CurrencyCode"]

    def _describe_region(
        self, type_: str, region: str, field: PriceField, value: float, description: str, currency: str = "USD"
    ) -> Observed:
        return Observed(
            self.name, type_, region, field, value, description, self._now.date(), currency=currency, url=EC2_URL
        )

    def _pages(self, client: Any, operation: str, key: str, **request: Any) -> Iterator[Any]:
        from botocore import exceptions

        try:
            for page in client.get_paginator(operation).paginate(**request):
                yield from page[key]
        except exceptions.ConnectionError as problem:
            raise UnreachableError(str(problem)) from None
        except (exceptions.BotoCoreError, exceptions.ClientError) as problem:
            raise SourceError(str(problem)) from None


def _service_price(
    query: Query, product: Product, usd: str, unit: str, currency: str, origin: str, as_of: date, url: str
) -> Observed:
    source, value = f"{origin}: {product.usage or product.family}", float(usd) * product.factor
    place = ("aws", query.item, query.region, SERVICE_FIELD)
    return Observed(*place, value, source, as_of, url=url, unit=product.get_unit(unit), currency=currency)


def _machine_price(
    item: str, region: str, field: PriceField, usd: str, unit: str, currency: str, origin: str, as_of: date, url: str
) -> Observed:
    kind = "on demand" if field == "on_demand" else "reserved, standard, no upfront"
    source, unit = f"{origin}: Linux, shared, {kind}", "hour" if unit == _HOUR else unit
    return Observed("aws", item, region, field, float(usd), source, as_of, url=url, unit=unit, currency=currency)


def _day(text: Any, else_day: date) -> date:
    return date.fromisoformat(text[:10]) if isinstance(text, str) else else_day


COLUMNS: Mapping[str, str] = {
    "Operating System": "Linux",
    "Tenancy": "Shared",
    "Pre Installed S/W": "NA",
    "License Model": "No License required",
    "CapacityStatus": "Used",
    "MarketOption": "OnDemand",
}
"""Columns of Linux machines on the open market: `gangway.finops.prices.aws.FILTERS` in the files' terms."""
SHARED = ("TermType", "Unit", "PricePerUnit", "Currency", "EffectiveDate")
MACHINES = ("Instance Type", "Region Code", *COLUMNS)
SERVICES = ("usageType", "Product Family", "StartingRange", "EndingRange")


class AwsPublicSource:
    """The public offer files. `today`: rows from later dates are skipped."""

    name = "aws"
    how = "the public offer files, without credentials: neither spot nor capacity blocks, and they are large"

    def __init__(self, web: Web, today: date) -> None:
        self._web, self._today = web, today
        self._everywhere: dict[str, list[Answer]] = {}

    def fetch(self, queries: Sequence[Query]) -> Iterable[Answer]:
        """Fetch prices, see `PriceSource`."""
        for region in dict.fromkeys(query.region for query in queries):
            own = [query for query in queries if query.region == region]
            products = {query.item: AWS_SERVICES[query.item] for query in own if query.item in AWS_SERVICES}
            regional = {name: product for name, product in products.items() if not product.is_global}
            yield from self._file(EC2, region, _types(own), _select_code(regional, EC2))
            for code in dict.fromkeys(product.code for product in regional.values() if product.code != EC2):
                yield from self._service_file(code, region, _select_code(regional, code))
            for code in dict.fromkeys(product.code for product in products.values() if product.is_global):
                answers = self._global_file(code)
                yield from (
                    replace(each, region=region) for each in answers if isinstance(each, Gap) or each.item in products
                )
        yield from unreadable_gaps([query.item for query in queries if query.is_service], AWS_UNREAD)

    def _service_file(self, code: str, region: str, products: Mapping[str, Product]) -> Iterator[Answer]:
        """Not every service is in every region."""
        try:
            yield from self._file(code, region, {}, products)
        except UnreachableError:
            raise
        except SourceError as problem:
            yield Gap(region, ", ".join(products), str(problem))

    def _global_file(self, code: str) -> Sequence[Answer]:
        if code not in self._everywhere:
            products = {name: product for name, product in AWS_SERVICES.items() if product.is_global}
            self._everywhere[code] = list(self._service_file(code, "", _select_code(products, code)))
        return self._everywhere[code]

    def _file(
        self, code: str, region: str, types: Mapping[str, list[Query]], products: Mapping[str, Product]
    ) -> Iterator[Answer]:
        """One service's file; of all regions if `region` is empty. `types`: queries by machine type."""
        columns_needed = (*(MACHINES if types else ()), *SHARED, *(SERVICES if products else ()))
        lines, columns, published = self._open(code, region, columns_needed)
        # Nine in ten lines are irrelevant, and finding a name is much faster than parsing a line.
        names = [*(f'"{name}"' for name in types), *(product.mark for product in products.values())]
        for cells in csv.reader(line for line in lines if any(name in line for name in names)):
            row = dict(zip(columns, cells, strict=False))
            item = row.get("Instance Type") or row.get("usageType") or ""
            try:
                if item in types:
                    yield from self._machine_prices(row, region, types[item], published)
                else:
                    yield from self._service_prices(row, region, products, published)
            except (KeyError, ValueError) as problem:
                yield Gap(region, item, f"a row lacks documented fields: {problem!r}")

    def _open(self, code: str, region: str, required: Sequence[str]) -> tuple[Iterator[str], list[str], date]:
        """The lines after the header, the columns, the date. SourceError: no offer file."""
        url = "/".join(part for part in (FILES_URL, code, "current", region, "index.csv") if part)
        lines = self._web.lines(url)
        # Five lines about the file precede the columns.
        about = dict(row for row in csv.reader(islice(lines, 5)) if len(row) == 2)
        columns = next(csv.reader(islice(lines, 1)), [])
        lacking = [name for name in required if name not in columns]
        if lacking or "Publication Date" not in about:
            raise SourceError(f"{url} is not an offer file: missing {', '.join(lacking) or 'its date'}")
        return lines, columns, date.fromisoformat(about["Publication Date"][:10])

    def _machine_prices(
        self, row: Mapping[str, str], region: str, queries: Sequence[Query], published: date
    ) -> Iterator[Answer]:
        # The file of a local zone's parent region lists the zone as a separate region.
        if any(row.get(name) != value for name, value in {**COLUMNS, "Region Code": region}.items()):
            return
        prices = list(self._row_prices(row, published))
        for query in queries:
            yield from as_services(prices) if query.is_service else prices

    def _service_prices(
        self, row: Mapping[str, str], region: str, products: Mapping[str, Product], published: date
    ) -> Iterator[Observed]:
        if row["TermType"] != "OnDemand" or date.fromisoformat(row["EffectiveDate"][:10]) > self._today:
            return
        for name, product in products.items():
            is_family = row["Product Family"] == product.family
            if not is_family or not product.matches(row["usageType"], row.get("operation", "")):
                continue
            if holds(row["StartingRange"], row["EndingRange"], product.amount):
                query, url = Query(name, region, is_service=True), f"{FILES_URL}/{product.code}/current/index.csv"
                price = (row["PricePerUnit"], row["Unit"], row["Currency"])
                yield _service_price(query, product, *price, _FILE, published, url)

    def _row_prices(self, row: Mapping[str, str], published: date) -> Iterator[Observed]:
        field = _field(row)
        if field is None or date.fromisoformat(row["EffectiveDate"][:10]) > self._today:
            return
        item, url = (row["Instance Type"], row["Region Code"]), f"{FILES_URL}/{EC2}/current/index.csv"
        price = (row["PricePerUnit"], row["Unit"], row["Currency"])
        yield _machine_price(*item, field, *price, _FILE, published, url)


def _select_code(products: Mapping[str, Product], code: str) -> dict[str, Product]:
    return {name: product for name, product in products.items() if product.code == code}


def _types(queries: Iterable[Query]) -> dict[str, list[Query]]:
    found: dict[str, list[Query]] = {}
    for query in queries:
        if not query.is_service or query.item.startswith(INSTANCE):
            found.setdefault(query.item.removeprefix(INSTANCE), []).append(query)
    return found


def _field(row: Mapping[str, str]) -> PriceField | None:
    if row["TermType"] == "OnDemand":
        return "on_demand"
    if (row.get("OfferingClass"), row.get("PurchaseOption")) != ("standard", "No Upfront"):
        return None
    return TERMS.get(row.get("LeaseContractLength", ""))


def open_source(now: datetime) -> PriceSource:
    """AWS's own APIs, or the public offer files without credentials. SourceError: unreadable credentials."""
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    try:
        # A missing profile fails here, broken credentials on the next line.
        session = boto3.Session()
        signed_in = session.get_credentials() is not None
    except BotoCoreError as problem:
        raise SourceError(f"AWS's credentials cannot be read: {problem}") from None
    if not signed_in:
        return AwsPublicSource(Web(plain_session()), now.date())
    config = Config(retries={"mode": "standard", "total_max_attempts": MAX_ATTEMPTS}, connect_timeout=10)
    made: dict[tuple[str, str], Any] = {}

    def client(service: str, region: str) -> Any:
        if (service, region) not in made:
            # boto3's types need a literal service name.
            make: Any = session.client
            made[service, region] = make(service, region_name=region, config=config)
        return made[service, region]

    return AwsSource(client, now)
