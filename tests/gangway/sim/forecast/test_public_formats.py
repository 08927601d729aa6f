"""Histories in the formats of those who publish them: hours are made as told, and mistakes have a place."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gangway.components.core.findings import InputError
from gangway.sim.forecast.public_formats import read_history
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
