"""Mean and spread over seeds: no value is lost, none is invented, and a mean is as good as its weakest value."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.report.comparison.series import Spread, change, get_spread
from gangway.trainer.records.quantity import Quantity

AMOUNTS = st.floats(min_value=-1e9, max_value=1e9, allow_nan=False)
FIGURES = st.lists(st.one_of(st.none(), AMOUNTS), min_size=1, max_size=12)


def figure(value: float | None, provenance: str = "measured") -> Quantity:
    if value is None:
        return Quantity.absent("h", "no meter")
    return Quantity.model_validate(
        {"value": value, "unit": "h", "provenance": provenance, "source": f"a {provenance} one"}
    )


def named(values: list[float | None]) -> dict[str, Quantity]:
    return {f"run-{place}": figure(value) for place, value in enumerate(values)}


@given(FIGURES)
def test_a_mean_lies_between_its_values_and_what_is_absent_is_counted_out(values: list[float | None]) -> None:
    spread = get_spread(named(values))
    known = [value for value in values if value is not None]
    assert spread.known == tuple(known)
    assert len(spread.values) == len(values)
    assert (spread.value is None) == (not known) == (spread.provenance == "absent")
    if spread.value is not None and spread.low is not None and spread.high is not None:
        assert min(known) == spread.low <= spread.value <= spread.high == max(known)
        assert spread.value == pytest.approx(statistics.fmean(known))
        assert (f"{len(values) - len(known)} of {len(values)} runs" in spread.note) == (len(known) < len(values))


@given(st.lists(AMOUNTS, min_size=3, max_size=12))
def test_three_values_have_a_sample_deviation_and_their_order_does_not_count(values: list[float]) -> None:
    spread, turned = get_spread(named([*values])), get_spread(named([*reversed(values)]))
    assert spread.std == pytest.approx(statistics.stdev(values), rel=1e-6, abs=1e-6)
    assert (turned.value, turned.std, turned.low, turned.high) == (spread.value, spread.std, spread.low, spread.high)


def test_one_and_two_values_have_a_range_and_no_deviation() -> None:
    assert get_spread(named([4.0])).std is None
    two = get_spread(named([4.0, 5.0]))
    assert (two.value, two.low, two.high, two.std) == (4.5, 4.0, 5.0, None)


@pytest.mark.parametrize(
    ("provenances", "weakest"),
    [
        (("measured", "measured"), "measured"),
        (("measured", "list-price"), "list-price"),
        (("estimated", "measured"), "estimated"),
        (("assumed", "estimated"), "assumed"),
    ],
)
def test_a_mean_is_as_good_as_its_weakest_value(provenances: tuple[str, str], weakest: str) -> None:
    spread = get_spread({name: figure(1.0, name) for name in provenances})
    assert spread.provenance == weakest
    assert all(f"a {name} one" in spread.source for name in provenances)


def test_many_sources_are_told_as_a_few_and_a_number() -> None:
    given_figures = {f"r{n}": Quantity.measured(n, "h", f"clock {n}") for n in range(5)}
    assert get_spread(given_figures).source == "clock 0; clock 1; clock 2; and 2 more"


def of(values: dict[str, float]) -> Spread:
    return get_spread({name: Quantity.measured(value, "h", "clock") for name, value in values.items()})


def test_a_change_compares_each_seed_with_itself() -> None:
    seeds = {"c0": 0, "c1": 1, "t0": 0, "t1": 1}
    told = change(of({"c0": 10, "c1": 20}), of({"t0": 5, "t1": 5}), seeds)
    assert (told.value, told.low, told.high) == pytest.approx((100 * (0.125**0.5 - 1), -75.0, -50.0))
    assert dict(told.values) == pytest.approx({"seed 0": -50.0, "seed 1": -75.0})


def test_with_other_seeds_means_are_compared_and_that_is_said() -> None:
    told = change(of({"c0": 10, "c1": 20}), of({"t0": 30}), {"c0": 0, "c1": 1, "t0": 7})
    assert told.value == pytest.approx(100.0)
    assert told.values == ()
    assert told.source == "mean against mean: no seed is in both rows"
    twice = change(of({"a": 10, "b": 20}), of({"c": 30, "d": 30}), {"a": 0, "b": 0, "c": 0, "d": 0})
    assert twice.source == "mean against mean: a seed stands in a row more than once"


def test_a_seed_without_a_value_is_left_out_of_both_sides() -> None:
    seeds = {"c0": 0, "c1": 1, "c2": 2, "t0": 0, "t1": 1, "t2": 2}
    control = get_spread({"c0": figure(10), "c1": figure(10), "c2": figure(100)})
    told = change(control, get_spread({"t0": figure(5), "t1": figure(5), "t2": figure(None)}), seeds)
    assert told.value == pytest.approx(-50.0)
    assert dict(told.values) == pytest.approx({"seed 0": -50.0, "seed 1": -50.0})
    assert told.note == "seed 2 left out: not in both rows with a value"


@given(AMOUNTS, AMOUNTS)
def test_a_signed_quantity_changes_by_its_difference(before: float, after: float) -> None:
    told = change(of({"c": before}), of({"t": after}), {"c": 0, "t": 0}, signed=True)
    assert told.value == pytest.approx(after - before, abs=1e-9 * max(abs(before), abs(after)))
    assert told.unit == "h"
    assert told.source.startswith("difference, each seed's run")


@pytest.mark.parametrize(("before", "after"), [(None, 1.0), (1.0, None)])
def test_a_change_of_nothing_or_to_nothing_is_absent(before: float | None, after: float | None) -> None:
    told = change(get_spread({"c": figure(before)}), get_spread({"t": figure(after)}), {"c": 0, "t": 0})
    assert (told.value, told.provenance) == (None, "absent")
    assert "no meter" in told.source


@pytest.mark.parametrize(("before", "after"), [(0.0, 1.0), (1.0, 0.0), (-1.0, 1.0)])
def test_a_change_from_or_to_zero_is_a_difference(before: float, after: float) -> None:
    told = change(of({"c": before, "d": 2.0}), of({"t": after, "u": 3.0}), {"c": 0, "d": 1, "t": 0, "u": 1})
    assert told.value == pytest.approx((after - before + 1) / 2)
    assert told.unit == "h"
    assert dict(told.values) == pytest.approx({"seed 0": after - before, "seed 1": 1.0})


@given(st.floats(min_value=1e-3, max_value=1e6), st.floats(min_value=1e-3, max_value=1e6))
def test_a_change_applied_to_the_control_gives_the_treatment(before: float, after: float) -> None:
    told = change(of({"c": before}), of({"t": after}), {"c": 3, "t": 3})
    assert told.value is not None
    assert before * (1 + told.value / 100) == pytest.approx(after)
