"""The history's file: read as it is or refused with the line, never filled in, sorted or cut."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.findings import InputError
from gangway.sim.forecast.series import Series, parse_series, read_series

START = datetime(2026, 12, 1, tzinfo=UTC)
HOURS = ["2026-12-01T00:00Z", "2026-12-01T01:00Z", "2026-12-01T02:00Z", "2026-12-01T03:00Z"]


def csv_of(*rows: tuple[str, str], head: str = "time,g_per_kwh") -> str:
    return "\n".join([head, *(f"{time},{value}" for time, value in rows), ""])


def refused(text: str, column: str | None = None) -> InputError:
    with pytest.raises(InputError) as error:
        parse_series(text, "grid.csv", column)
    return error.value


def test_csv_and_json_say_the_same() -> None:
    rows = list(zip(HOURS, ["310", "300.5", "1e2", "0"], strict=True))
    points = ", ".join(f'{{"time": "{time}", "g_per_kwh": {value}}}' for time, value in rows)
    expected = Series("g_per_kwh", START, timedelta(hours=1), (310, 300.5, 100, 0))
    assert parse_series(csv_of(*rows), "grid.csv") == parse_series(f"[{points}]", "grid.json") == expected


def test_other_zones_of_time_are_brought_to_utc() -> None:
    series = parse_series(csv_of(("2026-12-01T01:00+01:00", "1"), ("2026-11-30T20:00-05:00", "2")), "grid.csv")
    assert (series.start, series.step) == (START, timedelta(hours=1))


def test_one_of_several_columns_is_named() -> None:
    text = "time,g_per_kwh,usd\n" + "\n".join(f"{time},{index},{10 * index}" for index, time in enumerate(HOURS))
    assert parse_series(text, "grid.csv", "usd").values == (0, 10, 20, 30)
    assert refused(text).fix == "--column g_per_kwh"
    assert refused(text, "us").fix == "did you mean 'usd'?"


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40),
    st.integers(1, 10**6),
    st.sampled_from(["", "SIMULATED: a\nb"]),
)
def test_what_is_written_is_read_back(values: list[float], seconds: int, note: str) -> None:
    kept = tuple(float(f"{value:.10g}") for value in values)
    series = Series("jobs", START, timedelta(seconds=seconds), kept, note)
    assert parse_series(series.write_csv(), "x.csv") == series


BAD = {
    "no header": (csv_of((HOURS[0], "1"), head="when,jobs"), "grid.csv", "no column 'time'", "name the times"),
    "no values": ("time\n", "grid.csv", "no column of values", "add one"),
    "nothing": ("", "grid.csv", "no column 'time'", ""),
    "one value": (csv_of((HOURS[0], "1")), "grid.csv", "1 value(s)", "more of its history"),
    "no zone": (csv_of(("2026-12-01T00:00", "1")), "grid.csv, line 2: time", "no time zone", "write 2026-12-01T00:00Z"),
    "no time": (csv_of(("yesterday", "1")), "grid.csv, line 2: time", "no time", "write 2026"),
    "year 1": (csv_of(("0001-01-01T00:00+14:00", "1")), "grid.csv, line 2: time", "no time", "write 2026"),
    "year 9999": (csv_of(("9999-12-31T23:00Z", "1")), "grid.csv, line 2: time", "no time", "write 2026"),
    "huge": (csv_of((HOURS[0], "1e300")), "grid.csv, line 2: g_per_kwh", "no number", "put what was"),
    "NaN": (csv_of((HOURS[0], "1"), (HOURS[1], "nan")), "grid.csv, line 3: g_per_kwh", "no number", "put what was"),
    "infinite": (csv_of((HOURS[0], "inf")), "grid.csv, line 2: g_per_kwh", "no number", "put what was"),
    "empty cell": (csv_of((HOURS[0], "")), "grid.csv, line 2: g_per_kwh", "no number", "put what was"),
    "cells": (csv_of((HOURS[0], "1,2")), "grid.csv, line 2", "3 cells", "correct the line"),
    "after a comment": ("# x\n" + csv_of((HOURS[0], "x")), "grid.csv, line 3: g_per_kwh", "no number", "put what was"),
    "backwards": (
        csv_of((HOURS[1], "1"), (HOURS[0], "1")), "grid.csv, line 3: time", "the clock goes back", "sort the rows",
    ),
    "twice": (
        csv_of((HOURS[0], "1"), (HOURS[0], "1")), "grid.csv, line 3: time", "a second value for the time",
        "leave one of the two out",
    ),
    "a gap": (
        csv_of((HOURS[0], "1"), (HOURS[1], "1"), (HOURS[3], "1"), ("2026-12-01T04:00Z", "1")),
        "grid.csv, line 4: time", "a gap: 1 value is lacking", "add what was measured",
    ),
    "irregular": (
        csv_of((HOURS[0], "1"), (HOURS[1], "1"), ("2026-12-01T01:20Z", "1"), ("2026-12-01T02:20Z", "1")),
        "grid.csv, line 4: time", "irregular: 20 min after", "bring all values to steps of 1 h",
    ),
    "no JSON": ("[{]", "grid.csv", "no JSON", "correct the file"),
    "no list": ("{}", "grid.csv", "no list of objects", "one object for each time"),
    "no value": ('[{"time": "2026-12-01T00:00Z", "x": 1}, {"time": "2026-12-01T01:00Z"}]', "grid.csv[1]", "lacks 'x'",
                 "add 'x'"),
    "true": ('[{"time": "2026-12-01T00:00Z", "x": true}]', "grid.csv[0]: x", "no number", "put what was measured"),
    "JSON's NaN": ('[{"time": "2026-12-01T00:00Z", "x": NaN}]', "grid.csv[0]: x", "no number", "put what was measured"),
    "quotes": ('time,x\n"2026', "grid.csv, line 2", "no CSV", "correct the line"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_a_bad_file_is_refused_with_place_and_fix(what: str) -> None:
    text, place, problem, fix = BAD[what]
    error = refused(text)
    assert (error.place, problem in error.problem, fix in error.fix) == (place, True, True), str(error)
    assert error.allowed


def test_what_is_no_text_and_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"time,x\n\xff")
    with pytest.raises(InputError, match="byte 7 is not UTF-8"):
        read_series(tmp_path / "a.csv")
    with pytest.raises(InputError, match="No such file"):
        read_series(tmp_path / "b.csv")
    (tmp_path / "c.csv").write_bytes(b"\xef\xbb\xbf" + csv_of((HOURS[0], "1"), (HOURS[1], "2")).encode())
    assert read_series(tmp_path / "c.csv").values == (1, 2)


def test_a_name_that_cannot_be_seen_is_spelled_out() -> None:
    text = csv_of((HOURS[0], "1"), (HOURS[1], "2"), head="time,a\x1bb")
    assert parse_series(text, "grid.csv").name == r"a\x1bb"


def test_times_of_values() -> None:
    series = Series("jobs", START, timedelta(hours=1), (1.0, 2.0, 3.0))
    assert series.find_time(3) == START + timedelta(hours=3)
    assert [series.find_index(START + timedelta(minutes=at)) for at in (-60, 0, 30, 120, 180)] == [
        None,
        0,
        None,
        2,
        None,
    ]
