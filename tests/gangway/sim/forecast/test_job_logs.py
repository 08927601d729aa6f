"""Logs of clusters' jobs in three published formats, and the demand that they tell of."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.findings import InputError
from gangway.sim.forecast.job_logs import demand, is_job_log, parse_job_log

PHILLY = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 10:00:00,9000.0,2,18000.0,11cb48
2017-10-09 08:30:00,3600.0,1,3600.0,6214e9
2017-10-09 09:00:00,0.0,4,0.0,6214e9
2017-10-09 13:10:00,60.0,1,60.0,6214e9
"""
HELIOS = """job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
1,ua,v1,2,4,1,COMPLETED,2020-06-09 18:00:00,2020-06-09 19:00:00,2020-06-09 20:30:00,5400,3600
2,ub,v1,0,4,1,COMPLETED,2020-06-09 18:00:00,2020-06-09 18:00:00,2020-06-09 20:30:00,9000,0
3,ub,v1,8,4,1,CANCELLED,2020-06-09 19:00:00,,2020-06-09 19:30:00,0,1800
4,uc,v1,1,4,1,COMPLETED,2020-06-09 21:30:00,2020-06-09 21:30:00,2020-06-09 21:40:00,600,0
"""
ALIBABA = """name,cpu_milli,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
p0,6000,1,500,,LS,Running,0,7200,1800
p1,6000,8,1000,,BE,Running,3600,10800,3600
p2,6000,0,0,,LS,Running,3600,10800,3600
p3,6000,1,1000,,BE,Pending,14400,14500,
p4,6000,1,1000,,BE,Failed,18000,18100,18000
"""


def test_philly_is_a_run_from_its_submission_on() -> None:
    log = parse_job_log(PHILLY, "log")
    assert [(job.submitted.hour, job.gpus, job.run_sec, job.group) for job in log.jobs] == [
        (8, 1, 3600, "6214e9"), (10, 2, 9000, "11cb48"), (13, 1, 60, "6214e9"),
    ]  # fmt: skip
    assert "1 without GPUs or length left out" in log.note
    series = demand(log, "log")
    assert (series.start, series.values) == (datetime(2017, 10, 9, 9, tzinfo=UTC), (0.5, 2, 2, 1))


def test_helios_waits_count_as_demand_and_not_as_run() -> None:
    log = parse_job_log(HELIOS, "log")
    assert [(job.run_sec, job.gpus, job.group) for job in log.jobs] == [(5400, 2, "ua"), (600, 1, "uc")]
    assert demand(log, "log").values == (2, 1)


def test_alibaba_has_shares_of_gpus_and_no_date() -> None:
    log = parse_job_log(ALIBABA, "log")
    assert [(job.run_sec, job.gpus) for job in log.jobs] == [(5400, 0.5), (7200, 8), (100, 1)]
    assert demand(log, "log").values == (8.5, 8, 0, 0)


@given(st.lists(st.tuples(st.integers(0, 90), st.integers(1, 600), st.integers(1, 8)), min_size=1, max_size=20))
def test_all_the_gpu_hours_that_fall_into_the_hours_are_demand(jobs: list[tuple[int, int, int]]) -> None:
    """Minutes from 00:00, a job before and one long after, so that every hour from 01:00 on is counted."""
    rows = [(0, 1, 1), *jobs, (60 * 23 - 1, 1, 1)]
    text = "timestamp,duration,num_gpus\n" + "".join(
        f"2026-01-01T{begin // 60:02}:{begin % 60:02}:00,{60 * length},{gpus}\n" for begin, length, gpus in rows
    )
    expected = sum(gpus * max(0, begin + length - max(begin, 60)) / 60 for begin, length, gpus in rows[:-1])
    assert sum(demand(parse_job_log(text, "log"), "log").values) == pytest.approx(expected)


def test_our_own_columns_are_no_log() -> None:
    assert not is_job_log("name,submit_hours,gpus,hours\n")
    assert not is_job_log("time,g_per_kwh\n")
    assert is_job_log(PHILLY)


@pytest.mark.parametrize(
    "row",
    ["yesterday,9000.0,2,1,a", "2017-10-09 10:00:00,long,2,1,a", "2017-10-09 10:00:00,nan,2,1,a",
     "9999-12-31 23:30:00,10,1,1,a",
     "2017-10-09 10:00:00,10,-1,1,a", "2017-10-09 10:00:00,10,inf,1,a", "2017-10-09 10:00:00"],
)  # fmt: skip
def test_a_row_that_makes_no_sense_is_told_with_its_line(row: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_job_log(f"{PHILLY}{row}\n", "log")
    assert refused.value.place == "log, line 6"
    assert refused.value.fix


def test_seconds_of_another_age_are_told_with_their_line() -> None:
    first = ALIBABA.splitlines()[0]
    with pytest.raises(InputError, match="no job") as refused:
        parse_job_log(f"{first}\np0,6000,1,500,,LS,Running,252455615900,252455615999,\n", "log")
    assert refused.value.place == "log, line 2"


def test_blanks_and_quotes_around_the_columns_are_none_of_their_names() -> None:
    head, rows = PHILLY.split("\n", maxsplit=1)
    for first in (head.replace(",", " , "), f'"{head.replace(",", chr(34) + "," + chr(34))}"', f'{head},"open'):
        text = f"{first}\n{rows}"
        assert is_job_log(text)
        assert parse_job_log(text, "log") == parse_job_log(PHILLY, "log")


def test_a_quote_that_is_not_closed_is_told_with_the_line_where_its_row_begins() -> None:
    with pytest.raises(InputError, match="no CSV") as refused:
        parse_job_log(f'{PHILLY}"2017-10-09 10:00:00,10,1,1,a\n{"x" * 200_000}\n', "log")
    assert refused.value.place == "log, line 6"
    assert not is_job_log('"' + "x" * 200_000)


def test_a_log_without_jobs_or_hours_is_refused() -> None:
    head = PHILLY.splitlines()[0]
    with pytest.raises(InputError, match="no job that had GPUs"):
        parse_job_log(f"{head}\n", "log")
    with pytest.raises(InputError, match="too short or too long"):
        demand(parse_job_log(f"{head}\n2017-10-09 10:00:00,10,1,1,a\n", "log"), "log")
    years = f"{head}\n2017-10-09 10:00:00,10,1,1,a\n2027-10-09 10:00:00,10,1,1,a\n"
    with pytest.raises(InputError, match="too short or too long"):
        demand(parse_job_log(years, "log"), "log")
