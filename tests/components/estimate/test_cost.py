"""Cost estimates against bills worked out by hand, and what must hold for every bill."""

from collections import Counter
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.catalog.prices import PriceQuote
from gangway.components.catalog.schema import EVERYWHERE, Confidence, Fact, ServicePrice
from gangway.components.estimate.cost import (
    HOURS_PER_MONTH,
    Bound,
    CostComponent,
    bound,
    estimate,
    foreign_regions,
    from_fact,
    from_service,
    load_billing,
    paid_once,
    price_line,
    unknown_price,
    used_once,
)

PRICES = st.none() | st.floats(min_value=0, max_value=1e3)


def fact(value: float | None, confidence: Confidence = "list-price") -> Fact[float | None]:
    return Fact[float | None](value=value, source="a list", as_of=date(2026, 9, 6), confidence=confidence)


def component(price: float | None, *, standby: bool = False, name: str = "thing") -> CostComponent:
    return from_fact(name, fact(price), 2, standby=standby)


COMPONENTS = st.lists(
    st.builds(component, PRICES, standby=st.booleans(), name=st.text(alphabet="abcdefgh", min_size=1, max_size=3)),
    max_size=8,
)


def test_two_p5_on_spot_cost_45_96_an_hour() -> None:
    line = from_fact("nodes", fact(22.98), 2)
    assert line.hourly == pytest.approx(45.96, rel=1e-12)
    assert (line.unit, line.quantity, line.price, line.standby) == ("hours", 2, 22.98, False)
    assert (line.source, line.as_of, line.confidence) == ("a list", "2026-09-06", "list-price")


def test_9600_gib_of_lustre_cost_a_730th_of_the_month_an_hour() -> None:
    line = from_fact("lustre", fact(0.34, "recalled"), 9600, unit="GiB-month")
    assert line.hourly == pytest.approx(9600 * 0.34 / 730, rel=1e-12)
    assert line.hourly == pytest.approx(4.471232876712329, rel=1e-12)
    assert (line.unit, line.confidence) == ("GiB-months", "recalled")


def test_a_service_costs_what_its_region_says_or_another_ones() -> None:
    price = ServicePrice(provider="x", region="here", service="disk", unit="GiB-month", usd=fact(0.1))
    line = from_service("disks", price, 730, "here", standby=True)
    assert line.hourly == pytest.approx(0.1)
    assert (line.unit, line.source, line.standby) == ("GiB-months", "a list", True)
    assert line.priced_in == ""
    elsewhere = from_service("disks", price, 730, "there")
    assert (elsewhere.source, elsewhere.priced_in) == ("a list (price of here)", "here")


def test_a_price_nobody_knows_is_a_line_without_one() -> None:
    line = unknown_price("nodes", 2, "no price in the catalogue", unit="chip-hour")
    assert (line.price, line.hourly, line.unit, line.confidence) == (None, None, "chip-hours", "unknown")
    assert estimate([line], 1).unknown == ("nodes",)


def test_of_several_fallback_rungs_the_dearest_can_stand_by() -> None:
    lines = [
        replace(component(10, standby=True), name="demo-1-spot: 2 x machine"),
        replace(component(1, standby=True), name="demo-1-spot: root volumes"),
        replace(component(30, standby=True), name="demo-2-on-demand: 2 x machine"),
        replace(component(2, standby=True), name="demo-2-on-demand: root volumes"),
    ]
    assert estimate(lines, 1).standby_hourly == pytest.approx(2 * 32)
    assert estimate([component(5)], 1).standby_hourly == 0


def test_a_bill_adds_up_by_hand() -> None:
    bill = estimate([component(22.98), component(55.04, standby=True), component(0.035)], run_hours=1.5)
    assert bill.hourly == pytest.approx(45.96 + 0.07)
    assert bill.monthly == pytest.approx(730 * 46.03)
    assert bill.run == pytest.approx(69.045)
    assert bill.standby_hourly == pytest.approx(110.08)
    assert bill.run_hours == 1.5
    assert bill.unknown == ()


