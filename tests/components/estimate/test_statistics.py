"""Paired comparisons: by hand, by simulation with fixed seeds, and where figures are missing, zero or all alike."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.estimate.statistics import FEWEST_PAIRS, Comparison, Pair, compare_pairs, correct

FIGURES = st.floats(min_value=1e-6, max_value=1e6)
Draw = Callable[[random.Random], float]
DRAWS: dict[str, Draw] = {
    "normal": lambda draw: draw.gauss(0, 1),
    "skewed": lambda draw: (draw.gammavariate(4, 1) - 4) / 2,  # a skewness of 1
}


def compared(pairs: Sequence[Pair], *, as_difference: bool = False) -> Comparison:
    found = compare_pairs([pairs], as_difference=as_difference)
    assert found is not None
    return found


def changed(draw: random.Random, number: int, mean: float, noise: Draw = DRAWS["normal"]) -> list[Pair]:
    """Pairs whose controls scatter e-fold, and whose log ratios by a twentieth around `mean`."""
    controls = [draw.lognormvariate(0, 1) for _ in range(number)]
    return [(one, one * math.exp(mean + 0.05 * noise(draw))) for one in controls]


def near(share: float, expected: float, trials: int) -> bool:
    """Within four standard errors."""
    return abs(share - expected) <= 4 * math.sqrt(expected * (1 - expected) / trials)


def test_by_hand() -> None:
    """Log ratios of -0.3 to 0.2: their mean is -0.05, their deviation 0.187, and Student's quantile of five 2.571."""
    logs = [-0.3, -0.2, -0.1, 0.0, 0.1, 0.2]
    found = compared([(10.0, 10 * math.exp(one)) for one in logs])
    half = 2.5706 * 0.187083 / math.sqrt(6)
    assert found.change == pytest.approx(math.expm1(-0.05))
    assert [found.low, found.high] == pytest.approx([math.expm1(-0.05 - half), math.expm1(-0.05 + half)], rel=1e-3)
    assert (found.least, found.greatest) == pytest.approx((math.expm1(-0.3), math.expm1(0.2)))
    assert found.p_value == pytest.approx(0.5415, abs=1e-3)
    assert (found.direction, found.verdict()) == (0, "no difference shown")


@pytest.mark.slow
@pytest.mark.parametrize("noise", DRAWS.values(), ids=DRAWS)
@pytest.mark.parametrize("number", [6, 10, 30])
def test_the_interval_holds_the_truth_in_95_of_100(number: int, noise: Draw) -> None:
    draw, trials, held = random.Random(number), 3000, 0
    for _ in range(trials):
        found = compared(changed(draw, number, -0.1, noise))
        assert found.low is not None
        assert found.high is not None
        held += found.low <= math.expm1(-0.1) <= found.high
    assert 0.93 <= held / trials <= 0.97


@pytest.mark.slow
@pytest.mark.parametrize("noise", DRAWS.values(), ids=DRAWS)
@pytest.mark.parametrize("number", [6, 12])
def test_a_table_without_a_difference_makes_a_claim_5_times_in_100_at_most(number: int, noise: Draw) -> None:
    """Eight columns that share half of their noise; both arms are drawn alike."""
    draw, trials, wrong, alone = random.Random(20 + number), 1000, 0, 0
    for _ in range(trials):
        shared = [(noise(draw), noise(draw)) for _ in range(number)]
        table: dict[int, Comparison | None] = {
            column: compared([(math.exp(a + noise(draw)), math.exp(b + noise(draw))) for a, b in shared])
            for column in range(8)
        }
        wrong += any(one is not None and one.direction for one in correct(table).values())
        alone += any(one is not None and one.direction for one in table.values())
    assert wrong / trials <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / trials)
    assert alone / trials > 0.15, "without the correction"


@given(st.lists(st.tuples(FIGURES, FIGURES), min_size=1, max_size=FEWEST_PAIRS - 1))
def test_fewer_than_six_pairs_claim_nothing(pairs: list[Pair]) -> None:
    found = compared(pairs)
    assert (found.low, found.high, found.p_value, found.direction) == (None, None, None, 0)
    assert found.verdict() == f"too few pairs for a claim: {len(pairs)} of 6"
    both = compare_pairs([pairs, [(1.0, 0.1 + each / 99) for each in range(20)]])
    assert both is not None
    assert both.direction == 0, "nor do they with another group that has enough"


