"""Expected cost of spare capacity: the worked figures, and what must hold for all of them."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gangway.components.estimate.spot import best_interval_sec, estimate_spot, mtbf_sec, rate_per_hour

nodes = st.integers(1, 256)
hours = st.floats(0.1, 2000)
fractions = st.floats(0, 0.5)
prices = st.floats(0.01, 200)


def test_the_worked_example_of_the_best_interval() -> None:
    assert best_interval_sec(10, 6000, 600) == pytest.approx(363.3, abs=0.1)


def test_a_tenth_a_month_on_eight_nodes_by_hand() -> None:
    """-ln(0.9)/720 a node and hour, times 8: an interruption each 854 hours."""
    assert rate_per_hour(0.1) == pytest.approx(1.4633e-4, rel=1e-4)
    assert mtbf_sec(8, 0.1) / 3600 == pytest.approx(854.2, abs=0.1)


def test_the_expected_cost_by_hand() -> None:
    """MTBF 60,000 s, interval 363 s: 1 + 10/363 over 1 - (181.5 + 600)/60000, for 100 h on 2 nodes at 20 USD."""
    fraction = 1 - math.exp(-720 * 3600 / 60000 / 2)
    found = estimate_spot(2, 20, 100, fraction, interval_sec=363, save_sec=10, restart_sec=600)
    expected = 100 * (1 + 10 / 363) / (1 - (363 / 2 + 600) / 60000)
    assert found.hours == pytest.approx(expected)
    assert found.usd == pytest.approx(2 * 20 * expected)
    assert found.goodput == pytest.approx(100 / expected)


@given(nodes, prices, hours)
def test_without_interruptions_nothing_is_lost(num_nodes: int, price: float, length: float) -> None:
    found = estimate_spot(num_nodes, price, length, 0.0)
    assert (found.hours, found.interruptions, found.goodput) == (length, 0.0, 1.0)
    assert found.usd == pytest.approx(num_nodes * price * length)


@given(nodes, prices, hours, st.floats(1, 3), fractions)
def test_more_hours_never_cost_less(
    num_nodes: int, price: float, length: float, factor: float, fraction: float
) -> None:
    short, long = (estimate_spot(num_nodes, price, length * times, fraction) for times in (1, factor))
    assert short.feasible == long.feasible
    assert short.usd is None or (long.usd is not None and long.usd >= short.usd * (1 - 1e-9))


@given(nodes, fractions, st.floats(1, 3))
def test_more_nodes_are_interrupted_more_often(num_nodes: int, fraction: float, factor: float) -> None:
    assume(fraction > 0)
    assert mtbf_sec(math.ceil(num_nodes * factor), fraction) <= mtbf_sec(num_nodes, fraction)


@given(st.integers(1, 64), st.floats(0.01, 0.3), st.floats(0.2, 5))
def test_no_other_interval_does_clearly_better(num_nodes: int, fraction: float, factor: float) -> None:
    """First-order optimum: the true one is within a percent of it wherever the job does well."""
    best = estimate_spot(num_nodes, 1, 100, fraction)
    assume(best.feasible and best.goodput > 0.8)
    other = estimate_spot(num_nodes, 1, 100, fraction, interval_sec=best.interval_sec * factor)
    assert not other.feasible or other.hours >= best.hours * 0.99


def test_a_job_that_loses_more_than_it_does_never_ends() -> None:
    found = estimate_spot(256, 20, 100, 0.9999, restart_sec=3600 * 24)
    assert not found.feasible
    assert (found.usd, found.goodput) == (None, 0.0)
    assert found.to_json()["hours"] is None
