"""What others have measured between regions: the round trip, and what one stream carries."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from components.catalog.schema import Fact, Frozen
from components.catalog.tables import read_file

__all__ = ["Route", "RouteTable", "load_routes"]


class Route(Frozen):
    """Between two regions, in either direction. `stream_mbps`: Mbit/s of one TCP stream, no more than it was; None
    where its round trip alone is published.
    """

    rtt_ms: Fact[float]
    stream_mbps: Fact[float] | None = None


class RouteTable(Frozen):
    """By region as limits on regions name it (`aws:eu-west-1`), and by the other, whose name is the later: of `pairs`
    the round trip and a stream, of `round_trips` that alone.
    """

    pairs: Mapping[str, Mapping[str, tuple[float, float]]]
    round_trips: Mapping[str, Mapping[str, float]]
    sources: Mapping[str, Mapping[str, Any]]

    def route(self, source: str, destination: str) -> Route | None:
        """None for a pair that nobody has measured."""
        first, second = sorted((source, destination))
        if (found := self.pairs.get(first, {}).get(second)) is not None:
            rtt_ms, stream_mbps = ({**self.sources["doit"], "value": value} for value in found)
            return Route.model_validate({"rtt_ms": rtt_ms, "stream_mbps": stream_mbps})
        if (alone := self.round_trips.get(first, {}).get(second)) is not None:
            return Route.model_validate({"rtt_ms": {**self.sources["microsoft"], "value": alone}})
        return None


@cache
def load_routes() -> RouteTable:
    """The table, read once a process."""
    tables, sources = read_file(Path(__file__).parent / "routes.yaml")
    return RouteTable(pairs=tables["pairs"], round_trips=tables["round_trips"], sources=sources)