def test_what_is_paid_once_stands_apart_from_the_hours() -> None:
    bill = estimate([paid_once("block", 16000, "the offering"), component(1.0)], run_hours=2)
    assert (bill.hourly, bill.upfront) == (2.0, 16000)
    assert bill.run == 16004
    assert bill.monthly == 16000 + 1460
    assert bill.components[0].confidence == "stack file"


def test_the_json_carries_currency_totals_and_every_line() -> None:
    bill = estimate([component(1.0), component(None, name="mystery")], run_hours=1)
    data = bill.to_json()
    assert list(data) == [
        "currency", "hourly", "hourly_high", "upfront", "once", "monthly", "run", "run_hours", "standby_hourly",
        "bound", "foreign_regions", "unknown", "components",
    ]  # fmt: skip
    assert data["currency"] == "USD"
    assert data["unknown"] == ("mystery",)
    assert data["components"][1] == {
        "name": "mystery", "unit": "hours", "quantity": 2, "price": None, "hourly": None,
        "source": "a list", "as_of": "2026-09-06", "confidence": "list-price", "standby": False, "upfront": 0.0,
        "once": 0.0, "of": (), "read_on": "2026-09-06", "priced_in": "", "is_limit": False, "price_high": None,
    }  # fmt: skip


def test_what_passes_once_is_of_a_run_and_not_of_an_hour() -> None:
    price = ServicePrice(provider="x", region="here", service="nat-data", unit="GiB", usd=fact(0.045))
    line = used_once("data through the NAT gateway", price, 60, "there")
    assert (line.hourly, line.unit, line.source) == (0.0, "GiB", "a list (price of here)")
    assert line.once == pytest.approx(2.7)
    bill = estimate([component(1.0), line], run_hours=10)
    assert bill.once == pytest.approx(2.7)
    assert bill.hourly == 2
    assert (bill.run, bill.monthly) == pytest.approx((22.7, 1462.7))


def test_what_passes_once_at_a_price_nobody_knows_is_unknown() -> None:
    price = ServicePrice(provider="x", region="here", service="nat-data", unit="GiB", usd=fact(None))
    bill = estimate([used_once("data", price, 60, "here")], run_hours=10)
    assert (bill.unknown, bill.run) == (("data",), 0)


@given(COMPONENTS, st.floats(0, 1e4), st.floats(0, 1e4))
def test_more_hours_never_cost_less(lines: list[CostComponent], hours: float, more: float) -> None:
    assert estimate(lines, hours + more).run >= estimate(lines, hours).run


@given(COMPONENTS, PRICES, st.booleans())
def test_one_more_line_never_makes_the_bill_smaller(
    lines: list[CostComponent], price: float | None, standby: bool
) -> None:
    assert estimate([*lines, component(price, standby=standby)], 1).hourly >= estimate(lines, 1).hourly - 1e-9


@given(COMPONENTS)
def test_a_price_nobody_knows_is_named_and_not_taken_for_zero(lines: list[CostComponent]) -> None:
    bill = estimate(lines, 1)
    assert bill.unknown == tuple(c.name for c in lines if not c.standby and c.price is None)
    assert all(c.hourly is None for c in bill.components if c.price is None)
    assert all(c.hourly is not None for c in bill.components if c.price is not None)


@given(COMPONENTS)
def test_standby_is_outside_the_totals(lines: list[CostComponent]) -> None:
    bill = estimate(lines, 2)
    in_use = [c for c in lines if not c.standby]
    assert bill.hourly == estimate(in_use, 2).hourly
    assert bill.components == tuple(lines)
    assert bill.monthly == pytest.approx(bill.hourly * HOURS_PER_MONTH)
    sums = [sum(c.hourly or 0 for c in lines if c.standby and c.name == name) for name in {c.name for c in lines}]
    assert bill.standby_hourly == pytest.approx(max(sums, default=0))


LINES = st.builds(
    lambda name, hourly, foreign, limit: CostComponent(
        name, "hours", 1, hourly, hourly, "a list", "2026-09-06", "list-price", priced_in=foreign, is_limit=limit
    ),
    st.sampled_from(["a", "b"]),
    st.none() | st.floats(0.1, 9),
    st.sampled_from(["", "", "there"]),
    st.booleans(),
)


