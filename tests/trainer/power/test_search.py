"""The search for the limit with the most images per joule, on boards whose curves are known."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.trainer.power.search import LADDER, Search, Step

Curve = Callable[[float], tuple[float, float]]


class Job:
    """A job whose speed and power follow from the limit; time passes by its lines."""

    def __init__(self, curve: Curve, line_sec: float = 2.0) -> None:
        self.curve, self.line_sec = curve, line_sec
        self.images, self.wall_sec, self.joules, self.resolution = 0.0, 0.0, 0.0, 32
        self.share = 1.0

    def line(self, sec: float | None = None) -> dict[str, Any]:
        images_per_sec, watts = self.curve(self.share)
        self.wall_sec += sec or self.line_sec
        self.images += images_per_sec * self.line_sec  # with `sec`, something else took the rest of the time
        self.joules += watts * (sec or self.line_sec)
        return {
            "images": self.images,
            "wall_sec": self.wall_sec,
            "energy_joules": self.joules,
            "resolution": self.resolution,
        }

    def run(self, search: Search, lines: int = 500) -> Iterator[Step]:
        for _ in range(lines):
            if step := search.see(self.line()):
                self.share = step.share
                yield step


def compute_bound(share: float) -> tuple[float, float]:
    """Speed falls with the cube root of power below 80 %, as of a board that is at its limit."""
    return 1000 * min(1.0, (share / 0.8) ** (1 / 3)), 700 * min(share, 0.95)


def test_the_most_efficient_limit_within_the_slowdown_is_chosen() -> None:
    search = Search(LADDER, max_slowdown=0.05)
    steps = list(Job(compute_bound).run(search))
    assert [step.share for step in steps[:-1]] == [0.9, 0.8, 0.7, 0.6]
    last = steps[-1]
    # 0.7 is 4.4 % slower and makes 1000*0.9565/490 = 1.95 images/J; 0.6 would make more, and is 9 % slower.
    assert (last.share, last.done) == (0.7, True)
    assert "+29.8%" in last.reason, last.reason
    assert [each.share for each in search.measured] == [1.0, 0.9, 0.8, 0.7, 0.6], "0.5 can only be slower still"
    assert search.measured[0].images_per_sec == pytest.approx(1000)
    assert search.measured[0].images_per_joule == pytest.approx(1000 / 665)


def test_without_any_slowdown_allowed_the_last_limit_at_full_speed_wins() -> None:
    assert list(Job(compute_bound).run(Search(LADDER, 0.0)))[-1].share == 0.8


def test_a_board_that_never_reaches_its_limit_keeps_it() -> None:
    def idle(share: float) -> tuple[float, float]:
        return 500.0, 200.0

    last = list(Job(idle).run(Search(LADDER, 0.05)))[-1]
    assert last.share == 1.0, "of equal limits the highest: it costs nothing and bounds nothing"


def test_a_window_lasts_as_long_as_it_says_whatever_the_lines_are_like() -> None:
    for line_sec in (0.05, 2.0, 30.0):
        job = Job(compute_bound, line_sec)
        first = next(job.run(Search((1.0, 0.5), 0.5, window_sec=20.0), lines=10_000))
        assert first.share == 0.5
        assert job.wall_sec >= 20.0
        # five samples are the least, and some seconds are left out at first
        assert job.wall_sec <= max(30.0, 7 * line_sec)


def test_one_checkpoint_in_a_window_does_not_decide() -> None:
    job, search = Job(compute_bound), Search((1.0, 0.9), 0.01)
    steps = []
    for number in range(40):
        # the same images, in five times the time
        if step := search.see(job.line(10.0 if number in (5, 20) else None)):
            job.share = step.share
            steps.append(step)
    assert search.measured[0].images_per_sec == pytest.approx(1000)
    assert steps[-1].share == 0.9


def test_another_resolution_is_another_job() -> None:
    job, search = Job(compute_bound), Search(LADDER, 0.05)
    steps = job.run(search)
    next(steps)
    assert next(steps).share == 0.8
    job.resolution = 64
    again = next(steps)
    assert (again.share, again.done) == (1.0, False)
    assert "starts over" in again.reason
    assert search.measured == []
    assert list(steps)[-1].done
    job.resolution = 128
    assert search.see(job.line()) is not None, "also after it was done"


def test_a_counter_that_stands_still_gives_no_sample() -> None:
    job, search = Job(lambda share: (1000.0, 0.0)), Search(LADDER, 0.05)
    assert list(job.run(search)) == []


@pytest.mark.slow
@given(
    speeds=st.lists(st.floats(1, 1000), min_size=6, max_size=6).map(lambda values: sorted(values, reverse=True)),
    watts=st.lists(st.floats(50, 700), min_size=6, max_size=6).map(lambda values: sorted(values, reverse=True)),
    bound=st.floats(0, 0.9),
)
def test_the_choice_is_never_slower_than_allowed_and_never_worse_than_the_start(
    speeds: list[float], watts: list[float], bound: float
) -> None:
    curve = dict(zip(LADDER, zip(speeds, watts, strict=True), strict=True))
    search = Search(LADDER, bound)
    last = list(Job(lambda share: curve[share]).run(search))[-1]
    assert last.done
    speed, power = curve[last.share]
    assert speed >= speeds[0] * (1 - bound) * (1 - 1e-9)
    assert speed / power >= speeds[0] / watts[0] * (1 - 1e-9)
    tried = [each.share for each in search.measured]
    assert tried == list(LADDER[: len(tried)])
    assert all(earlier > later for earlier, later in pairwise(tried))
