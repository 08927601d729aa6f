"""Rates of interruptions: exact intervals, published figures, and what becomes of a prior."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.catalog.reliability import load_reliability
from gangway.components.estimate.spot import mtbf_sec, rate_per_hour, share_per_month
from gangway.sim.forecast.interruptions import blended_rate, observed_rate


def test_the_published_trace_by_its_counts() -> None:
    """600 taken in 3,066 node-hours (the catalogue's source): 0.196 an hour, known to 7 %."""
    rate = observed_rate(600, 3066)
    assert rate.per_hour == pytest.approx(load_reliability().spot.most_taken_per_hour.value, abs=5e-4)
    assert [rate.low, rate.high] == pytest.approx([0.1827, 0.2095], abs=5e-4)


def test_none_seen_is_not_never() -> None:
    """The upper end is -ln(0.05) / hours at 90 %."""
    rate = observed_rate(0, 100)
    assert (rate.per_hour, rate.low) == (0, 0)
    assert rate.high == pytest.approx(-math.log(0.05) / 100)


@pytest.mark.parametrize("expected", [0.5, 3, 40])
def test_the_interval_holds_the_true_rate_as_often_as_it_says(expected: float) -> None:
    """Garwood's holds at least its level; 400 counts, within four binomial deviations below."""
    draw, trials, held = random.Random(1), 400, 0
    for _ in range(trials):
        at, taken = draw.expovariate(1), 0
        while at < expected:
            at, taken = at + draw.expovariate(1), taken + 1
        rate = observed_rate(taken, expected)
        held += rate.low <= 1 <= rate.high
    assert held / trials >= 0.9 - 4 * math.sqrt(0.9 * 0.1 / trials)


@given(st.integers(0, 500), st.floats(1, 1e5), st.floats(1e-4, 1), st.floats(1, 1e4))
def test_a_prior_pulls_towards_itself(taken: int, hours: float, published: float, worth: float) -> None:
    rate, seen = blended_rate(taken, hours, published, worth), taken / hours
    ends = sorted((seen, published))
    assert ends[0] * (1 - 1e-9) <= rate.per_hour <= ends[1] * (1 + 1e-9)
    assert rate.low <= rate.high


def test_what_was_seen_outlasts_the_prior() -> None:
    assert blended_rate(0, 0.001, 0.2, 100).per_hour == pytest.approx(0.2, rel=1e-3)
    assert blended_rate(10_000, 100_000, 0.2, 100).per_hour == pytest.approx(0.1, rel=2e-3)


@given(st.floats(0, 0.99))
def test_a_rate_and_its_share_of_a_month_are_one_thing(share: float) -> None:
    assert share_per_month(rate_per_hour(share)) == pytest.approx(share, abs=1e-12)


def test_a_measured_rate_goes_into_the_estimate() -> None:
    assert mtbf_sec(4, share_per_month(0.01)) == pytest.approx(3600 / 0.04)
