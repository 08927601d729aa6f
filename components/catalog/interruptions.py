"""How often a provider takes spot nodes back: a share of them a month, by machine type and region, with its source.

Only what is published: AWS's Spot Instance Advisor in five buckets, and for the other clouds the reason why nobody
knows. What such a rate costs a job is `components.spot`.

    >>> taken_per_month("aws", "p5.48xlarge", "us-east-2").value
    0.1
    >>> taken_per_month("gcp", "a3-megagpu-8g", "us-central1").value is None
    True
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from components.catalog.rows import read_file, with_facts
from components.catalog.schema import Fact, Frozen

__all__ = ["BUCKETS", "OPEN_BUCKET", "Bucket", "InterruptionTable", "load_interruptions", "taken_per_month"]

Bucket = Literal["<5%", "5-10%", "10-15%", "15-20%", ">20%"]
OPEN_BUCKET: Bucket = ">20%"
"""The one without an upper end."""
BUCKETS: Mapping[Bucket, float] = MappingProxyType(
    {"<5%": 0.05, "5-10%": 0.10, "10-15%": 0.15, "15-20%": 0.20, OPEN_BUCKET: 0.40}
)
"""What each counts as: its upper end; the open one as twice its lower end, which is assumed."""


class InterruptionRow(Frozen):
    """The buckets of one machine type by region."""

    machine_type: str
    by_region: Fact[Mapping[str, Bucket]]


class InterruptionTable(Frozen):
    """What one provider publishes; `unpublished` is the fact that stands for every pair that is not in `rows`."""

    rows: Mapping[str, InterruptionRow]
    unpublished: Fact[float | None]


@cache
def load_interruptions(provider: str) -> InterruptionTable:
    """The table of one provider, read once a process."""
    tables, sources = read_file(Path(__file__).parent / provider / "spot.yaml")
    unpublished: dict[str, Any] = tables["unpublished"]
    about = {"source": unpublished["title"], **{key: unpublished[key] for key in unpublished if key != "title"}}
    return InterruptionTable.model_validate(
        {
            "rows": {row["machine_type"]: with_facts(InterruptionRow, row, sources) for row in tables["buckets"]},
            "unpublished": {"value": None, **about},
        }
    )


def taken_per_month(provider: str, machine_type: str, region: str) -> Fact[float | None]:
    """The share of such nodes that is taken within 720 hours, 0 up to 1; None where nobody says.

    The source names the bucket. Another region's bucket never stands in: a price travels, a shortage does not.
    """
    table = load_interruptions(provider)
    row = table.rows.get(machine_type)
    bucket = None if row is None else row.by_region.value.get(region)
    if row is None or bucket is None:
        return table.unpublished
    fact, share = row.by_region, BUCKETS[bucket]
    assumed = bucket == OPEN_BUCKET
    counted = f"{bucket} a month, counted as {share:.0%}{', assumed' if assumed else ''}"
    return Fact[float | None](
        value=share,
        source=f"{fact.source}: {counted}",
        url=fact.url,
        as_of=fact.as_of,
        confidence="assumed" if assumed else fact.confidence,
    )
