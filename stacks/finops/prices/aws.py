"""AWS's prices: with the caller's credentials (Price List Query API, spot history, capacity blocks), or from the
public offer file of EC2.
"""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from itertools import islice
from statistics import median
from typing import Any

from components.catalog.validators import Observed, PriceField
from stacks.finops.prices.source import Answer, Gap, Query, SourceError, UnreachableError, Web

Clients = Callable[[str, str], Any]
"""Makes a boto3 client from the names of a service and a region."""
API_URL = "https://api.pricing.us-east-1.amazonaws.com"
EC2_URL = "https://docs.aws.amazon.com/AWSEC2/latest/APIReference/"
PRICING_REGION = "us-east-1"
"""The Price List Query API answers for every region from here."""
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
BLOCK_HOURS = 24
BLOCK_FAMILIES = ("p4d.", "p4de.", "p5.", "p5e.", "p5en.", "p6-b200.", "p6-b300.", "trn1.", "trn2.")
"""Families that are sold in capacity blocks."""
SPOT_BATCH = 50
"""Machine types that one request about spot names."""
_NEVER = datetime.min.replace(tzinfo=UTC)
FILES_URL = "https://pricing.us-east-1.amazonaws.com/offers/v1.0/aws/AmazonEC2/current"
LINES_BEFORE = 5


class AwsSource:
    """AWS's own APIs. `now`: the moment whose spot prices are asked for, and the day of what bears no date."""

    name = "aws"
    how = "the Price List API, spot history and capacity block offerings, with your credentials"

    def __init__(self, clients: Clients, now: datetime) -> None:
        self._clients, self._now = clients, now
        self._pricing: Any = None

    def fetch(self, queries: Sequence[Query]) -> Iterable[Answer]:
        """See `PriceSource`. What EC2 does not tell of a region is a gap: its price list may be read all the same."""
        if self._pricing is None:
            self._pricing = self._clients("pricing", PRICING_REGION)
        for query in queries:
            yield from self._on_demand(query)
        for region in dict.fromkeys(query.region for query in queries):
            types = [query.item for query in queries if query.region == region]
            try:
                yield from self._spot(region, types)
            except SourceError as problem:
                yield Gap(region, "spot prices", str(problem))
            yield from self._blocks(region, types)

    def _on_demand(self, query: Query) -> Iterator[Answer]:
        """On demand and reserved."""
        wanted = {**FILTERS, "instanceType": query.item, "regionCode": query.region}
        filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()]
        for text in self._pages(self._pricing, "get_products", "PriceList", ServiceCode="AmazonEC2", Filters=filters):
            try:
                product = json.loads(text) if isinstance(text, str) else text
                yield from self._of_product(product)
            except (KeyError, TypeError, ValueError, AttributeError) as problem:
                yield Gap(query.region, query.item, f"a product without what the API documents: {problem!r}")

    def _of_product(self, product: Mapping[str, Any]) -> Iterator[Observed]:
        terms = product["terms"]
        for term in terms.get("OnDemand", {}).values():
            yield from self._of_term(product, term, "on_demand", "on demand")
        for term in terms.get("Reserved", {}).values():
            about = term["termAttributes"]
            field = TERMS.get(about["LeaseContractLength"])
            if field and (about["OfferingClass"], about["PurchaseOption"]) == ("standard", "No Upfront"):
                # Nothing upfront: what an hour costs is the total over the hours.
                yield from self._of_term(product, term, field, "reserved, standard, no upfront")

    def _of_term(
        self, product: Mapping[str, Any], term: Mapping[str, Any], field: PriceField, description: str
    ) -> Iterator[Observed]:
        """The price of a term, unless it is still to come."""
        if _day(term.get("effectiveDate"), self._now.date()) > self._now.date():
            return
        attributes = product["product"]["attributes"]
        for rate in term["priceDimensions"].values():
            ((currency, amount),) = rate["pricePerUnit"].items()
            yield Observed(
                provider=self.name,
                item=attributes["instanceType"],
                region=attributes["regionCode"],
                field=field,
                value=float(amount),
                source=f"AWS Price List API: Linux, shared, {description}",
                as_of=_day(product.get("publicationDate"), self._now.date()),
                url=API_URL,
                unit="hour" if rate["unit"] == "Hrs" else str(rate["unit"]),
                currency=currency,
            )

    def _spot(self, region: str, types: Sequence[str]) -> Iterator[Answer]:
        """The lowest and the highest zone, each by its newest price."""
        client = self._clients("ec2", region)
        newest: dict[tuple[str, str], tuple[datetime, float]] = {}
        for start in range(0, len(types), SPOT_BATCH):
            for row in self._pages(
                client,
                "describe_spot_price_history",
                "SpotPriceHistory",
                InstanceTypes=list(types[start : start + SPOT_BATCH]),
                ProductDescriptions=[PLATFORM],
                # With the time of asking, EC2 answers the last change before it: the price in effect.
                StartTime=self._now,
            ):
                key = row["InstanceType"], row["AvailabilityZone"]
                if row["ProductDescription"] == PLATFORM and row["Timestamp"] >= newest.get(key, (_NEVER, 0.0))[0]:
                    newest[key] = row["Timestamp"], float(row["SpotPrice"])
        for type_ in types:
            prices = [price for (named, _), (_, price) in newest.items() if named == type_]
            if prices:
                description = f"EC2 spot price history, {len(prices)} zones, newest of each"
                yield self._of_ec2(type_, region, "spot_low", min(prices), description)
                yield self._of_ec2(type_, region, "spot_typical", median(prices), description)
                yield self._of_ec2(type_, region, "spot_high", max(prices), description)

    def _blocks(self, region: str, types: Sequence[str]) -> Iterator[Answer]:
        """The cheapest block of a day for one node. A region may lack a type; the same reason is told once."""
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
                yield self._of_ec2(type_, region, "block", value, description, currency)

    def _block_prices(self, client: Any, type_: str) -> Iterator[tuple[float, str]]:
        """Per node and hour, with the currency."""
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

    def _of_ec2(
        self, type_: str, region: str, field: PriceField, value: float, description: str, currency: str = "USD"
    ) -> Observed:
        return Observed(
            self.name, type_, region, field, value, description, self._now.date(), currency=currency, url=EC2_URL
        )

    def _pages(self, client: Any, operation: str, key: str, **request: Any) -> Iterator[Any]:
        """Every row, page by page; boto3 itself tries again while AWS is busy."""
        from botocore import exceptions

        try:
            for page in client.get_paginator(operation).paginate(**request):
                yield from page[key]
        except exceptions.ConnectionError as problem:
            raise UnreachableError(str(problem)) from None
        except (exceptions.BotoCoreError, exceptions.ClientError) as problem:
            raise SourceError(str(problem)) from None


