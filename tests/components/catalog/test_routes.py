"""What was measured between regions: each pair once, of regions that there are, and no pair made up."""

from itertools import combinations

import pytest

from gangway.components.catalog.jurisdictions import load_jurisdictions
from gangway.components.catalog.loader import load_provider
from gangway.components.catalog.routes import load_routes


def test_every_pair_is_of_two_known_regions_and_stands_once() -> None:
    table = load_routes()
    known = {
        f"{provider}:{name}" for provider in ("aws", "azure", "gcp") for name in load_jurisdictions().regions(provider)
    }
    tables = (table.pairs, table.round_trips)
    pairs = [(first, second) for each in tables for first, others in each.items() for second in others]
    assert len(pairs) == len(set(pairs)) > 1000
    assert all(first < second for first, second in pairs)
    assert {name for pair in pairs for name in pair} <= known
    figures = [figure for others in table.pairs.values() for figure in others.values()]
    assert all(0 < rtt_ms < 500 and 0 < mbps < 10_000 for rtt_ms, mbps in figures)
    assert all(0 < rtt_ms < 500 for others in table.round_trips.values() for rtt_ms in others.values())


def test_the_regions_of_azure_that_microsoft_measures_have_their_round_trips() -> None:
    measured = {name for pair in load_routes().round_trips.items() for name in (pair[0], *pair[1])}
    regions = [name for name in load_provider("azure").regions if f"azure:{name}" in measured]
    assert len(regions) >= 25
    for one, other in combinations(regions, 2):
        route = load_routes().route(f"azure:{one}", f"azure:{other}")
        assert route is not None, (one, other)
        assert route.stream_mbps is None
        assert (route.rtt_ms.confidence, route.rtt_ms.as_of_text) == ("documented", "2026-07-30")


@pytest.mark.parametrize(
    ("one", "other", "rtt_ms"), [("eastus", "eastus2", 9), ("westeurope", "eastus", 85), ("japaneast", "eastus", 162)]
)
def test_the_slower_direction_counts(one: str, other: str, rtt_ms: float) -> None:
    route = load_routes().route(f"azure:{one}", f"azure:{other}")
    assert route is not None
    assert route.rtt_ms.value == rtt_ms


@pytest.mark.parametrize(
    ("one", "other", "rtt_ms"),
    [("aws:eu-central-1", "aws:eu-west-1", 23.5), ("aws:us-east-1", "gcp:us-east4", 2.0)],
)
def test_pairs_by_hand(one: str, other: str, rtt_ms: float) -> None:
    route = load_routes().route(one, other)
    assert route is not None
    assert route.rtt_ms.value == pytest.approx(rtt_ms, abs=2)
    assert route == load_routes().route(other, one)
    assert (route.rtt_ms.confidence, route.rtt_ms.as_of_text) == ("secondary", "2022-02-14")


@pytest.mark.parametrize(
    ("one", "other"), [("aws:eu-west-1", "azure:westeurope"), ("toy:a", "toy:b"), ("aws:eu-west-1", "aws:eu-west-1")]
)
def test_a_pair_that_nobody_measured_is_unknown(one: str, other: str) -> None:
    assert load_routes().route(one, other) is None
