"""Moving: never for what may as well save nothing, always for what surely does; dearer ways change no mind for it."""

from dataclasses import replace
from datetime import date
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.catalog.loader import load_provider
from gangway.components.catalog.schema import Fact
from gangway.components.estimate.move_cost import LEAST_SHARE, Advice, Luggage, advise
from gangway.components.estimate.offers import Offer, find_offers, get_carriers
from gangway.components.estimate.quotes import SORTS, Job, Sort


def carrying(gib: float, usd_per_gib: float | None, at: str = "aws us-east-1 ") -> Luggage:
    """At one price to everywhere but the place itself, whose labels begin so."""
    day = date(2026, 11, 27)

    def price_to(offer: Offer) -> Fact[float | None]:
        usd = 0.0 if offer.label.startswith(at) else usd_per_gib
        return Fact[float | None](value=usd, source="a test", as_of=day, confidence="assumed")

    return Luggage(gib, price_to)


NOTHING = carrying(0.0, 0.09)


@cache
def offers() -> tuple[Offer, ...]:
    catalogs = {provider: load_provider(provider) for provider in ("aws", "gcp", "azure")}
    found = find_offers(get_carriers("H100x8", catalogs))
    return tuple(offer for offer in found if offer.price.value is not None)


def offer(label: str) -> Offer:
    return next(each for each in offers() if each.label == label)


ON_DEMAND, SPOT = "aws us-east-1 p5.48xlarge on-demand", "aws us-east-1 p5.48xlarge spot"

AZURE = "azure eastus Standard_ND96isr_H100_v5"

jobs = st.builds(
    Job,
    num_nodes=st.integers(1, 16),
    hours=st.floats(0.01, 2000),
    deadline_hours=st.none() | st.floats(2000, 4000),
    interruptions=st.none() | st.floats(0.01, 0.6),
)
prices = st.none() | st.floats(0, 0.2)


@given(st.integers(0, 1000), jobs, st.floats(0, 20_000), prices, st.sampled_from(SORTS))
def test_what_is_advised_surely_saves_and_what_is_not_does_not(
    number: int, job: Job, gib: float, usd_per_gib: float | None, sort: Sort
) -> None:
    here = offers()[number % len(offers())]
    luggage = carrying(gib, usd_per_gib, f"{here.provider} {here.region} ")
    found = advise(here, offers()[::4], job, luggage, sort)
    if found.best is None:
        assert not found.go
        return
    assert found.best.to.offer.label != here.label
    assert found.best.traffic == luggage.price_to(found.best.to.offer)
    assert found.best.saves.low <= found.best.saves.mid <= found.best.saves.high
    assert found.best.hours.low <= found.best.hours.mid <= found.best.hours.high
    if found.go:
        assert found.best.saves.low > 0
    if usd_per_gib is None:
        to = found.best.to.offer
        assert (to.provider, to.region) == (here.provider, here.region), "nobody knows what leaving costs"


@pytest.mark.slow
@given(jobs, st.floats(0, 20_000), st.floats(0, 20_000))
def test_more_to_carry_never_makes_a_move(job: Job, one: float, other: float) -> None:
    less, more = sorted((one, other))
    here = offer(ON_DEMAND)
    light, heavy = (advise(here, offers()[::4], job, carrying(gib, 0.09), "cost") for gib in (less, more))
    assert light.go or not heavy.go
    if heavy.best is not None:
        assert light.best is not None
        assert heavy.best.saves.mid <= light.best.saves.mid + 1e-6 * abs(light.best.saves.mid)


def test_a_long_job_goes_from_on_demand_to_spot_of_the_same_place_and_back_it_does_not() -> None:
    job = Job(4, 100.0)
    both = (offer(ON_DEMAND), offer(SPOT))
    out = advise(both[0], both, job, NOTHING, "cost")
    assert out.go
    assert out.best is not None
    assert out.best.to.offer.label == SPOT
    assert out.best.saves.mid > LEAST_SHARE * (out.here.usd or 0)
    assert not advise(both[1], both, job, NOTHING, "cost").go


