"""The power grids of the clouds' regions: average intensity by zone and year, and WattTime's marginal intensity."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from gangway.components.catalog.schema import Fact, Frozen
from gangway.components.catalog.tables import Source, read_file, with_facts

__all__ = ["Grid", "GridTable", "load_grids", "on_grid"]


class Grid(Frozen):
    """A zone's intensity, gCO2e per kWh. `marginal`: by WattTime region; a zone may have several."""

    average: Fact[float]
    marginal: Fact[Mapping[str, float]]


class GridTable(Frozen):
    """Zones by Electricity Maps' name; all figures are of the same `year`."""

    year: int
    grids: Mapping[str, Grid]


@cache
def load_grids() -> GridTable:
    """The table, read once per process."""
    tables, sources = read_file(Path(__file__).parent / "grids.yaml")
    grids = {zone: with_facts(Grid, row, sources) for zone, row in tables["grids"].items()}
    return GridTable.model_validate({"year": tables["year"], "grids": grids})


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
