"""Forecasts of carbon intensity: files, the answers of three services (hand-made in their documented shapes), HTTP."""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.trainer.core.errors import TrainerError
from gangway.trainer.power.forecast import PRICE, Forecast, Interval, parse_forecast, read_forecast

MIDNIGHT = datetime(2026, 12, 1, tzinfo=UTC)
CSV = "time,g_per_kwh\n2026-12-01T00:00Z,300\n2026-12-01T01:00Z,100\n2026-12-01T03:00+01:00,200\n"
OWN = [
    {"time": "2026-12-01T02:00Z", "g_per_kwh": 200},
    {"time": "2026-12-01T00:00:00Z", "g_per_kwh": 300},
    {"time": "2026-12-01T01:00:00+00:00", "g_per_kwh": 100},
]
ELECTRICITY_MAPS = {
    "zone": "DE",
    "forecast": [
        {"carbonIntensity": 300, "datetime": "2026-12-01T00:00:00.000Z"},
        {"carbonIntensity": 100, "datetime": "2026-12-01T01:00:00.000Z"},
        {"carbonIntensity": 200, "datetime": "2026-12-01T02:00:00.000Z"},
    ],
    "updatedAt": "2026-11-30T23:45:00.000Z",
}
CARBON_AWARE_SDK = [
    {
        "generatedAt": "2026-11-30T23:55:00+00:00",
        "location": "eastus",
        "windowSize": 60,
        "optimalDataPoints": [],
        "forecastData": [
            {"location": "PJM", "timestamp": "2026-12-01T00:00:00+00:00", "duration": 60, "value": 300},
            {"location": "PJM", "timestamp": "2026-12-01T01:00:00+00:00", "duration": 60, "value": 100},
            {"location": "PJM", "timestamp": "2026-12-01T02:00:00+00:00", "duration": 60, "value": 200},
        ],
    }
]


def _hours(*values: float) -> tuple[Interval, ...]:
    hour = timedelta(hours=1)
    return tuple(Interval(MIDNIGHT + n * hour, MIDNIGHT + (n + 1) * hour, g) for n, g in enumerate(values))


@pytest.mark.parametrize(
    "text", [CSV, *(json.dumps(value) for value in (OWN, ELECTRICITY_MAPS, CARBON_AWARE_SDK, CARBON_AWARE_SDK[0]))]
)
def test_every_shape_says_the_same(text: str) -> None:
    assert parse_forecast(text.encode(), "f") == Forecast(_hours(300, 100, 200), "f")


def test_watttime_is_in_pounds_a_megawatt_hour() -> None:
    answer: dict[str, Any] = {
        "data": [
            {"point_time": "2026-12-01T00:00:00+00:00", "value": 1000.0},
            {"point_time": "2026-12-01T00:05:00+00:00", "value": 500.0},
        ],
        "meta": {"region": "CAISO_NORTH", "signal_type": "co2_moer", "units": "lbs_co2_per_mwh"},
    }
    first, second = parse_forecast(json.dumps(answer).encode(), "f").intervals
    assert first.value == pytest.approx(453.59237)
    assert second.end - second.start == timedelta(minutes=5)
    answer["meta"]["units"] = "percentile"
    with pytest.raises(TrainerError, match="signal_type=co2_moer"):
        parse_forecast(json.dumps(answer).encode(), "f")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "its first line names no column time and no g_per_kwh"),
        ("time,g_per_kwh\n", "0 value"),
        ("time,g_per_kwh\n2026-12-01T00:00Z,300\n", "1 value"),
        ("time,how much\n1,2\n", "its first line names no column g_per_kwh"),
        ("time,g_per_kwh\n2026-12-01T00:00,300\n2026-12-01T01:00,300\n", "no time zone; write 2026-12-01T00:00Z"),
        ("time,g_per_kwh\nsoon,300\nlater,300\n", "soon"),
        (
            "time,g_per_kwh\n2026-12-01T00:00Z,300\n2026-12-01T01:00Z,many\n",
            "line 3: could not convert string to float: 'many'",
        ),
        ("time,g_per_kwh\n2026-12-01T00:00Z\n", "line 2"),
        ("time,g_per_kwh\n2026-12-01T00:00Z,300\n2026-12-01T01:00Z,-1\n", "no grid emits that"),
        ("time,g_per_kwh\n2026-12-01T00:00Z,300\n2026-12-01T01:00Z,nan\n", "no grid emits that"),
        ("time,g_per_kwh\n2026-12-01T00:00Z,300\n2026-12-01T00:00Z,300\n", "two values at"),
        ("{", "line 1"),
        ('{"error": "token expired"}', 'no answer of a service that is known: {"error": "token expired"}'),
        ('{"data": []}', "it lacks 'meta'"),
        ('{"forecast": [{"datetime": "2026-12-01T00:00Z"}]}', "it lacks 'carbonIntensity'"),
        ('{"forecastData": [{"timestamp": "2026-12-01T00:00Z", "value": 1, "duration": 1e300}]}', "is no forecast"),
        ("time,g_per_kwh\n0001-01-01T00:00+05:00,1\n", "is no forecast"),
        ("[" * 100_000, "is no forecast"),
        ("[1, 2]", "int"),
        ("[]", "0 value"),
    ],
)
def test_what_is_no_forecast_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(TrainerError) as caught:
        parse_forecast(text.encode(), "f.csv")
    assert caught.value.place == "f.csv"
    assert why in caught.value.problem
    assert "g_per_kwh" in caught.value.allowed


