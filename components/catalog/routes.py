"""Published measurements between regions: round trip and single-stream throughput."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from gangway.components.catalog.schema import Fact, Frozen
from gangway.components.catalog.tables import read_file

__all__ = ["Route", "RouteTable", "load_routes"]


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
