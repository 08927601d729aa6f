"""In which hours to train: as cheap as the best of all subsets of steps, done in time, and never dearer than running
through.
"""

import math
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.finops.forecasts.hours import Ahead, Work, plan_hours

VALUES = st.floats(0, 100, allow_subnormal=False)


@st.composite
def aheads(draw: st.DrawFn, most: int = 7) -> Ahead:
    middle = tuple(draw(st.lists(VALUES, min_size=1, max_size=most)))
    widths = [(draw(st.floats(0, 30)), draw(st.floats(0, 30))) for _ in middle]
    low = tuple(value - below for value, (below, _) in zip(middle, widths, strict=True))
    high = tuple(value + above for value, (_, above) in zip(middle, widths, strict=True))
    return Ahead(draw(st.sampled_from([0.5, 1.0, 2.0])), low, middle, high)


WORKS = st.builds(
    Work,
    hours=st.floats(0.1, 7),
    restart_hours=st.sampled_from([0.0, 0.2, 0.75, 1.5]),
    is_running=st.booleans(),
    most_pauses=st.none() | st.integers(0, 2),
    deadline_hours=st.just(math.inf) | st.floats(0.1, 8),
)


def used_by(steps: tuple[bool, ...], ahead: Ahead, work: Work) -> list[float] | None:
    """Hours used by a job that trains in these steps until it is done; None: too late, or too many pauses."""
    trains, left, used, starts, ended = work.is_running, work.hours, [0.0] * len(steps), 0, 0.0
    for index, on in enumerate(steps):
        if left <= 0:
            break
        left += work.restart_hours if on and not trains else 0.0
        used[index] = min(left, ahead.step_hours) if on else 0.0
        left -= used[index]
        ended = index * ahead.step_hours + used[index]
        starts += on and not trains
        trains = on
    pauses = starts if work.is_running else starts - 1
    too_often = work.most_pauses is not None and pauses > work.most_pauses
    too_late = ended > work.deadline_hours + 1e-9
    return None if left > 1e-9 or too_often or too_late else used


def cheapest(ahead: Ahead, work: Work) -> float | None:
    """Of all subsets of the steps."""
    ways = [used_by(steps, ahead, work) for steps in product([False, True], repeat=len(ahead.middle))]
    return min((ahead.cost(way) for way in ways if way is not None), default=None)


@given(aheads(), WORKS)
def test_as_cheap_as_the_best_subset(ahead: Ahead, work: Work) -> None:
    found = plan_hours(ahead, work)
    assert (None if found is None else found.cost) == pytest.approx(cheapest(ahead, work), abs=1e-6)


@given(aheads(), WORKS)
def test_the_hours_told_do_the_work(ahead: Ahead, work: Work) -> None:
    found = plan_hours(ahead, work)
    if found is not None:
        told = used_by(tuple(hours > 0 for hours in found.used), ahead, work)
        assert told == pytest.approx(found.used)
        assert sum(hours for _, hours in found.stints) == pytest.approx(sum(found.used))
        assert found.cost <= found.through_cost + 1e-9


@given(aheads(), WORKS, st.data())
def test_whatever_comes_within_its_intervals_saves_within_the_savings(
    ahead: Ahead, work: Work, data: st.DataObject
) -> None:
    found = plan_hours(ahead, work)
    if found is None:
        return
    came = [data.draw(st.floats(low, high)) for low, high in zip(ahead.low, ahead.high, strict=True)]
    truth = replace(ahead, middle=tuple(came))
    low, middle, high = found.saving
    assert low <= middle + 1e-9
    assert middle <= high + 1e-9
    assert low - 1e-6 <= truth.cost(found.through) - truth.cost(found.used) <= high + 1e-6


@given(aheads(), WORKS, VALUES)
def test_a_later_deadline_is_never_dearer(ahead: Ahead, work: Work, value: float) -> None:
    later = Ahead(ahead.step_hours, (*ahead.low, value), (*ahead.middle, value), (*ahead.high, value))
    found, with_more = plan_hours(ahead, work), plan_hours(later, work)
    if found is not None:
        assert with_more is not None
        assert with_more.cost <= found.cost + 1e-6


@given(aheads(), WORKS)
def test_dearer_restarts_are_never_cheaper(ahead: Ahead, work: Work) -> None:
    found, dearer = plan_hours(ahead, work), plan_hours(ahead, replace(work, restart_hours=work.restart_hours + 0.3))
    if found is not None and dearer is not None:
        assert dearer.cost >= found.cost - 1e-6


@given(aheads(), WORKS, st.sampled_from([0.25, 8.0]))
def test_another_currency_changes_no_hour(ahead: Ahead, work: Work, factor: float) -> None:
    low, middle, high = ([value * factor for value in part] for part in (ahead.low, ahead.middle, ahead.high))
    found = plan_hours(ahead, work)
    scaled = plan_hours(Ahead(ahead.step_hours, tuple(low), tuple(middle), tuple(high)), work)
    assert (found and found.used) == (scaled and scaled.used)


@given(aheads(), WORKS)
def test_what_runs_through_in_time_fits(ahead: Ahead, work: Work) -> None:
    """Also until a deadline within a step."""
    takes = work.hours + (0 if work.is_running else work.restart_hours)
    found = plan_hours(ahead, replace(work, deadline_hours=takes))
    assert (found is not None) == (takes <= ahead.step_hours * len(ahead.middle) + 1e-9)
    if found is not None:
        assert found.used == found.through


def test_no_pause_where_all_hours_are_alike() -> None:
    alike = (3.0,) * 12
    found = plan_hours(Ahead(1.0, alike, alike, alike), Work(hours=5.5))
    assert found is not None
    assert found.stints == ((0, 5.5),)
    assert found.saving == (0, 0, 0)


def test_a_restart_that_takes_more_than_it_saves_is_not_made() -> None:
    """Two valleys of two hours, one hour of a hill between: worth going through only where starting takes long."""
    valleys = (1.0, 1.0, 2.0, 1.0, 1.0)
    ahead = Ahead(1.0, valleys, valleys, valleys)
    for restart_hours, stints in ((0.0, ((0, 2.0), (3, 2.0))), (1.5, ((0, 4.0),))):
        found = plan_hours(ahead, Work(4.0, restart_hours, is_running=True))
        assert found is not None
        assert found.stints == stints


@pytest.mark.slow
def test_two_weeks_of_hours_are_looked_through() -> None:
    day = [20 + 10 * abs(12 - hour % 24) / 12 for hour in range(336)]
    ahead = Ahead(1.0, tuple(day), tuple(day), tuple(day))
    found = plan_hours(ahead, Work(100, restart_hours=1 / 6))
    assert found is not None
    assert len(found.stints) == 14, "every noon"
