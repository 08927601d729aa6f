"""AWS's prices without credentials: the public offer file of EC2, one of some hundred megabytes a region.

Read line by line and never whole in memory. On demand and reserved only: spot and capacity blocks are told to those
with credentials. The first five lines are about the file, the sixth names the columns.
"""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from itertools import islice

from components.catalog.validators import Observed, PriceField
from stacks.prices.aws import TERMS
from stacks.prices.source import Answer, Gap, Query, SourceError
from stacks.prices.web import Web

__all__ = ["FILES_URL", "AwsPublicSource"]

FILES_URL = "https://pricing.us-east-1.amazonaws.com/offers/v1.0/aws/AmazonEC2/current"
LINES_BEFORE = 5
COLUMNS: Mapping[str, str] = {
    "Operating System": "Linux",
    "Tenancy": "Shared",
    "Pre Installed S/W": "NA",
    "License Model": "No License required",
    "CapacityStatus": "Used",
    "MarketOption": "OnDemand",
}
"""What a row must say to be of a Linux machine on the open market: `stacks.prices.aws.FILTERS` in the file's words."""
NEEDED = ("Instance Type", "Region Code", "TermType", "Unit", "PricePerUnit", "Currency", "EffectiveDate", *COLUMNS)


class AwsPublicSource:
    """The public offer files.

    Args:
        web: reads them.
        today: against which a row is still to come.
        files_url: where they are.
    """

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
        words = "on demand" if field == "on_demand" else "reserved, standard, no upfront"
        yield Observed(
            provider=self.name,
            item=row["Instance Type"],
            region=row["Region Code"],
            field=field,
            value=float(row["PricePerUnit"]),
            source=f"AWS public offer file: Linux, shared, {words}",
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