def _day(text: Any, else_day: date) -> date:
    """The day of an ISO timestamp; `else_day` where there is none."""
    return date.fromisoformat(text[:10]) if isinstance(text, str) else else_day


COLUMNS: Mapping[str, str] = {
    "Operating System": "Linux",
    "Tenancy": "Shared",
    "Pre Installed S/W": "NA",
    "License Model": "No License required",
    "CapacityStatus": "Used",
    "MarketOption": "OnDemand",
}
"""What a row must say to be of a Linux machine on the open market: `stacks.finops.prices.aws.FILTERS` in the file's
words.
"""
NEEDED = ("Instance Type", "Region Code", "TermType", "Unit", "PricePerUnit", "Currency", "EffectiveDate", *COLUMNS)


class AwsPublicSource:
    """The public offer files. `today`: against which a row is still to come."""

    name = "aws"
    how = "the public offer files, without credentials: neither spot nor capacity blocks, and they are large"

    def __init__(self, web: Web, today: date, files_url: str = FILES_URL) -> None:
        self._web, self._today, self._files_url = web, today, files_url

    def fetch(self, queries: Sequence[Query]) -> Iterable[Answer]:
        """See `PriceSource`."""
        for region in dict.fromkeys(query.region for query in queries):
            types = frozenset(query.item for query in queries if query.region == region)
            yield from self._region(region, types)

    def _region(self, region: str, types: frozenset[str]) -> Iterator[Answer]:
        url = f"{self._files_url}/{region}/index.csv"
        lines = self._web.lines(url)
        about = dict(row for row in csv.reader(islice(lines, LINES_BEFORE)) if len(row) == 2)
        columns = next(csv.reader(islice(lines, 1)), [])
        lacking = [name for name in NEEDED if name not in columns]
        if lacking or "Publication Date" not in about:
            raise SourceError(f"{url} is no offer file: it lacks {', '.join(lacking) or 'its date'}")
        published = date.fromisoformat(about["Publication Date"][:10])
        # A local zone has a region of its own in the file of the one it belongs to.
        wanted = {**COLUMNS, "Region Code": region}
        # Nine in ten lines are of other machines: to look for a name is much faster than to take a line apart.
        own = (line for line in lines if any(f'"{name}"' in line for name in types))
        for cells in csv.reader(own):
            row = dict(zip(columns, cells, strict=False))
            if row.get("Instance Type") not in types or any(row.get(k) != v for k, v in wanted.items()):
                continue
            try:
                yield from self._of_row(row, published)
            except (KeyError, ValueError) as problem:
                yield Gap(region, str(row.get("Instance Type")), f"a row without what the file documents: {problem!r}")

    def _of_row(self, row: Mapping[str, str], published: date) -> Iterator[Observed]:
        field = _field(row)
        if field is None or date.fromisoformat(row["EffectiveDate"][:10]) > self._today:
            return
        description = "on demand" if field == "on_demand" else "reserved, standard, no upfront"
        yield Observed(
            provider=self.name,
            item=row["Instance Type"],
            region=row["Region Code"],
            field=field,
            value=float(row["PricePerUnit"]),
            source=f"AWS public offer file: Linux, shared, {description}",
            as_of=published,
            url=f"{FILES_URL}/index.csv",
            unit="hour" if row["Unit"] == "Hrs" else row["Unit"],
            currency=row["Currency"],
        )


def _field(row: Mapping[str, str]) -> PriceField | None:
    """Which price of a machine a row is; None where none."""
    if row["TermType"] == "OnDemand":
        return "on_demand"
    if (row.get("OfferingClass"), row.get("PurchaseOption")) != ("standard", "No Upfront"):
        return None
    return TERMS.get(row.get("LeaseContractLength", ""))
