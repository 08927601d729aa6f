"""Which prices of public lists are refused, and why: each known defect, and what holds of all that passes."""

import math
from dataclasses import replace
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.catalog.validators import (
    LARGEST_JUMP,
    PRICE_FIELDS,
    STALE_DAYS,
    Observed,
    PriceField,
    Verdict,
    judge,
)

TODAY = date(2026, 11, 21)
GOOD = Observed("aws", "p5.48xlarge", "us-east-1", "on_demand", 55.04, "a list", TODAY)
Known = dict[PriceField, float]


def verdict(*batch: Observed, present: Known | None = None, elsewhere: Known | None = None) -> Verdict:
    return judge(batch, present or {}, elsewhere or {}, regions=["us-east-1"], unit="hour", today=TODAY)


def reason(*batch: Observed, present: Known | None = None, elsewhere: Known | None = None) -> str:
    found = verdict(*batch, present=present, elsewhere=elsewhere)
    assert found.accepted == ()
    return "; ".join(dict.fromkeys(refusal.reason for refusal in found.refused))


def spot(low: float, high: float) -> tuple[Observed, Observed]:
    return replace(GOOD, field="spot_low", value=low), replace(GOOD, field="spot_high", value=high)


def test_a_plain_price_is_accepted() -> None:
    assert verdict(GOOD, *spot(17.25, 22.98), present={"on_demand": 98.32}).refused == ()
    assert verdict(GOOD).accepted == (GOOD,)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (replace(GOOD, value=0.0), "zero stands for a price that the list does not know"),
        (replace(GOOD, value=-1.0), "negative"),
        (replace(GOOD, value=math.nan), "no number"),
        (replace(GOOD, value=math.inf), "no number"),
        (replace(GOOD, value=700.0), "700 is a placeholder"),
        (replace(GOOD, value=98.32), "the price of before June 2025"),
        (replace(GOOD, currency="CNY"), "in CNY, not in USD"),
        (replace(GOOD, unit="Quantity"), "per Quantity, not per hour"),
        (replace(GOOD, as_of=TODAY - timedelta(days=STALE_DAYS + 1)), "181 days ago; 180 are too old"),
        (replace(GOOD, as_of=TODAY + timedelta(days=2)), "still to come"),
        (replace(GOOD, region="us-east-2"), "of us-east-2, which was not asked about"),
    ],
)
def test_each_known_defect_is_refused_with_its_reason(wrong: Observed, words: str) -> None:
    assert words in reason(wrong)


def test_what_a_p5_once_cost_is_what_another_machine_does_cost() -> None:
    azure = replace(GOOD, provider="azure", item="Standard_ND96isr_H100_v5", value=98.32)
    assert verdict(azure).accepted == (azure,)


@pytest.mark.parametrize(("known", "words"), [(5.0, "10 times above the 5 "), (600.0, "10 times below the 600 ")])
def test_a_jump_is_refused_and_names_what_is_known(known: float, words: str) -> None:
    assert words in reason(GOOD, present={"on_demand": known})
    assert words in reason(GOOD, elsewhere={"on_demand": known})
    # The region's own price is the measure where there is one.
    assert verdict(GOOD, present={"on_demand": 50.0}, elsewhere={"on_demand": known}).refused == ()


def test_on_demand_below_spot_is_refused() -> None:
    found = verdict(replace(GOOD, value=20.0), *spot(17.25, 22.98), present={"on_demand": 55.04})
    assert [refusal.reason for refusal in found.refused] == [
        "below spot at 22.98: some lists state a discounted price as that on demand"
    ]
    assert {each.field for each in found.accepted} == {"spot_low", "spot_high"}
    assert "below spot at 60" in reason(GOOD, present={"spot_high": 60.0})


@pytest.mark.parametrize("field", ["reserved_1y", "reserved_3y"])
def test_a_total_where_an_hourly_price_belongs_is_above_on_demand(field: PriceField) -> None:
    assert reason(replace(GOOD, field=field, value=341_640.0), present={"on_demand": 55.04}) == (
        "above the price on demand, 55.04"
    )


def test_half_a_span_of_spot_says_nothing() -> None:
    assert reason(spot(17.25, 22.98)[0]) == "only one end of the span over zones is left"
    assert "only one end" in reason(*spot(17.25, 60.0), present={"on_demand": 55.04})
    assert reason(*spot(23, 22)) == "the lowest, 23, is above the highest, 22"


def test_two_prices_for_one_thing_are_both_refused() -> None:
    assert reason(GOOD, replace(GOOD, value=44.5)) == "stated twice: 44.5, 55.04"
    assert verdict(GOOD, replace(GOOD, source="the same on another page")).refused == ()


observed = st.builds(
    Observed,
    provider=st.sampled_from(["aws", "gcp"]),
    item=st.just("p5.48xlarge"),
    region=st.sampled_from(["us-east-1", "us-east-2"]),
    field=st.sampled_from(PRICE_FIELDS),
    value=st.one_of(st.floats(), st.floats(0.1, 200), st.sampled_from([0.0, 700.0, 98.32])),
    source=st.just("a list"),
    as_of=st.dates(TODAY - timedelta(days=400), TODAY + timedelta(days=10)),
    unit=st.sampled_from(["hour", "Quantity"]),
    currency=st.sampled_from(["USD", "EUR"]),
)
known_prices = st.dictionaries(st.sampled_from(PRICE_FIELDS), st.floats(0.1, 200))


@given(st.lists(observed, max_size=8), known_prices, known_prices)
def test_what_passes_is_a_price_that_can_stand_beside_the_others(
    batch: list[Observed], present: Known, elsewhere: Known
) -> None:
    found = verdict(*batch, present=present, elsewhere=elsewhere)
    refused = {id(refusal.observed) for refusal in found.refused}
    assert refused.isdisjoint(id(each) for each in found.accepted)
    assert all(refusal.reason for refusal in found.refused)
    values = {each.field: each.value for each in found.accepted}
    assert len(values) == len(found.accepted)
    for each in found.accepted:
        assert (each.region, each.unit, each.currency) == ("us-east-1", "hour", "USD")
        assert 0 < each.value < math.inf
        assert each.value not in (700.0,)
        measure = present.get(each.field, elsewhere.get(each.field, each.value))
        assert measure / LARGEST_JUMP <= each.value <= measure * LARGEST_JUMP
        assert 0 <= (TODAY - each.as_of).days + 1 <= STALE_DAYS + 1
    on_demand = values.get("on_demand", present.get("on_demand", math.inf))
    for field in ("spot_low", "spot_high", "reserved_1y", "reserved_3y"):
        assert values.get(field, 0) <= on_demand
    assert ("spot_low" in values) == ("spot_high" in values)
    assert values.get("spot_low", 0) <= values.get("spot_high", 0)
    known_spot = present.get("spot_typical") or present.get("spot_high", 0)
    assert "spot_high" in values or values.get("on_demand", math.inf) >= known_spot


@given(st.lists(observed, max_size=8), known_prices)
def test_every_observation_has_a_fate(batch: list[Observed], present: Known) -> None:
    found = verdict(*batch, present=present)
    fates = [(each.field, each.value) for each in found.accepted]
    fates += [(refusal.observed.field, refusal.observed.value) for refusal in found.refused]
    for each in batch:
        assert any(field == each.field and (value == each.value or math.isnan(each.value)) for field, value in fates)
