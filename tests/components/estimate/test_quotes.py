"""What a job comes to on an offer: worked by hand, what cannot be done, and what must hold for all of them."""

import math
import random
from dataclasses import replace
from datetime import date

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gangway.components.catalog.loader import PROVIDERS, load_provider
from gangway.components.catalog.machine_facts import load_reliability
from gangway.components.catalog.prices import Kind
from gangway.components.catalog.schema import Fact, Region
from gangway.components.estimate.offers import Offer, find_offers, get_carriers
from gangway.components.estimate.quotes import SORTS, Job, Ranking, Sort, chance_in_time, quote, rank
from gangway.components.estimate.spot import estimate_spot


def fact(value: float | None, source: str = "a test") -> Fact[float | None]:
    return Fact[float | None](value=value, source=source, as_of=date(2026, 11, 1), confidence="list-price")


def offer(
    kind: Kind,
    price: float | None,
    share: float | None = None,
    on_demand: float | None = 50.0,
    region: str = "us-east-1",
) -> Offer:
    """A way to get 8 x H100. `share` is of spot nodes taken in a month."""
    catalog = load_provider("aws")
    return Offer(
        provider="aws",
        region=region,
        machine=catalog.machines["p5.48xlarge"],
        kind=kind,
        price=fact(price),
        place=catalog.regions[region],
        interruptions=fact(share, "nobody publishes it" if share is None else "a test") if kind == "spot" else None,
        on_demand=on_demand,
    )


def test_on_demand_by_hand() -> None:
    """4 nodes x 100 h x 50 USD; 8 x 700 W x 0.76 and the host's watts, PUE 1.15, 396.25 g/kWh."""
    found = quote(offer("on-demand", 50.0), Job(4, 100, start_hours=0))
    host = load_provider("aws").machines["p5.48xlarge"].host_watts.value
    kwh = 4 * 100 * (8 * 700 * 0.76 + host) / 1000 * 1.15
    assert (found.usd, found.hours, found.risk_hours, found.in_time) == (20_000, 100, 0, None)
    assert found.kwh == pytest.approx(kwh)
    assert found.gco2e == pytest.approx(kwh * 396.25)
    assert (found.problem, found.missing) == ("", "")


def test_the_first_start_is_paid_like_the_rest() -> None:
    """Ten minutes until the nodes have booted, pulled the image and joined."""
    found, without = (quote(offer("on-demand", 60.0), Job(4, 1, start_hours=start)) for start in (1 / 6, 0))
    assert (found.usd, found.hours) == pytest.approx((4 * 70.0, 7 / 6))
    assert found.kwh == pytest.approx((without.kwh or 0.0) * 7 / 6)
    assert quote(offer("on-demand", 60.0), Job(4, 1)) == found


def test_a_deadline_counts_spot_as_often_there_as_a_plan_does() -> None:
    """100 h on nodes that can be had 64 % of the time take 156 h, and cost no more."""
    there, job = load_reliability().spot.there.value, Job(4, 100, start_hours=0)
    spot, steady = offer("spot", 20.0, 0.0), offer("on-demand", 50.0)
    late, soon = (quote(spot, replace(job, deadline_hours=hours)) for hours in (99.9 / there, 100.1 / there))
    assert late.problem.startswith("too late: 156.2 h expected")
    assert "64% of the time" in late.problem
    assert (soon.problem, soon.in_time) == ("", 1.0)
    assert (soon.usd, soon.hours, soon.wall_hours) == pytest.approx((8_000, 100, 100 / there))
    assert quote(steady, replace(job, deadline_hours=100.1)).problem == ""


def test_spot_costs_what_the_model_says_with_its_extra_hours_and_energy() -> None:
    found = quote(offer("spot", 20.0, 0.4), Job(4, 100, start_hours=0))
    expected = estimate_spot(4, 20.0, 100, 0.4)
    assert found.usd == pytest.approx(expected.usd)
    assert (found.hours, found.risk_hours) == (expected.hours, expected.lost_hours)
    plain = quote(offer("on-demand", 50.0), Job(4, 100, start_hours=0))
    assert found.kwh is not None
    assert plain.kwh is not None
    assert found.kwh / plain.kwh == pytest.approx(expected.hours / 100)
    assert "0.29 interruptions expected (40% of nodes a month, list-price)" in found.details


