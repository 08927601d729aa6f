"""The grids that the clouds' regions are on: one average intensity a zone and year, WattTime's marginal beside it."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from components.catalog.schema import Fact, Frozen
from components.catalog.tables import Source, read_file, with_facts

__all__ = ["Grid", "GridTable", "load_grids", "on_grid"]


class Grid(Frozen):
    """Of one zone, gCO2e per kWh. `marginal`: by WattTime's regions, of which a zone may have several."""

    average: Fact[float]
    marginal: Fact[Mapping[str, float]]


class GridTable(Frozen):
    """Every zone, by Electricity Maps' name; all figures are of the one `year`."""

    year: int
    grids: Mapping[str, Grid]


@cache
def load_grids() -> GridTable:
    """The table, read once a process."""
    tables, sources = read_file(Path(__file__).parent / "grids.yaml")
    grids = {zone: with_facts(Grid, row, sources) for zone, row in tables["grids"].items()}
    return GridTable.model_validate({"year": tables["year"], "grids": grids})


def on_grid(row: Mapping[str, Any], sources: Mapping[str, Source]) -> dict[str, Any]:
    """What the grid of a region's row emits, in a region's shape; nothing for a row that states its own intensity.
    `marginal` names WattTime's region; `stand_in` the source that says why another zone's grid is taken.
    """
    if "grid" not in row:
        return {}
    grid = load_grids().grids[row["grid"]]
    average = grid.average.model_dump()
    if "stand_in" in row:
        why = sources[row["stand_in"]]
        average |= {"source": f"{why['source']}; {average['source']}", "confidence": why["confidence"]}
    marginal = {**grid.marginal.model_dump(), "value": grid.marginal.value.get(row.get("marginal", ""))}
    return {"intensity_g_per_kwh": average, "marginal_g_per_kwh": marginal}
