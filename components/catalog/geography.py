"""Regions: measurements and transfer prices between them, their countries, and the power grids that they are on."""

from collections.abc import Mapping
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import Field

from gangway.components.catalog.schema import Fact, Frozen
from gangway.components.catalog.tables import Source, read_file, read_table, table_reader, with_facts


class Route(Frozen):
    """A pair of regions, either direction. `stream_mbps`: lower bound of one TCP stream; None if unpublished."""

    rtt_ms: Fact[float]
    stream_mbps: Fact[float] | None = None


class RouteTable(Frozen):
    """By region (`aws:eu-west-1`), then the alphabetically later one: `round_trips` without a stream, `pairs` with."""

    pairs: Mapping[str, Mapping[str, tuple[float, float]]]
    round_trips: Mapping[str, Mapping[str, float]]
    sources: Mapping[str, Mapping[str, Any]]

    def route(self, source: str, destination: str) -> Route | None:
        """The measurements of a pair; None if there are none."""
        first, second = sorted((source, destination))
        if (found := self.pairs.get(first, {}).get(second)) is not None:
            rtt_ms, stream_mbps = ({**self.sources["doit"], "value": value} for value in found)
            return Route.model_validate({"rtt_ms": rtt_ms, "stream_mbps": stream_mbps})
        if (round_trip := self.round_trips.get(first, {}).get(second)) is not None:
            return Route.model_validate({"rtt_ms": {**self.sources["microsoft"], "value": round_trip}})
        return None


@cache
def load_routes() -> RouteTable:
    """The table, read once per process."""
    tables, sources = read_file(Path(__file__).parent / "routes.yaml")
    return RouteTable(pairs=tables["pairs"], round_trips=tables["round_trips"], sources=sources)


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


class _Country(Frozen):
    country: Fact[str]
    regions: tuple[str, ...]


class _Jurisdictions(Frozen):
    countries: Mapping[str, tuple[_Country, ...]]
    groups: Mapping[str, Fact[tuple[str, ...]]]


class JurisdictionTable(Frozen):
    """Countries by provider and region; groups by name."""

    countries: Mapping[str, Mapping[str, Fact[str]]]
    groups: Mapping[str, Fact[tuple[str, ...]]]

    def regions(self, provider: str) -> Mapping[str, Fact[str]]:
        """Every region of the provider with a known country."""
        return self.countries.get(provider, {})

    @property
    def words(self) -> tuple[str, ...]:
        """The valid jurisdictions: groups first, then the countries of regions and groups."""
        of_regions = {fact.value for regions in self.countries.values() for fact in regions.values()}
        of_groups = {country for group in self.groups.values() for country in group.value}
        return (*self.groups, *sorted(of_regions | of_groups))

    def members(self, word: str) -> frozenset[str]:
        """The countries of a group; a country is its own only member."""
        return frozenset(self.groups[word].value) if word in self.groups else frozenset({word})


@cache
def load_jurisdictions() -> JurisdictionTable:
    """The table, read once per process."""
    file = read_table(_Jurisdictions, "jurisdictions")
    countries = {
        provider: {region: row.country for row in rows for region in row.regions}
        for provider, rows in file.countries.items()
    }
    return JurisdictionTable(countries=countries, groups=file.groups)


class Grid(Frozen):
    """A zone's intensity, gCO2e per kWh. `marginal`: by WattTime region; a zone may have several."""

    average: Fact[float]
    marginal: Fact[Mapping[str, float]]


class GridTable(Frozen):
    """Zones by Electricity Maps' name, each with its average and WattTime's marginal intensity, of the same `year`."""

    year: int
    grids: Mapping[str, Grid]


load_grids = table_reader(GridTable, "grids")


def on_grid(row: Mapping[str, Any], sources: Mapping[str, Source]) -> dict[str, Any]:
    """The intensity fields of a region's row; empty if it has its own. `stand_in`: why another zone's grid is used."""
    if "grid" not in row:
        return {}
    grid = load_grids().grids[row["grid"]]
    average = grid.average.model_dump()
    if "stand_in" in row:
        why = sources[row["stand_in"]]
        average |= {"source": f"{why['source']}; {average['source']}", "confidence": why["confidence"]}
    marginal = {**grid.marginal.model_dump(), "value": grid.marginal.value.get(row.get("marginal", ""))}
    return {"intensity_g_per_kwh": average, "marginal_g_per_kwh": marginal}
