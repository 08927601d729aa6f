"""Renting against owning: the formulas by hand, the rule of thumb from its inputs, and what holds for all of them."""

import math
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gangway.components.estimate.tco import (
    HOURS_PER_YEAR,
    RULE_MONTHS,
    RULE_UTILISATION,
    CloudSide,
    OnPremSide,
    availability,
    break_even_months,
    break_even_utilisation,
    cloud_usd,
    discounted_hours,
    engineers,
    keeps_rule,
    load_onprem,
    onprem_usd,
)

# 10 kW * 1.5 * 0.10 = 1.5 an hour of power; with 2.5 and 4 it runs at 8 an hour.
OWNED = OnPremSide(
    capex_usd=400_000, resale_usd=80_000, kw=10, pue=1.5, usd_per_kwh=0.1, colo_usd_per_hour=2.5, ops_usd_per_hour=4
)
RENTED = CloudSide(usd_per_hour=50, utilisation=0.8)

prices = st.floats(1, 200)
shares = st.floats(0.05, 1)
lengths = st.floats(100, 50_000)
owned = st.builds(
    OnPremSide,
    capex_usd=st.floats(10_000, 1_000_000),
    resale_usd=st.floats(0, 9_000),
    kw=st.floats(0.5, 15),
    pue=st.floats(1, 2),
    usd_per_kwh=st.floats(0, 0.5),
    colo_usd_per_hour=st.floats(0, 10),
    ops_usd_per_hour=st.floats(0, 10),
    availability=st.floats(0.9, 1),
)
rates = st.floats(0, 0.3)


def test_both_bills_by_hand() -> None:
    assert OWNED.running_usd_per_hour == pytest.approx(8.0)
    assert onprem_usd(OWNED, 1000) == pytest.approx(320_000 + 8_000)
    assert cloud_usd(RENTED, 1000) == pytest.approx(40_000)
    assert cloud_usd(replace(RENTED, fixed_usd_per_hour=2), 1000) == pytest.approx(42_000)


def test_the_break_evens_by_hand() -> None:
    """Renting costs 40 an hour and owning 8: 320,000 are saved after 10,000 hours, which are 13.7 months."""
    assert break_even_months(RENTED, OWNED) == pytest.approx(10_000 / 730)
    assert break_even_utilisation(RENTED, OWNED, 10_000) == pytest.approx(0.8)
    assert break_even_utilisation(replace(RENTED, fixed_usd_per_hour=5), OWNED, 10_000) == pytest.approx(0.7)


def test_a_later_dollar_is_worth_less() -> None:
    """A year at 10 %: paid all along, the mean dollar of it is worth 1/ln(1.1) x (1 - 1/1.1) = 0.9538."""
    year = discounted_hours(HOURS_PER_YEAR, 0.1) / HOURS_PER_YEAR
    assert year == pytest.approx((1 - 1 / 1.1) / math.log(1.1))
    by_hours = sum(1.1 ** (-(hour + 0.5) / HOURS_PER_YEAR) for hour in range(HOURS_PER_YEAR)) / HOURS_PER_YEAR
    assert year == pytest.approx(by_hours)
    assert cloud_usd(RENTED, HOURS_PER_YEAR, 0.1) == pytest.approx(40 * HOURS_PER_YEAR * year)
    assert onprem_usd(OWNED, HOURS_PER_YEAR, 0.1) == pytest.approx(320_000 + 8 * HOURS_PER_YEAR * year)
    assert break_even_months(RENTED, OWNED, 0.1) > break_even_months(RENTED, OWNED)


def test_a_node_that_is_broken_at_times_has_to_be_owned_more_often() -> None:
    """One failure in 6,335 h and a day until it works: 0.38 % of the time, so that 265 nodes do the work of 264."""
    share = availability(419 / (54 * 24 * 2048), 24)
    assert share == pytest.approx(264 / 265, abs=1e-5)
    assert onprem_usd(replace(OWNED, availability=share), 1000) == pytest.approx(328_000 / share)
    assert break_even_months(RENTED, replace(OWNED, availability=0.9)) > break_even_months(RENTED, OWNED)


def test_operation_grows_slower_than_the_cluster() -> None:
    """128 nodes had 32 engineers when each four had one of their own."""
    table = load_onprem()
    first, each = table.nodes_of_first_engineer.value, table.accelerators_per_engineer.value
    assert [engineers(number, 8, first, each) for number in (1, 2, 4)] == [0.25, 0.5, 1.0]
    assert engineers(128, 8, first, each) == pytest.approx(1 + 124 * 8 / 250)
    shares = [engineers(number, 8, first, each) / number for number in (1, 4, 16, 128, 2048)]
    assert shares == sorted(shares, reverse=True)
    assert (table.accelerators_per_engineer.confidence, first) == ("documented", 4)


def test_owning_never_pays_where_it_runs_dearer_than_renting() -> None:
    assert break_even_months(RENTED.at(0.1), OWNED) == math.inf