def test_a_spreadsheets_byte_order_mark_is_no_part_of_the_first_column() -> None:
    assert parse_forecast(b"\xef\xbb\xbf" + CSV.encode(), "f").intervals == _hours(300, 100, 200)


def test_a_price_is_read_from_files_of_its_own_column() -> None:
    prices = CSV.replace("g_per_kwh", "usd_per_hour")
    assert parse_forecast(prices.encode(), "f", PRICE) == Forecast(_hours(300, 100, 200), "f")
    points = [{"time": point["time"], "usd_per_hour": point["g_per_kwh"]} for point in OWN]
    assert parse_forecast(json.dumps(points).encode(), "f", PRICE).intervals == _hours(300, 100, 200)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (CSV, "its first line names no column usd_per_hour"),
        (json.dumps(OWN), "it lacks 'usd_per_hour'"),
        (json.dumps(ELECTRICITY_MAPS), "no list of objects with time and usd_per_hour"),
        (json.dumps(CARBON_AWARE_SDK), "no list of objects with time and usd_per_hour"),
        ("time,usd_per_hour\n2026-12-01T00:00Z,1\n2026-12-01T01:00Z,-1\n", "-1 USD/h at 2026-12-01T01:00:00+00:00"),
        ("time,usd_per_hour\n2026-12-01T00:00Z,1\n2026-12-01T01:00Z,1e6\n", "no machine costs that"),
    ],
)
def test_what_is_no_forecast_of_a_price_is_refused(text: str, why: str) -> None:
    with pytest.raises(TrainerError) as caught:
        parse_forecast(text.encode(), "f.csv", PRICE)
    assert why in caught.value.problem
    assert "usd_per_hour" in caught.value.allowed
    assert "WattTime" not in caught.value.allowed


def test_lines_before_the_first_are_a_note_of_where_the_values_come_from() -> None:
    noted = parse_forecast(f"# SIMULATED: a sine\n#\x1b[31m and noise\n{CSV}".encode(), "f")
    assert noted == Forecast(_hours(300, 100, 200), "f", r"SIMULATED: a sine \x1b[31m and noise")
    with pytest.raises(TrainerError, match="line 4: could not convert string to float: 'many'"):
        parse_forecast(b"# a\n# b\ntime,g_per_kwh\n2026-12-01T00:00Z,many\n", "f")
    with pytest.raises(TrainerError, match="names no column time"):
        parse_forecast(b"# nothing but a note\n", "f")


