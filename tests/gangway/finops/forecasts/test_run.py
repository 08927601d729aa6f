"""The remaining time of a job: exact where its pace is, and honest where it scatters."""

import json
import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.finops.forecasts.run import FEWEST_WINDOWS, remaining
from gangway.sim.forecast.accuracy import Judged, accuracy, skill


@given(st.integers(FEWEST_WINDOWS, 60), st.floats(1e-4, 10), st.floats(1, 1e6))
def test_a_steady_job_is_foreseen_exactly(number: int, pace: float, left: float) -> None:
    found = remaining([(pace * 100, 100)] * number, left)
    for seconds in (found.low_sec, found.middle_sec, found.high_sec, found.naive_sec):
        assert seconds == pytest.approx(left * pace, rel=1e-9)


def test_a_pace_that_changed_is_the_one_of_the_later_half() -> None:
    found = remaining([(100, 100)] * 30 + [(50, 100)] * 30, 1000)
    assert found.middle_sec == pytest.approx(500)
    assert found.naive_sec == pytest.approx(750)


def independent(draw: random.Random) -> Callable[[], float]:
    return lambda: draw.lognormvariate(0, 0.3)


def following(draw: random.Random) -> Callable[[], float]:
    """Each window like the one before, 0.6 of it."""
    value = 0.0

    def pace() -> float:
        nonlocal value
        value = 0.6 * value + draw.gauss(0, 0.2)
        return math.exp(value)

    return pace


@pytest.mark.slow
@pytest.mark.parametrize("paces", [independent, following])
@pytest.mark.parametrize("left", [5, 100])
def test_the_interval_holds_about_what_it_says(
    paces: Callable[[random.Random], Callable[[], float]], left: int
) -> None:
    """Of 120 jobs with 80 windows behind them, 90 % intervals, within four binomial deviations."""
    draw, trials, held = random.Random(5), 120, 0
    for _ in range(trials):
        pace = paces(draw)
        past, truth = [(pace(), 1.0) for _ in range(80)], sum(pace() for _ in range(left))
        found = remaining(past, left)
        held += found.low_sec <= truth <= found.high_sec
    assert abs(held / trials - 0.9) <= 4 * math.sqrt(0.9 * 0.1 / trials)


def test_the_back_test_on_a_measured_run() -> None:
    """A real training beside other work, whose pace changed threefold. Overlapping forecasts: no binomial bounds."""
    seconds = json.loads((Path(__file__).parent / "pace.json").read_text("utf-8"))["seconds"]
    model, naive = [], []
    for known in range(20, len(seconds) - 10, 10):
        left, truth = len(seconds) - known, sum(seconds[known:])
        found = remaining([(each, 256) for each in seconds[:known]], 256 * left)
        shares = [each / truth for each in (found.low_sec, found.middle_sec, found.high_sec, found.naive_sec)]
        model.append(Judged((shares[0],), (shares[1],), (shares[2],), (1.0,)))
        naive.append(Judged((shares[3],), (shares[3],), (shares[3],), (1.0,)))
    ours, theirs, gain = accuracy(model, 0.9), accuracy(naive, 0.9), skill(model, naive, 1)
    assert gain is not None
    assert (ours.forecasts, gain.verdict) == (37, "no difference shown")
    assert [ours.mae, theirs.mae] == pytest.approx([0.148, 0.146], abs=0.002)
    assert ours.coverage == pytest.approx(0.89, abs=0.03)