def test_nodes_that_bring_back_their_price_pay_at_once() -> None:
    assert break_even_months(RENTED, replace(OWNED, resale_usd=400_000)) == 0.0
    assert break_even_months(RENTED.at(0.1), replace(OWNED, resale_usd=400_000)) == math.inf


@pytest.mark.parametrize(
    ("reserved", "on_demand", "pays_above"),
    [(18.83, 27.197, 0.69), (16.708, 24.48, 0.68), (62.92, 98.32, 0.64)],
)
def test_a_reservation_pays_above_its_share_of_the_price(reserved: float, on_demand: float, pays_above: float) -> None:
    share = reserved / on_demand
    assert share == pytest.approx(pays_above, abs=0.005)
    # At that use both bills are the same.
    assert cloud_usd(CloudSide(reserved, 1.0), 8760) == pytest.approx(cloud_usd(CloudSide(on_demand, share), 8760))


def test_the_rule_of_thumb_follows_from_the_stated_inputs() -> None:
    """8 x H100 at AWS's list price, held for three years: at 70 % after 15.3 months, at 80 % after 12.9."""
    table = load_onprem()
    node, rate = table.nodes["H100x8"], table.cost_of_capital.value
    sold = table.sold_share.value * ((1 - table.resale_decline.value) / (1 + rate)) ** 3
    side = OnPremSide(
        capex_usd=node.capex_usd.value,
        resale_usd=node.capex_usd.value * sold,
        kw=6.4,
        pue=table.pue.value,
        usd_per_kwh=table.usd_per_kwh.value,
        colo_usd_per_hour=table.colo_usd_per_kw_month.value * node.peak_kw.value / 730,
        ops_usd_per_hour=3000 / 730,
        availability=availability(419 / (54 * 24 * 2048), 24),
    )
    cloud = CloudSide(55.04, table.utilisation.value)
    months = [break_even_months(cloud.at(share), side, rate) for share in RULE_UTILISATION]
    assert months == pytest.approx([15.3, 12.9], abs=0.1)
    assert all(RULE_MONTHS[0] <= month <= RULE_MONTHS[1] for month in months)
    assert keeps_rule(cloud, side, rate)
    # Where it ends: the inputs stand near its lower edge, as docs/where-to-run.md says.
    for capex, holds in ((370_000, False), (380_000, True), (605_000, True), (620_000, False)):
        assert keeps_rule(cloud, replace(side, capex_usd=capex, resale_usd=sold * capex), rate) is holds, capex
    for rent, holds in ((40, False), (41, True), (58, True), (59, False)):
        assert keeps_rule(replace(cloud, usd_per_hour=rent), side, rate) is holds, rent


def test_assumptions_say_that_they_are_assumed() -> None:
    table = load_onprem()
    assert table.nodes["H100x8"].capex_usd.confidence == "assumed"
    assert {fact.confidence for fact in (table.engineer_usd_per_year, table.sold_share)} == {"assumed"}
    assert "A100x8" not in table.nodes, "nobody has a figure, so none is made up"


@pytest.mark.slow
@given(prices, owned, lengths, rates)
def test_at_the_break_even_use_both_cost_the_same(price: float, side: OnPremSide, hours: float, rate: float) -> None:
    share = break_even_utilisation(CloudSide(price, 1), side, hours, rate)
    assert cloud_usd(CloudSide(price, share), hours, rate) == pytest.approx(onprem_usd(side, hours, rate))


@given(prices, shares, owned, rates)
def test_at_the_break_even_month_both_cost_the_same(price: float, share: float, side: OnPremSide, rate: float) -> None:
    cloud = CloudSide(price, share)
    months = break_even_months(cloud, side, rate)
    assume(months < 1000)
    assert cloud_usd(cloud, months * 730, rate) == pytest.approx(onprem_usd(side, months * 730, rate), rel=1e-6)


@given(prices, shares, owned, lengths, st.floats(1, 3), rates)
def test_more_hours_never_cost_less(
    price: float, share: float, side: OnPremSide, hours: float, times: float, rate: float
) -> None:
    cloud = CloudSide(price, share)
    assert cloud_usd(cloud, hours * times, rate) >= cloud_usd(cloud, hours, rate) * (1 - 1e-12)
    assert onprem_usd(side, hours * times, rate) >= onprem_usd(side, hours, rate) * (1 - 1e-12)


@given(prices, shares, owned, rates, rates)
def test_dearer_money_never_lets_owning_pay_sooner(
    price: float, share: float, side: OnPremSide, one: float, other: float
) -> None:
    cheap, dear = sorted((one, other))
    cloud = CloudSide(price, share)
    assert break_even_months(cloud, side, cheap) <= break_even_months(cloud, side, dear) * (1 + 1e-9)


@given(prices, shares, shares, owned, rates)
def test_more_use_never_delays_the_break_even(
    price: float, one: float, other: float, side: OnPremSide, rate: float
) -> None:
    little, much = sorted((one, other))
    cloud = CloudSide(price, 1)
    assert break_even_months(cloud.at(much), side, rate) <= break_even_months(cloud.at(little), side, rate)