@given(st.lists(LINES, max_size=5), st.booleans())
def test_what_a_sum_is_follows_from_its_lines(lines: list[CostComponent], at_most: bool) -> None:
    """A foreign price bounds nothing; an unknown one makes a sum a lower bound, a limit an upper one, both neither."""
    unknown, foreign = any(line.hourly is None for line in lines), any(line.priced_in for line in lines)
    limited = at_most or any(line.is_limit for line in lines)
    expected = Bound.AT_LEAST if unknown and not limited else Bound.AT_MOST if limited and not unknown else Bound.NONE
    assert bound(lines, at_most=at_most) is (Bound.NONE if foreign else expected)
    assert bool(foreign_regions(lines)) is foreign
    assert estimate(lines, 1).bound is bound(lines)


def test_a_range_is_expected_at_its_typical_price_and_bounded_by_its_highest() -> None:
    quote = PriceQuote("here", "here", fact(3.0), 2.0, 8.0)
    line = price_line("nodes", 4, quote, kind="spot")
    assert (line.hourly, line.hourly_high, line.is_limit) == (12.0, 32.0, False)
    capped = price_line("nodes", 4, quote, kind="spot", cap_usd=5.0)
    assert (capped.hourly, capped.hourly_high) == (12.0, 20.0)
    low = price_line("nodes", 4, quote, kind="spot", cap_usd=2.5)
    assert (low.hourly, low.hourly_high, low.is_limit) == (10.0, 10.0, True)
    bill = estimate([line, replace(low, name="b: nodes", standby=True)], 1)
    assert (bill.hourly, bill.hourly_high, bill.standby_hourly) == (12.0, 32.0, 10.0)


def test_a_price_of_every_region_is_no_other_regions() -> None:
    price = ServicePrice(provider="x", region=EVERYWHERE, service="eks", unit="hour", usd=fact(0.1))
    assert from_service("control plane", price, 1, "anywhere").priced_in == ""


def test_no_type_is_both_free_and_paid_by_use() -> None:
    table = load_billing()
    free = Counter(kind for row in table.free for kind in row.types)
    used = Counter(kind for row in table.by_use for kind in row.types)
    assert {kind: number for kind, number in (free + used).items() if number > 1} == {}


def test_every_row_says_where_it_is_from() -> None:
    table = load_billing()
    facts: list[Fact[Any]] = [*(row.usd for row in table.free), *(row.per for row in table.by_use)]
    for fact in facts:
        assert fact.source
        assert fact.url.startswith("https://") or fact.confidence in ("recalled", "assumed"), fact
    assert {row.usd.value for row in table.free} == {0}


def test_what_is_free_in_one_kind_alone_is_not_free_in_another() -> None:
    table, kind = load_billing(), "aws:ec2/vpcEndpoint:VpcEndpoint"
    assert table.free_of(kind, {"vpcEndpointType": "Gateway"}) is not None
    assert table.free_of(kind, {"vpcEndpointType": "Interface"}) is None
    assert table.free_of("gcp:compute/address:Address", {"addressType": "EXTERNAL"}) is None
    assert table.free_of("aws:rds/instance:Instance", {}) is None


def test_what_is_paid_by_use_names_what_by() -> None:
    bucket = load_billing().by_use_of("aws:s3/bucket:Bucket")
    assert bucket is not None
    assert (bucket.per.value, bucket.settings) == ("objects kept and requests", ("run_bucket_gib",))
    assert load_billing().by_use_of("aws:ec2/vpc:Vpc") is None


def test_a_providers_delay_has_a_source_and_the_stops_own_question_counts() -> None:
    delays = load_billing().delays
    for delay in delays.values():
        least, most = delay.stop_hours
        assert 0 <= least < most
        assert delay.most_hours.url.startswith("https://")
    assert delays["aws"].stop_hours == (8, 12)
    assert delays["azure"].stop_hours == (8, 25), "the workflow asks each hour"
