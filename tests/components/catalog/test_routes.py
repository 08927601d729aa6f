"""What was measured between regions: each pair once, of regions that there are, and no pair made up."""

import pytest

from components.catalog.jurisdictions import load_jurisdictions
from components.catalog.routes import load_routes


def test_every_pair_is_of_two_known_regions_and_stands_once() -> None:
    table = load_routes()
    known = {f"{provider}:{name}" for provider in ("aws", "gcp") for name in load_jurisdictions().regions(provider)}
    pairs = [(first, second) for first, others in table.pairs.items() for second in others]
    assert len(pairs) > 700
    assert all(first < second for first, second in pairs)
    assert {name for pair in pairs for name in pair} <= known
    figures = [figure for others in table.pairs.values() for figure in others.values()]
    assert all(0 < rtt_ms < 500 and 0 < mbps < 10_000 for rtt_ms, mbps in figures)


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
