"""Curves and fronts as numbers: bands hold their means, later lines win, and nobody on the front is beaten."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.render.drawing import Drawing
from gangway.report.comparison.charts import front_drawing
from gangway.report.comparison.groups import Group, Member
from gangway.report.comparison.series import (
    column,
    find_clear_dominator,
    find_curve,
    find_dominators,
    quality_points,
    watts,
)

Make = Callable[..., Member]
POINTS = st.dictionaries(
    st.text("abcdefgh", min_size=1, max_size=3), st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=9
)


@given(POINTS)
def test_the_front_is_who_nobody_beats_and_all_others_are_beaten_by_one_of_it(
    points: dict[str, tuple[float, float]],
) -> None:
    beaten = find_dominators(points)
    assert beaten.keys() == points.keys()
    for name, by in beaten.items():
        if by is None:
            x, y = points[name]
            assert not [other for other in points.values() if other != (x, y) and other[0] <= x and other[1] <= y]
        else:
            assert beaten[by] is None
            assert points[by] != points[name]
            assert points[by][0] <= points[name][0]
            assert points[by][1] <= points[name][1]


@given(POINTS, st.integers(0, 4))
def test_rows_are_apart_only_where_no_runs_overlap(points: dict[str, tuple[float, float]], reach: int) -> None:
    ranges = {name: ((x - reach, x + reach), (y - reach, y + reach)) for name, (x, y) in points.items()}
    beaten = find_dominators(points)
    for name in points:
        by = find_clear_dominator(name, ranges)
        further = [one for one in points.values() if all(points[name][axis] - one[axis] > 2 * reach for axis in (0, 1))]
        assert (by is not None) == bool(further)
        assert by is None or beaten[name] is not None, "who is beaten apart is beaten by means"


def test_who_is_beaten_by_chance_is_not_told_apart(member_of: Make) -> None:
    def told(dearer: float, spread: float) -> str:
        groups = tuple(
            Group(label, tuple(
                member_of(f"{label}{seed}", seed, factor=factor * (1 + (seed - 1) * spread), usd=factor + seed * spread)
                for seed in (0, 1, 2)
            ), label, "")
            for label, factor in (("a", 1.0), ("b", dearer))
        )  # fmt: skip
        drawing = front_drawing(groups, "usd")
        assert isinstance(drawing, Drawing)
        assert drawing.as_file("svg")
        return drawing.caption

    assert "Half open, behind by means, but runs overlap or are equal: b (behind a)." in told(1.02, 0.5)
    assert "Open, behind in both with every run: b (by a)." in told(2.0, 0.01)
    alone = front_drawing((group(member_of(usd=1.0)),), "usd")
    assert isinstance(alone, Drawing)
    assert "One run alone has no range, and its place may be chance: row." in alone.caption


def line(kimg: float, value: float | None, session: int = 0, **more: Any) -> dict[str, Any]:
    return {"kimg": kimg, "loss_g": value, "session": session, **more}


def group(*members: Member) -> Group:
    return Group("row", members, "local", "")


def test_images_that_were_shown_twice_count_once_and_what_is_no_number_not_at_all(member_of: Make) -> None:
    stats = (line(1, 1.0), line(2, 2.0), line(3, None), line(4, float("nan")), {"event": "resume"}, line(2, 5.0, 1))
    assert column(member_of(stats=stats), "loss_g") == [(1.0, 1.0), (2.0, 5.0)]


def test_a_curve_is_the_mean_of_runs_with_a_band_wherever_their_lines_fall(
    member_of: Make,
) -> None:
    first = member_of(stats=(line(0, 0.0), line(2, 4.0)))
    second = member_of(stats=(line(0, 2.0), line(1, 2.0), line(3, 8.0)))
    curve = find_curve(group(first, second), lambda member: column(member, "loss_g"))
    assert curve is not None
    assert curve.kimg == (0, 1, 2, 3)
    assert curve.low == (0, 2, 4, 8)
    assert curve.high == (2, 2, 5, 8)
    assert curve.mean == (1, 2, 4.5, 8)
    assert find_curve(group(member_of(stats=())), lambda member: column(member, "loss_g")) is None


@given(st.lists(st.tuples(st.integers(0, 5000), st.floats(-100, 100)), min_size=1, max_size=600))
def test_a_long_curve_is_thinned_and_keeps_its_ends(pairs: list[tuple[int, float]]) -> None:
    points = sorted({float(kimg): value for kimg, value in pairs}.items())
    curve = find_curve(Group("row", (None,), "", ""), lambda _: points)  # type: ignore[arg-type]  # the points are given
    assert curve is not None
    assert len(curve.kimg) == min(len(points), 240)
    assert (curve.kimg[0], curve.kimg[-1]) == (points[0][0], points[-1][0])
    assert all(low <= mean <= high for low, mean, high in zip(curve.low, curve.mean, curve.high, strict=True))


def test_power_is_energy_over_time_within_each_session(member_of: Make) -> None:
    stats = (
        line(1, 1, energy_joules=10.0, wall_sec=2.0),
        line(2, 1, energy_joules=30.0, wall_sec=4.0),
        line(3, 1, energy_joules=None, wall_sec=5.0),
        line(4, 1, 1, energy_joules=7.0, wall_sec=1.0),
    )
    assert watts(member_of(stats=stats)) == [(1.0, 5.0), (2.0, 10.0), (4.0, 7.0)]


def test_quality_comes_from_the_record(member_of: Make) -> None:
    member = member_of()
    points = quality_points(member, "FD-ENL0")
    assert [kimg for kimg, _ in points] == [2.048, 4.032, 6.016]
    assert points[-1][1] == pytest.approx(715.286, abs=0.01)
    assert quality_points(member, "FID") == []
