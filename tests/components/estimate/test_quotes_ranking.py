"""Which offer to take: the order, the reasons, and that nothing is ranked by a guess."""

from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.catalog.loader import PROVIDERS, load_provider
from gangway.components.catalog.schema import Fact, Region
from gangway.components.estimate.offers import Kind, Offer, find_offers, get_carriers
from gangway.components.estimate.quotes import SORTS, Job, Ranking, Sort, quote, rank


def fact(value: float | None) -> Fact[float | None]:
    return Fact[float | None](value=value, source="a test", as_of=date(2026, 11, 1), confidence="list-price")


def offer(kind: Kind, price: float | None, region: str = "us-east-1", share: float | None = 0.1) -> Offer:
    catalog = load_provider("aws")
    return Offer(
        provider="aws",
        region=region,
        machine=catalog.machines["p5.48xlarge"],
        kind=kind,
        price=fact(price),
        place=catalog.regions[region],
        interruptions=fact(share) if kind == "spot" else None,
        on_demand=50.0,
    )


def ranked(*offers: Offer, sort: Sort = "cost", job: Job = Job(4, 100)) -> Ranking:  # noqa: B008 - frozen
    return rank([quote(each, job) for each in offers], sort)


def order(ranking: Ranking) -> list[tuple[str, str]]:
    return [(each.offer.region, each.offer.kind) for each, _ in ranking.ranked]


VIRGINIA, SWEDEN = offer("on-demand", 50.0), offer("on-demand", 60.0, "eu-north-1")
SPOT = offer("spot", 20.0)


def test_each_order_by_its_own_criterion() -> None:
    cheap = [("us-east-1", "spot"), ("us-east-1", "on-demand"), ("eu-north-1", "on-demand")]
    assert order(ranked(SWEDEN, VIRGINIA, SPOT)) == cheap
    clean = [("eu-north-1", "on-demand"), ("us-east-1", "on-demand"), ("us-east-1", "spot")]
    assert order(ranked(SPOT, VIRGINIA, SWEDEN, sort="carbon")) == clean
    sure = [("us-east-1", "on-demand"), ("eu-north-1", "on-demand"), ("us-east-1", "spot")]
    assert order(ranked(SPOT, SWEDEN, VIRGINIA, sort="risk")) == sure


def test_each_place_has_its_reason() -> None:
    reasons = [reason for _, reason in ranked(SWEDEN, VIRGINIA, SPOT).ranked]
    assert reasons[0].startswith(
        "cheapest of those ranked; 60% below on demand at the same place; 0.059 interruptions expected"
    )
    assert reasons[1].startswith("2.5 times the dollars; the same emissions; not taken back")
    assert reasons[2].startswith("3.0 times the dollars; 94% fewer emissions; ")
    carbon = [reason for _, reason in ranked(SPOT, SWEDEN, sort="carbon").ranked]
    assert carbon[0].startswith("emits least of those ranked; not taken back")
    assert "16.8 times the emissions; 67% fewer dollars" in carbon[1]
    risk = [reason for _, reason in ranked(SPOT, VIRGINIA, sort="risk").ranked]
    assert risk[0].startswith("least at risk of those ranked")
    assert "6 min expected to be lost; 60% fewer dollars" in risk[1]
    assert ranked(VIRGINIA).ranked[0][1].startswith("the only one ranked; not taken back")


def test_hours_at_risk_are_written_as_hours_once_there_are_some() -> None:
    risk = ranked(offer("spot", 20.0, share=0.9), VIRGINIA, sort="risk", job=Job(64, 100))
    assert " h expected to be lost" in risk.ranked[1][1]


def test_spot_that_saves_nothing_says_so() -> None:
    assert "no saving over on demand there" in ranked(offer("spot", 50.0)).ranked[0][1]


def test_equal_offers_stand_in_the_order_of_certainty() -> None:
    assert order(ranked(offer("flex-start", 50.0), VIRGINIA))[0] == ("us-east-1", "on-demand")


def test_what_cannot_be_done_and_what_is_not_known_stand_apart() -> None:
    unknown, silent = offer("on-demand", None, "eu-north-1"), offer("spot", 10.0, "eu-north-1", None)
    late = offer("spot", 5.0, share=0.99)
    found = ranked(VIRGINIA, unknown, silent, late, job=Job(64, 100, deadline_hours=101))
    assert order(found) == [("us-east-1", "on-demand")]
    assert [each.offer for each in found.infeasible] == [late]
    assert [each.offer for each in found.unknown] == [unknown, silent]


def test_without_emissions_nothing_is_ranked_by_them() -> None:
    nowhere = replace(VIRGINIA, place=None)
    assert order(ranked(nowhere)) == [("us-east-1", "on-demand")]
    assert [each.offer for each in ranked(nowhere, SWEDEN, sort="carbon").unknown] == [nowhere]
    # Where only one of both is known, the reason does not compare them.
    assert "emissions" not in ranked(nowhere, SWEDEN).ranked[1][1]


def test_a_grid_that_emits_nothing_is_not_divided_by() -> None:
    region = load_provider("aws").regions["eu-north-1"]
    clean = Region.model_validate(
        {**region.model_dump(), "intensity_g_per_kwh": {**region.intensity_g_per_kwh.model_dump(), "value": 0}}
    )
    found = ranked(replace(SWEDEN, place=clean), VIRGINIA, sort="carbon")
    assert order(found)[0] == ("eu-north-1", "on-demand")


REAL = find_offers(
    [
        carrier
        for accelerator in ("H100x8", "A100x8", "H100x1", "L40Sx4")
        for carrier in get_carriers(accelerator, {provider: load_provider(provider) for provider in PROVIDERS})
    ]
)


@pytest.mark.slow
@given(st.integers(1, 512), st.floats(0.5, 2000), st.floats(0, 0.95), st.sampled_from(SORTS), st.floats(1.1, 2))
def test_spot_is_never_chosen_where_on_demand_costs_less(
    num_nodes: int, hours: float, share: float, sort: Sort, slack: float
) -> None:
    """Whatever is asked: the first place is not spot if the same node is had for less without being taken back."""
    job = Job(num_nodes, hours, hours * slack, share)
    quoted = [quote(each, job) for each in REAL]
    found = rank(quoted, sort)
    best = found.ranked[0][0] if found.ranked else quoted[0]
    if found.ranked and best.offer.kind == "spot":
        same = [q for q in quoted if (q.offer.machine, q.offer.region) == (best.offer.machine, best.offer.region)]
        steady = [q.usd for q in same if q.offer.kind == "on-demand" and q.usd is not None]
        assert best.usd is not None
        assert all(best.usd <= usd for usd in steady)
    assert len(found.ranked) + len(found.infeasible) + len(found.unknown) == len(quoted)
    assert all(reason for _, reason in found.ranked)
