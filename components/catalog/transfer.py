"""Prices of data transfer between two regions of a provider."""

from collections.abc import Mapping
from datetime import date
from functools import cache
from pathlib import Path

from pydantic import Field

from gangway.components.catalog.schema import Fact, Frozen
from gangway.components.catalog.tables import read_file, with_facts

__all__ = ["TransferTable", "load_transfer", "transfer_price"]


class PairPrice(Frozen):
    """The price from any of some regions or areas to any of others."""

    sources: tuple[str, ...] = Field(alias="from")
    destinations: tuple[str, ...] = Field(alias="to")
    usd_per_gib: Fact[float | None]


class TransferTable(Frozen):
    """Prices of one provider. `areas`: by region; `pairs`: the first match counts; `as_of`: newest source."""

    areas: Mapping[str, frozenset[str]]
    pairs: tuple[PairPrice, ...]
    as_of: date

    def price(self, source: str, destination: str) -> Fact[float | None] | None:
        """US dollars a GiB; None if there is no row."""
        ends = [self.areas.get(region, frozenset()) | {region} for region in (source, destination)]
        fits = (
            row for row in self.pairs if ends[0].intersection(row.sources) and ends[1].intersection(row.destinations)
        )
        return next((row.usd_per_gib for row in fits), None)


@cache
def load_transfer(provider: str) -> TransferTable:
    """The table of one provider, empty if there is none; read once per process."""
    tables, sources = read_file(Path(__file__).parent / "transfer.yaml")
    areas: dict[str, set[str]] = {}
    for area, regions in tables["areas"].get(provider, {}).items():
        for region in regions:
            areas.setdefault(region, set()).add(area)
    rows = [with_facts(PairPrice, row, sources) for row in tables["pairs"].get(provider, ())]
    return TransferTable.model_validate(
        {"areas": areas, "pairs": rows, "as_of": max(source["as_of"] for source in sources.values())}
    )


def transfer_price(provider: str, source: str, destination: str) -> Fact[float | None]:
    """US dollars a GiB from region to region; None with an explaining source for an unknown pair."""
    table = load_transfer(provider)
    known = table.price(source, destination)
    if known is not None and known.value is not None:
        return known
    why = f"no price from {source} to {destination} in the catalogue"
    return Fact[float | None](value=None, source=why, as_of=table.as_of, confidence="recalled")
