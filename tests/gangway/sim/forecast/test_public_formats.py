"""Histories in the formats of those who publish them: hours are made as told, and mistakes have a place."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.findings import InputError
from gangway.sim.forecast.public_formats import demand, is_job_log, parse_job_log, read_history
from gangway.sim.forecast.series import MOST_VALUES


def price(zone: str, since: str, usd: str, product: str = "Linux/UNIX", machine: str = "p3.2xlarge") -> dict[str, str]:
    return {
        "AvailabilityZone": zone, "InstanceType": machine, "ProductDescription": product, "SpotPrice": usd,
        "Timestamp": f"2021-05-30T{since}+00:00", "AvailabilityZoneId": "use1-az1",
    }  # fmt: skip


NEWEST_FIRST = [
    price("us-east-1a", "04:00:00", "3.0"),
    price("us-east-1a", "02:30:00", "2.0"),
    price("us-east-1b", "02:00:00", "9.0"),
    price("us-east-1b", "00:00:00", "8.0"),
    price("us-east-1a", "00:10:00", "1.0"),
    price("us-east-1a", "03:10:00", "7.0", product="Windows"),
]


def written(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return path


def prices(path: Path, *rows: dict[str, str]) -> Path:
    return written(path / "prices.json", {"SpotPriceHistory": rows})


def test_a_price_stays_until_another_is_told(tmp_path: Path) -> None:
    series = read_history(prices(tmp_path, *NEWEST_FIRST), "p3.2xlarge/us-east-1a")
    assert (series.name, series.of) == ("usd_per_hour", "p3.2xlarge/us-east-1a")
    assert (series.start, series.values) == (datetime(2021, 5, 30, 1, tzinfo=UTC), (1.0, 1.0, 2.0, 3.0))
    assert "p3.2xlarge/us-east-1a" in series.note


def test_which_price_has_to_be_said_where_there_are_several(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="several machines or zones") as refused:
        read_history(prices(tmp_path, *NEWEST_FIRST))
    assert refused.value.fix == "--column p3.2xlarge/us-east-1a"
    with pytest.raises(InputError, match="no Linux price of that name"):
        read_history(prices(tmp_path, *NEWEST_FIRST), "p3.2xlarge/us-east-1c")
    alone = [row for row in NEWEST_FIRST if row["AvailabilityZone"] == "us-east-1a"]
    assert len(read_history(prices(tmp_path, *alone)).values) == 4


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({"SpotPrice": "cheap"}, "SpotPrice"),
        ({"SpotPrice": "nan"}, "SpotPrice"),
        ({"SpotPrice": "-1"}, "SpotPrice"),
        ({"Timestamp": "2021-05-30T04:00:00"}, "Timestamp"),
        ({"Timestamp": "9999-12-31T23:30:00Z"}, "Timestamp"),
        ({"Timestamp": "9999-12-31T23:30:00-05:00"}, "Timestamp"),
        ({"Timestamp": "0001-01-01T00:30:00+05:00"}, "Timestamp"),
        ({"AvailabilityZone": ""}, "AvailabilityZone"),
    ],
)
def test_a_price_that_makes_no_sense_is_told_with_its_place(tmp_path: Path, row: dict[str, str], field: str) -> None:
    with pytest.raises(InputError) as refused:
        read_history(prices(tmp_path, NEWEST_FIRST[0], {**NEWEST_FIRST[1], **row}))
    assert refused.value.place.endswith(f"SpotPriceHistory.1.{field}")


def test_prices_of_no_time_or_of_windows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="none of Linux"):
        read_history(prices(tmp_path, NEWEST_FIRST[-1]))
    with pytest.raises(InputError, match="less than two hours"):
        read_history(prices(tmp_path, NEWEST_FIRST[0]))
    with pytest.raises(InputError):
        read_history(prices(tmp_path))


def test_as_many_hours_are_made_as_a_series_may_have(tmp_path: Path) -> None:
    rows = (price("a", "04:00:00", "3.0"), {**price("a", "04:00:00", "3.0"), "Timestamp": "2199-12-31T23:30:00Z"})
    with pytest.raises(InputError, match="too many values") as refused:
        read_history(prices(tmp_path, *rows))
    assert isinstance(refused.value.value, int)
    assert refused.value.value > MOST_VALUES
    trace = {"metadata": {"gap_seconds": 3600}, "data": [1] * (MOST_VALUES + 1)}
    with pytest.raises(InputError, match="too many values"):
        read_history(written(tmp_path / "spot.json", trace))


def test_nodes_that_were_there_are_means_of_whole_hours(tmp_path: Path) -> None:
    trace = {"metadata": {"gap_seconds": 1200, "device": "V100"}, "data": [1, 1, 0, 0, 0, 4, 1]}
    series = read_history(written(tmp_path / "spot.json", trace))
    assert (series.name, series.of, series.values) == ("nodes_there", "spot", (2 / 3, 4 / 3))
    assert "without date" in series.note


@pytest.mark.parametrize(
    ("trace", "place"),
    [
        ({"metadata": {"gap_seconds": 0}, "data": [1]}, "metadata.gap_seconds"),
        ({"metadata": {"gap_seconds": 7200}, "data": [1]}, "metadata.gap_seconds"),
        ({"metadata": {}, "data": [1]}, "metadata.gap_seconds"),
        ({"metadata": {"gap_seconds": 60}, "data": [1, "x"]}, "data.1"),
        ({"metadata": {"gap_seconds": 60}, "data": [-1]}, "data.0"),
        ({"metadata": {"gap_seconds": 60}, "data": [1] * 90}, "spot.json"),
    ],
)
def test_a_spot_trace_that_makes_no_sense_is_refused(tmp_path: Path, trace: object, place: str) -> None:
    with pytest.raises(InputError) as refused:
        read_history(written(tmp_path / "spot.json", trace))
    assert refused.value.place.endswith(place)
    assert refused.value.fix


def test_a_job_log_is_demand(tmp_path: Path) -> None:
    rows = "timestamp,duration,num_gpus\n2026-01-01 00:00:00,9000,2\n2026-01-01 03:30:00,60,1\n"
    series = read_history(written(tmp_path / "log.csv", rows))
    assert (series.name, series.of, series.values) == ("gpus_wanted", "log", (2, 1))
    with pytest.raises(InputError, match="--column"):
        read_history(tmp_path / "log.csv", "x")


@pytest.mark.parametrize("content", ["{", "{}", '{"a": 1}', '"x"', "[]"])
def test_other_files_are_read_as_our_own_and_refused_as_such(tmp_path: Path, content: str) -> None:
    with pytest.raises(InputError):
        read_history(written(tmp_path / "other", content))


def test_our_own_formats_are_read_as_ever(tmp_path: Path) -> None:
    rows = [{"time": f"2026-12-01T0{hour}:00Z", "jobs": hour, "gpus": 2 * hour} for hour in range(3)]
    assert read_history(written(tmp_path / "own.json", rows), "gpus").values == (0, 2, 4)
    own = read_history(written(tmp_path / "de.csv", "time,a\n2026-12-01T00:00Z,1\n2026-12-01T01:00Z,2\n"))
    assert (own.name, own.of) == ("a", "de")


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
