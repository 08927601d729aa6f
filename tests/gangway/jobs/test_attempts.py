"""What the end of a start means."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.jobs.base import Phase, after, restart_limit
from tests.gangway.jobs.test_contract import job


@given(st.lists(st.integers(0, 255), max_size=40), st.integers(0, 5), st.booleans())
def test_a_job_is_begun_again_until_it_is_over_and_failures_alone_count(
    codes: list[int], most: int, other_nodes: bool
) -> None:
    failures = 0
    for code in codes:
        step = after(code, failures, most, other_nodes=other_nodes)
        is_failure = code not in (0, 2, 3, 4, 5, 6, 75)
        assert step.failures == failures + is_failure
        assert (step.phase is Phase.DONE) == (code == 0)
        assert (step.phase is Phase.BAD_INPUT) == (code == 2)
        if code == 75:
            assert step.phase is None
        if is_failure:
            assert (step.phase is Phase.FAILED) == (step.failures > most)
        if code == 4:
            assert (step.phase is None) == other_nodes
        assert step.phase in (None, Phase.DONE) or step.reason
        failures = step.failures


@pytest.mark.parametrize(("hours", "failures", "most"), [(0.1, 0, 20), (6, 2, 26), (6.1, 0, 25)])
def test_interruptions_have_an_end_too(hours: float, failures: int, most: int) -> None:
    """Four an hour, and also of a short job 20."""
    assert restart_limit(job("true", max_hours=hours, max_restarts=failures)) == most
