"""Error, pinball loss, coverage and skill: by hand, and what must hold of them."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.sim.forecast.accuracy import (
    Judged,
    accuracy,
    detect,
    deviates,
    mean_run_length,
    normal_scores,
    pinball,
    skill,
    threshold_for,
)

NUMBER = st.floats(-1e3, 1e3)


def exact(*values: float, truth: tuple[float, ...], width: float = 1.0) -> Judged:
    return Judged(tuple(v - width for v in values), values, tuple(v + width for v in values), truth)


def test_by_hand() -> None:
    """Two steps: one half a unit below the middle, one two units above it; an interval of one to each side."""
    found = accuracy([exact(10, 20, truth=(9.5, 22))], level=0.8)
    assert (found.forecasts, found.mae, found.coverage, found.width) == (1, 1.25, 0.5, 2)
    first = (0.1 * 0.5 + 0.5 * 0.5 + 0.1 * 1.5) / 3
    second = (0.1 * 3 + 0.5 * 2 + 0.9 * 1) / 3
    assert found.pinball == pytest.approx((first + second) / 2)


@given(st.floats(0.01, 0.99), NUMBER, NUMBER)
def test_a_loss_is_none_only_where_nothing_was_missed(quantile: float, forecast: float, truth: float) -> None:
    loss = pinball(quantile, forecast, truth)
    assert loss >= 0
    assert (loss == 0) == (forecast == truth)


@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.9])
def test_the_true_quantile_has_the_least_loss(quantile: float) -> None:
    draw = random.Random(1)
    sample = sorted(draw.expovariate(1) for _ in range(2001))
    true = sample[round(quantile * 2000)]

    def loss(forecast: float) -> float:
        return sum(pinball(quantile, forecast, value) for value in sample)

    assert loss(true) <= min(loss(true - 0.05), loss(true + 0.05))


def judged(errors: list[float]) -> list[Judged]:
    return [exact(0.0, truth=(error,)) for error in errors]


def test_skill_by_hand_and_its_interval_holds_it() -> None:
    draw = random.Random(2)
    baseline = [draw.gauss(0, 2) for _ in range(100)]
    found = skill(judged([error / 2 for error in baseline]), judged(baseline), 1)
    assert found is not None
    assert found.value == pytest.approx(0.5)
    assert found.low is not None
    assert found.high is not None
    assert 0.3 < found.low < 0.5 < found.high < 0.7
    assert found.verdict == "better"


def test_two_that_err_alike_are_within_noise_and_one_that_errs_more_is_worse() -> None:
    draw = random.Random(4)
    one, other = ([draw.gauss(0, 1) for _ in range(200)] for _ in range(2))
    alike, more = (skill(judged(ours), judged(other), 1) for ours in (one, [3 * error for error in one]))
    assert alike is not None
    assert more is not None
    assert (alike.verdict, more.verdict) == ("no difference shown", "worse")
    assert alike.low is not None
    assert alike.high is not None
    assert alike.low < alike.value < alike.high


def test_no_skill_against_a_baseline_that_never_errs() -> None:
    assert skill(judged([1.0, 2.0]), judged([0.0, 0.0]), 1) is None


def test_the_interval_holds_the_true_skill_about_as_often_as_it_says() -> None:
    """Of a true 0.5, 95 % intervals from 60 independent pairs: 50 times, within four binomial deviations below."""
    draw, trials, held = random.Random(6), 50, 0
    for _ in range(trials):
        found = skill(judged([draw.gauss(0, 1) for _ in range(60)]), judged([draw.gauss(0, 2) for _ in range(60)]), 1)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 0.5 <= found.high
    assert held / trials >= 0.95 - 4 * (0.95 * 0.05 / trials) ** 0.5


def overlapped(draw: random.Random, number: int, overlapping: int) -> list[Judged]:
    """Errors of forecasts that share truths: moving means."""
    truths = [abs(draw.gauss(0, 1)) for _ in range(number + overlapping - 1)]
    return judged([sum(truths[at : at + overlapping]) / overlapping for at in range(number)])


@pytest.mark.parametrize(("number", "overlapping"), [(5, 1), (95, 8), (287, 24)])
def test_few_forecasts_have_a_skill_and_no_verdict(number: int, overlapping: int) -> None:
    """Blocks that are shorter are of the same errors."""
    draw = random.Random(8)
    few, others = (overlapped(draw, number + 1, overlapping) for _ in range(2))
    found, enough = skill(few[1:], others[1:], overlapping), skill(few, others, overlapping)
    assert found is not None
    assert found.value < 1
    assert (found.low, found.high) == (None, None)
    assert found.verdict == "too few blocks of forecasts for a claim: 5 of 6"
    assert enough is not None
    assert enough.low is not None, "one more is enough"


def test_one_forecast_has_no_verdict() -> None:
    found = skill(judged([0.97]), judged([1.0]), 1)
    assert found is not None
    assert found.value == pytest.approx(0.03)
    assert (found.low, found.high) == (None, None)


@pytest.mark.parametrize(("number", "overlapping"), [(6, 1), (96, 8), (105, 8)])
def test_two_equally_good_models_are_seldom_told_apart(number: int, overlapping: int) -> None:
    """From the fewest blocks that have a verdict. 5 in 100 should be; of 120, within four binomial deviations of 7."""
    draw, trials = random.Random(9), 120
    found = [skill(overlapped(draw, number, overlapping), overlapped(draw, number, overlapping), overlapping)
             for _ in range(trials)]  # fmt: skip
    told = sum(each is not None and each.verdict in {"better", "worse"} for each in found)
    assert told / trials <= 0.07 + 4 * (0.07 * 0.93 / trials) ** 0.5


def test_no_skill_is_above_one() -> None:
    """However wide its interval: nothing errs less than not at all."""
    draw = random.Random(11)
    found = skill(judged([0.0] * 19 + [0.1]), judged([draw.uniform(1, 2) for _ in range(20)]), 1)
    assert found is not None
    assert found.high is not None
    assert 0.9 < found.value < found.high <= 1


@pytest.mark.slow
def test_blocks_are_longer_than_forecasts_overlap() -> None:
    """Taken for less dependent than they are, too many would be told apart."""
    draw, told = random.Random(7), [0, 0]
    for _ in range(150):
        one, other = overlapped(draw, 576, 48), overlapped(draw, 576, 48)
        for place, overlapping in enumerate((1, 48)):
            found = skill(one, other, overlapping)
            assert found is not None
            told[place] += found.verdict in {"better", "worse"}
    assert told[0] > 2 * told[1]


@given(st.floats(5, 1e6))
def test_the_threshold_is_the_one_of_the_rate(every: float) -> None:
    assert mean_run_length(threshold_for(every)) == pytest.approx(every, rel=1e-3) or threshold_for(every) < 1e-6


def test_the_run_length_is_that_of_the_tables() -> None:
    """Two-sided, k = 0.5: h = 4 gives 168, h = 5 gives 465 (Montgomery, Statistical Quality Control)."""
    assert mean_run_length(4) == pytest.approx(168, rel=0.02)
    assert mean_run_length(5) == pytest.approx(465, rel=0.02)


def alarms(noise: str, length: int, runs: int, every: float) -> int:
    draw, found = random.Random(11), 0
    for _ in range(runs):
        value, errors = 0.0, []
        for _ in range(200 + length):
            value = 0.4 * value + draw.gauss(0, 1) if noise == "autocorrelated" else draw.gauss(0, 1)
            errors.append(value**3 if noise == "heavy tails" else value)
        found += detect(deviates(errors[200:], errors[:200]), every).alarm is not None
    return found


@pytest.mark.parametrize("noise", ["normal", "heavy tails", "autocorrelated"])
def test_on_noise_alarms_are_no_more_frequent_than_told(noise: str) -> None:
    """In 100 errors at once in 500, at most 1 - exp(-100/500) of the runs; within three binomial deviations above."""
    runs, share = 300, 1 - math.exp(-100 / 500)
    assert alarms(noise, 100, runs, 500) <= runs * share + 3 * math.sqrt(runs * share * (1 - share))


def test_there_are_false_alarms_all_the_same() -> None:
    """Or nothing would ever be found."""
    assert alarms("normal", 100, 300, 20) > 30


@pytest.mark.parametrize("shift", [1.5, -1.5])
def test_a_shift_is_found_soon_with_its_beginning_and_direction(shift: float) -> None:
    draw, delays = random.Random(12), []
    for _ in range(100):
        reference = [draw.gauss(0, 1) for _ in range(200)]
        errors = [draw.gauss(0, 1) for _ in range(40)] + [draw.gauss(shift, 1) for _ in range(60)]
        found = detect(deviates(errors, reference), 1000)
        assert found.alarm is not None
        if found.alarm >= 40:
            assert found.began is not None
            assert found.upward == (shift > 0)
            delays.append(found.alarm - 40)
    assert len(delays) >= 90
    assert sum(delays) / len(delays) < 12


@given(st.lists(st.floats(-1e6, 1e6), min_size=20, max_size=60), st.lists(st.floats(-1e6, 1e6), max_size=20))
def test_scores_depend_on_ranks_alone(reference: list[float], errors: list[float]) -> None:
    scores = normal_scores(errors, reference)
    assert scores == normal_scores([2 * each for each in errors], [2 * each for each in reference])
    assert all(math.isfinite(each) for each in scores)


def test_errors_that_never_differ_are_no_drift() -> None:
    assert detect(deviates([0.0] * 500, [0.0] * 50)).alarm is None