def test_with_little_left_nobody_moves() -> None:
    found = advise(offer(ON_DEMAND), offers(), Job(4, 0.05), NOTHING, "cost")
    assert not found.go
    assert found.best is not None
    assert found.best.saves.low <= 0


def test_dollars_of_the_way_count_and_so_does_the_deadline() -> None:
    here, job = offer(ON_DEMAND), Job(4, 100.0)
    elsewhere = [each for each in offers() if each.provider == "gcp" and each.kind == "spot"]

    def go(gib: float, deadline_hours: float | None = None) -> Advice:
        return advise(here, elsewhere, replace(job, deadline_hours=deadline_hours), carrying(gib, 0.09), "cost")

    assert go(10).go
    assert not go(1_000_000).go, "90,000 dollars"
    assert go(10, 170).go
    assert not go(10, 130).go, "spot is there two thirds of the time"
    assert not go(10, 100.5).go, "the way alone takes that long"


def test_a_place_where_the_job_is_late_is_left_as_long_as_there_is_time_to_move() -> None:
    here, same_place = offer(f"{AZURE} spot"), [offer(f"{AZURE} on-demand")]
    for deadline_hours, goes in ((101.0, True), (100.1, False)):
        found = advise(here, same_place, Job(4, 100.0, deadline_hours), NOTHING, "cost")
        assert found.here.problem.startswith("too late")
        assert found.go is goes


def test_where_nobody_knows_what_staying_comes_to_nobody_is_sent_away() -> None:
    here = offer(SPOT)
    unpriced = replace(here, price=here.price.model_copy(update={"value": None}))
    found = advise(unpriced, offers(), Job(4, 100.0), NOTHING, "cost")
    assert (found.go, found.best) == (False, None)
    assert "no price in the catalogue" in found.reason


def test_who_cannot_end_here_goes_where_it_comes_to_the_least() -> None:
    """Whatever nobody knows of the place that is left."""
    here, job = offer(f"{AZURE} spot"), Job(4, 100.0, 101.0)
    others = [each for each in offers() if each.provider == "azure" and each.kind == "on-demand"]
    twins = [
        replace(each, price=each.price.model_copy(update={"value": (each.price.value or 0.0) * times}))
        for each, times in ((others[0], 3.0), (others[0], 1.0), (others[0], 2.0))
    ]
    unpriced = replace(here, price=here.price.model_copy(update={"value": None}))
    for left in (here, unpriced):
        found = advise(left, twins, job, NOTHING, "cost")
        assert found.go
        assert found.best is not None
        assert found.best.to.offer == twins[1]


@pytest.mark.parametrize("factor", [0.5, 3.0])
def test_the_same_at_other_prices_is_the_same_decision(factor: float) -> None:
    def priced(each: Offer) -> Offer:
        assert each.price.value is not None
        return replace(each, price=each.price.model_copy(update={"value": factor * each.price.value}))

    job, luggage = Job(4, 30.0), carrying(500, 0.09)
    plain = advise(offer(ON_DEMAND), offers(), job, luggage, "cost")
    scaled = advise(priced(offer(ON_DEMAND)), map(priced, offers()), job, carrying(500, factor * 0.09), "cost")
    assert plain.best is not None
    assert scaled.best is not None
    assert (plain.go, plain.best.to.offer.label) == (scaled.go, scaled.best.to.offer.label)


def test_a_cheaper_way_is_taken_where_all_else_is_equal() -> None:
    """Two offers that differ in their price of traffic alone."""
    here, twin = offer(ON_DEMAND), offer(SPOT)
    far = replace(twin, region="us-west-2")
    near = replace(twin, region="us-east-2")

    def price_to(each: Offer) -> Fact[float | None]:
        usd = {"us-east-2": 0.01, "us-west-2": 0.02}[each.region]
        return Fact[float | None](value=usd, source=each.region, as_of=date(2026, 11, 27), confidence="assumed")

    found = advise(here, (far, near), Job(4, 100.0), Luggage(10_000, price_to), "cost")
    assert found.best is not None
    assert (found.best.to.offer.region, found.best.traffic.source) == ("us-east-2", "us-east-2")
    assert found.best.traffic_usd == pytest.approx(100)
