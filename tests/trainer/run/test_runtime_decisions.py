"""How often workers ask each other what they were asked for."""

from hypothesis import given
from hypothesis import strategies as st

from gangway.trainer.run.runtime_decisions import steps_between_votes


@given(step_sec=st.floats(1e-4, 100), num_workers=st.integers(1, 4096))
def test_votes_are_cheap_and_nobody_waits_long_for_one(step_sec: float, num_workers: int) -> None:
    steps = steps_between_votes(step_sec, num_workers)
    assert steps >= 1
    assert steps == 1 or steps * step_sec <= 0.5, "a request is heard within half a second, or after this very step"
    hops_sec = 2 * (num_workers - 1) * 50e-6
    waits_longest = (steps + 1) * step_sec > 0.5
    assert waits_longest or hops_sec / (steps + 1) <= 0.05 * step_sec, "a twentieth of a step, where that is allowed"


def test_few_workers_ask_in_every_step() -> None:
    assert [steps_between_votes(0.002, workers) for workers in (1, 2)] == [1, 1]
    assert [steps_between_votes(0.02, workers) for workers in (8, 64, 512)] == [1, 6, 25]