@pytest.mark.parametrize("url", ["https://host:abc/x?token=secret", "http://[::1/x?token=secret"])
def test_what_is_no_address_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(TrainerError, match="--forecast: no address") as caught:
        read_forecast(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("token", ["s3c\nret", "s3crét"])
def test_a_token_that_is_none_is_not_repeated(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANGWAY_CARBON_TOKEN", token)
    with pytest.raises(TrainerError, match=r"\$GANGWAY_CARBON_TOKEN: holds characters that no header can") as caught:
        read_forecast("https://127.0.0.1:9/x")
    assert "s3c" not in str(caught.value)


def test_an_address_that_http_refuses_is_no_traceback() -> None:
    with pytest.raises(TrainerError, match="gives no forecast: URL can't contain control characters"):
        read_forecast("http://127.0.0.1:9/a b")


def test_a_mean_of_no_time_at_all_is_unknown_outside_the_forecast() -> None:
    forecast = Forecast(_hours(300, 100), "f")
    assert forecast.mean(MIDNIGHT - timedelta(hours=1), MIDNIGHT - timedelta(hours=1)) is None


def test_a_mean_is_weighted_by_time_and_unknown_where_there_is_a_gap() -> None:
    forecast = Forecast(_hours(300, 100, 200), "f")
    hour = timedelta(hours=1)
    assert forecast.mean(MIDNIGHT, MIDNIGHT + 3 * hour) == pytest.approx(200)
    assert forecast.mean(MIDNIGHT + hour / 2, MIDNIGHT + 1.25 * hour) == pytest.approx((300 * 0.5 + 100 * 0.25) / 0.75)
    assert forecast.mean(MIDNIGHT - hour, MIDNIGHT + hour) is None
    assert forecast.mean(MIDNIGHT + 2 * hour, MIDNIGHT + 4 * hour) is None
    gap = Forecast((forecast.intervals[0], forecast.intervals[2]), "f")
    assert gap.mean(MIDNIGHT, MIDNIGHT + 3 * hour) is None
    assert forecast.end == MIDNIGHT + 3 * hour


def test_values_of_the_sdk_hold_for_their_duration_only() -> None:
    data = [{"timestamp": f"2026-12-01T0{n}:00:00Z", "duration": 30, "value": 100} for n in (0, 1)]
    intervals = parse_forecast(json.dumps({"forecastData": data}).encode(), "f").intervals
    assert [i.end - i.start for i in intervals] == [timedelta(minutes=30)] * 2


@given(values=st.lists(st.floats(0, 1000), min_size=2, max_size=24), start=st.floats(0, 1), length=st.floats(0.01, 1))
def test_a_mean_lies_between_the_least_and_the_greatest(values: list[float], start: float, length: float) -> None:
    forecast = Forecast(_hours(*values), "f")
    begin = MIDNIGHT + timedelta(hours=start * len(values))
    mean = forecast.mean(begin, begin + timedelta(hours=length))
    if mean is not None:
        assert min(values) - 1e-6 <= mean <= max(values) + 1e-6


class Api:
    def __init__(self) -> None:
        self.headers: list[dict[str, str]] = []
        self.answer: tuple[int, str] = (200, json.dumps(ELECTRICITY_MAPS))
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                api.headers.append({**self.headers, "path": self.path})
                status, body = api.answer
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", f"http://127.0.0.1:{api.server.server_port}/elsewhere")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
                """Keep the test output clean."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v3/forecast?zone=DE&secret=1"


@pytest.fixture
def api() -> Iterator[Api]:
    stand_in = Api()
    thread = threading.Thread(target=stand_in.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield stand_in
    stand_in.server.shutdown()
    thread.join()
    stand_in.server.server_close()


def test_an_address_is_asked_with_the_token_and_named_without_its_query(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_forecast(api.url).intervals == _hours(300, 100, 200)
    assert "Authorization" not in api.headers[0]
    monkeypatch.setenv("GANGWAY_CARBON_TOKEN", "t0ken\n")
    forecast = read_forecast(api.url)
    assert api.headers[1]["Authorization"] == "Bearer t0ken"
    assert api.headers[1]["path"] == "/v3/forecast?zone=DE&secret=1"
    assert forecast.source == f"http://127.0.0.1:{api.server.server_port}/v3/forecast"


@pytest.mark.parametrize("answer", [(401, "no"), (302, ""), (500, "")])
def test_an_address_that_does_not_answer_is_named_and_nobody_is_sent_elsewhere(
    api: Api, answer: tuple[int, str]
) -> None:
    api.answer = answer
    with pytest.raises(TrainerError) as caught:
        read_forecast(api.url)
    assert str(answer[0]) in caught.value.problem
    assert "secret" not in str(caught.value)
    assert len(api.headers) == 1


def test_a_token_does_not_travel_unencrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANGWAY_CARBON_TOKEN", "t0ken")
    with pytest.raises(TrainerError, match="would travel unencrypted") as caught:
        read_forecast("http://forecast.example/v3")
    assert "t0ken" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "forecast.csv"
    with pytest.raises(TrainerError, match="no such file"):
        read_forecast(str(path))
    path.write_text(CSV)
    assert read_forecast(str(path)).source == str(path)
