"""What Slurm is asked for, without one: minutes and its own way of writing them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacks.config.job_file import JobFile
from stacks.engines.slurm.script import max_hours_of, minutes_in, minutes_of


@pytest.mark.parametrize(
    ("limit", "minutes"),
    [
        ("infinite", None),
        ("30:00", 30),
        ("4:30:00", 270),
        ("1-02:30:00", 1590),
        ("2-00:00:00", 2880),
        ("UNLIMITED", None),
    ],
)
def test_a_limit_is_read_as_slurm_writes_it(limit: str, minutes: int | None) -> None:
    assert minutes_in(limit) == minutes


@given(st.integers(1, 60 * 24 * 28), st.integers(1, 3600))
def test_the_hours_that_are_proposed_fit(minutes: int, grace_sec: int) -> None:
    job = JobFile(name="a", command=("true",), max_hours=1, grace_sec=grace_sec)
    hours = max_hours_of(job, minutes)
    if hours > 0:
        assert minutes_of(job.model_copy(update={"max_hours": hours})) <= minutes
        assert minutes_of(job.model_copy(update={"max_hours": hours + 0.02})) > minutes - 1