def test_a_reservation_is_paid_for_its_whole_term() -> None:
    found = quote(offer("reserved-1y", 34.6), Job(2, 100))
    assert found.usd == pytest.approx(2 * 34.6 * 8760)
    assert "8,760 h are paid, 1% of them used" in found.details
    assert "pays above 69% use" in found.details
    assert quote(offer("reserved-1y", 34.6), Job(2, 8761)).usd == pytest.approx(2 * 34.6 * 8760 * 2)
    assert quote(offer("reserved-3y", 20.0, on_demand=None), Job(1, 26_280)).usd == pytest.approx(20 * 26_280)


@pytest.mark.parametrize(("hours", "days"), [(1, 1), (24, 1), (100, 5), (336, 14), (337, 21), (4368, 182)])
def test_a_block_is_bought_by_whole_days(hours: float, days: int) -> None:
    found = quote(offer("capacity-block", 41.61), Job(2, hours))
    assert found.usd == pytest.approx(2 * 41.61 * days * 24)
    assert f"{days} whole days" in found.details


def test_a_job_longer_than_any_block_does_not_fit() -> None:
    found = quote(offer("capacity-block", 41.61), Job(2, 4369))
    assert found.usd is None
    assert found.problem == "the longest block has 182 days, the job takes 182"


def test_flex_start_ends_after_a_week_and_waits_for_nobody_knows_how_long() -> None:
    assert quote(offer("flex-start", 50.0), Job(1, 168)).problem == ""
    assert "deleted after 168 h" in quote(offer("flex-start", 50.0), Job(1, 169)).problem
    assert quote(offer("flex-start", 50.0), Job(1, 100, deadline_hours=130)).in_time is None


def test_spot_that_never_ends_is_said_to_be_infeasible() -> None:
    found = quote(offer("spot", 20.0, 0.9999), Job(2000, 100))
    assert found.usd is None
    assert found.kwh is None
    assert found.problem.startswith("never done: an interruption each 0.0")


def test_spot_that_ends_after_the_deadline_is_said_to_be_too_late() -> None:
    found = quote(offer("spot", 20.0, 0.9), Job(64, 100, deadline_hours=101))
    assert found.problem.startswith("too late: ")
    assert "the deadline is 101 h" in found.problem
    assert quote(offer("spot", 20.0, 0.9), Job(64, 100, deadline_hours=200)).problem == ""


def test_a_rate_nobody_publishes_is_not_guessed_but_may_be_given() -> None:
    silent = quote(offer("spot", 20.0, None), Job(4, 100, deadline_hours=200))
    assert (silent.usd, silent.spot, silent.in_time) == (None, None, None)
    assert silent.missing == "rate of interruptions not known (nobody publishes it); give --interruptions"
    job = Job(4, 100, interruptions=0.15, start_hours=0)
    told = quote(offer("spot", 20.0, None), job)
    assert told.usd == pytest.approx(estimate_spot(4, 20.0, 100, 0.15).usd)
    assert "(15% of nodes a month, as given)" in told.details
    # What is published is not overruled.
    assert quote(offer("spot", 20.0, 0.4), job).usd == pytest.approx(estimate_spot(4, 20.0, 100, 0.4).usd)


def test_capacity_that_is_never_taken_costs_no_more_hours() -> None:
    found = quote(offer("spot", 20.0, 0.0), Job(4, 100, deadline_hours=160, start_hours=0))
    assert (found.usd, found.hours, found.in_time) == (8_000, 100, 1.0)
    assert "never taken back" in found.details
    assert "fewer than 0.01" in quote(offer("spot", 20.0, 0.001), Job(1, 1)).details


def test_an_unknown_price_is_missing() -> None:
    found = quote(offer("on-demand", None), Job(4, 100))
    assert (found.usd, found.missing, found.unpriced) == (None, "", "no price in the catalogue")


def test_without_a_grid_there_is_no_figure_of_energy() -> None:
    found = quote(replace(offer("on-demand", 50.0), place=None), Job(4, 100, start_hours=0))
    assert (found.kwh, found.gco2e, found.usd) == (None, None, 20_000)