@given(st.lists(st.tuples(FIGURES, FIGURES), min_size=6, max_size=20))
def test_arms_change_places(pairs: list[Pair]) -> None:
    there, back = compared(pairs), compared([(other, one) for one, other in pairs])
    assert (1 + there.change) * (1 + back.change) == pytest.approx(1)
    assert there.p_value == pytest.approx(back.p_value)
    assert there.direction == -back.direction


@pytest.mark.parametrize(("number", "claim"), [(5, 0), (6, -1), (9, -1)])
def test_pairs_that_change_alike_have_no_interval_of_no_width(number: int, claim: int) -> None:
    """Their spread is not known: six of one sign are what sign flips need, rounding or not."""
    for pairs in ([(10.0, 9.0)] * number, [(10.0 * n, 9.0 * n) for n in range(1, number + 1)]):
        found = compared(pairs)
        assert (found.low, found.high, found.direction) == (None, None, claim)
        assert found.p_value == (pytest.approx(2.0 ** (1 - number)) if claim else None)
    assert compared([(0.1 + 0.2, 0.3)] * 9).direction == 0, "equal but for rounding"
    assert compared([(0.0, 0.0)] * 9).p_value == 1


def test_six_alike_do_not_stand_in_a_table_of_several() -> None:
    table = {place: compare_pairs([[(10.0, 9.0)] * 6]) for place in range(2)}
    assert [one.direction for one in correct(table).values() if one is not None] == [0, 0]


@pytest.mark.parametrize("figure", [0.0, -1.0])
def test_a_figure_that_is_not_positive_makes_them_differences(figure: float) -> None:
    pairs: list[Pair] = [(2.0, 3.0 + n / 10) for n in range(6)]
    assert compared(pairs).is_relative
    for odd in ((figure, 1.0), (1.0, figure)):
        found = compared([*pairs, odd])
        assert not found.is_relative
        assert found.change == pytest.approx((sum(1 + n / 10 for n in range(6)) + odd[1] - odd[0]) / 7)
    assert compared(pairs, as_difference=True).change == pytest.approx(1.25)
    assert compared([(1e-300 * n, 2e-300 * n) for n in range(8)]).direction == 1, "whatever their unit"


@pytest.mark.parametrize("figure", [None, math.nan, math.inf])
def test_missing_pairs_are_left_out_and_counted(figure: float | None) -> None:
    found = compared([(1.0, 2.0), (1.0, figure), (figure, 1.0), (2.0, 3.0)])
    assert (found.pairs, found.missing) == (2, 2)
    assert "2 missing" in found.text()
    assert compare_pairs([[(1.0, figure)], []]) is None


def test_each_group_weighs_as_its_control() -> None:
    groups: list[list[Pair]] = [[(100.0, 50.0)] * 2, [(10.0, 10.0)] * 4]
    found = compare_pairs(groups)
    assert found is not None
    assert found.change == pytest.approx(60 / 110 - 1)
    assert (found.pairs, found.fewest) == (6, 2)
    assert compare_pairs([*groups, []]) == found


def test_the_interval_of_a_sum_holds_the_truth() -> None:
    """Three groups whose noise differs fifteen-fold."""
    draw, trials, held = random.Random(7), 2000, 0
    parts = ((100, -0.5, 0.02, 6), (20, 0.1, 0.3, 8), (5, 0.0, 0.1, 6))
    truth = sum(base * math.exp(mean) for base, mean, _, _ in parts) / 125 - 1
    for _ in range(trials):
        found = compare_pairs([
            [(base, base * math.exp(draw.gauss(mean, spread))) for _ in range(number)]
            for base, mean, spread, number in parts
        ])  # fmt: skip
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        held += found.low <= truth <= found.high
    assert near(held / trials, 0.95, trials)


def test_holm_by_hand() -> None:
    draw = random.Random(3)
    one = compared(changed(draw, 8, 0.0))
    values = {"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005}
    family: dict[str, Comparison | None] = {key: replace(one, p_value=value) for key, value in values.items()}
    found = correct({**family, "none": None, "few": compared([(1.0, 2.0)])})
    assert list(found) == [*values, "none", "few"]
    expected = {"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02}
    assert {key: each.p_value for key, each in found.items() if each and each.p_value} == pytest.approx(expected)