def test_the_chance_in_time_by_hand() -> None:
    """98 h of work, 0.5 h lost each 100 h: slack for two interruptions, of 0.98 + 2 x 0.005 on average."""
    spot = replace(estimate_spot(1, 1, 98, 0.1), mtbf_hours=100, hours=98 / 0.995, lost_hours=98 / 0.995 - 98)
    spot = replace(spot, interruptions=spot.hours / 100)
    none = math.exp(-0.98)
    one = 0.98 * math.exp(-0.985)
    two = 0.98 * (0.98 + 0.01) * math.exp(-0.99) / 2
    assert chance_in_time(98, 99.2, spot) == pytest.approx(none + one + two)
    assert chance_in_time(98, 98.4, spot) == pytest.approx(none)
    assert chance_in_time(98, 97.9, spot) == 0.0
    assert chance_in_time(98, 98, None) == 1.0
    assert chance_in_time(98, 97, None) == 0.0
    assert chance_in_time(98, 200, estimate_spot(2000, 1, 98, 0.9999)) == 0.0


def test_the_chance_agrees_with_a_simulation() -> None:
    """Jobs played out one by one: work, interruptions at random times, the same loss at each."""
    spot = estimate_spot(64, 1, 200, 0.5, restart_sec=3600 * 4)
    lost_each = spot.lost_hours / spot.interruptions
    dice = random.Random(8)
    due = spot.hours * 1.1

    def done_after() -> float:
        now, end = 0.0, spot.hours - spot.lost_hours
        while (now := now + dice.expovariate(1 / spot.mtbf_hours)) < end:
            end += lost_each
        return end

    runs = 4000
    share = sum(done_after() <= due for _ in range(runs)) / runs
    assert chance_in_time(200, due, spot) == pytest.approx(share, abs=4 * 0.5 / math.sqrt(runs))
    assert 0.5 < share < 0.99, "an experiment that could have come out otherwise"


hours = st.floats(0.5, 4000)
nodes = st.integers(1, 256)


@given(st.sampled_from(["on-demand", "spot", "reserved-1y", "capacity-block"]), nodes, hours, st.floats(1, 4))
def test_more_hours_never_cost_less(kind: Kind, num_nodes: int, length: float, times: float) -> None:
    made = offer(kind, 20.0, 0.2)
    short, long = (quote(made, Job(num_nodes, each)).usd for each in (length, length * times))
    assume(short is not None and long is not None)
    assert short is not None
    assert long is not None
    assert long >= short * (1 - 1e-9)


@given(nodes, hours, st.floats(0, 0.9), st.floats(1, 3), st.floats(1, 3))
def test_a_later_deadline_never_lowers_the_chance(
    num_nodes: int, length: float, share: float, times: float, later: float
) -> None:
    spot = estimate_spot(num_nodes, 1, length, share)
    soon, late = (chance_in_time(length, length * factor, spot) for factor in (times, times * later))
    assert 0 <= soon <= late + 1e-9
    assert late <= 1
    assert share > 0 or soon == 1


@given(nodes, st.floats(1, 500), st.floats(0.01, 0.5))
def test_with_all_the_time_in_the_world_the_job_is_done(num_nodes: int, length: float, share: float) -> None:
    spot = estimate_spot(num_nodes, 1, length, share)
    assume(spot.feasible)
    assert chance_in_time(length, length * 1000, spot) == pytest.approx(1, abs=1e-6)


def ranked(*offers: Offer, sort: Sort = "cost", job: Job = Job(4, 100)) -> Ranking:  # noqa: B008 - frozen
    return rank([quote(each, job) for each in offers], sort)


def order(ranking: Ranking) -> list[tuple[str, str]]:
    return [(each.offer.region, each.offer.kind) for each, _ in ranking.ranked]


VIRGINIA, SWEDEN = offer("on-demand", 50.0), offer("on-demand", 60.0, region="eu-north-1")
SPOT = offer("spot", 20.0, 0.1)


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
    assert "no saving over on demand there" in ranked(offer("spot", 50.0, 0.1)).ranked[0][1]


def test_equal_offers_stand_in_the_order_of_certainty() -> None:
    assert order(ranked(offer("flex-start", 50.0), VIRGINIA))[0] == ("us-east-1", "on-demand")


def test_what_cannot_be_done_and_what_is_not_known_stand_apart() -> None:
    unknown, silent = offer("on-demand", None, region="eu-north-1"), offer("spot", 10.0, region="eu-north-1")
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
