"""A start that waits for clean power: hand-worked windows, a clock of the test's own, and the launcher itself."""

import json
import signal
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.trainer.core.errors import TrainerError
from gangway.trainer.launch import launcher as launch
from gangway.trainer.power.carbon_start import Decision, StartWhen, decide, has_begun, parse_start_when, wait
from gangway.trainer.power.forecast import CARBON, PRICE, Forecast, Interval, Quantity

MIDNIGHT = datetime(2026, 12, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def forecast(*values: float) -> Forecast:
    intervals = [Interval(MIDNIGHT + n * HOUR, MIDNIGHT + (n + 1) * HOUR, g) for n, g in enumerate(values)]
    return Forecast(tuple(intervals), "forecast.csv")


def asked(limit: float = 200, by_hour: float = 12, hours: float = 2) -> StartWhen:
    return StartWhen(limit, MIDNIGHT + by_hour * HOUR, hours, "forecast.csv")


GRID = forecast(400, 400, 300, 250, 150, 120, 180, 350, 400, 400, 400, 400)


def test_the_first_window_below_the_limit_is_taken() -> None:
    decision = decide(asked(), GRID, MIDNIGHT)
    # From 3:30: half an hour of 250, an hour of 150, half an hour of 120 are 167.5; from 3:00 200, which is not below.
    # From 3:05: (55 * 250 + 60 * 150 + 5 * 120) / 120 = 194.6.
    assert decision.at == MIDNIGHT + timedelta(hours=3, minutes=5)
    assert decision.mean == pytest.approx(194.583, abs=1e-3)
    assert decision.window
    assert decision.reason == "the first 2 h below 200 g/kWh: 195 g/kWh"


def test_a_clean_grid_starts_at_once() -> None:
    assert decide(asked(limit=500), GRID, MIDNIGHT) == Decision(
        MIDNIGHT, True, 400.0, "the first 2 h below 500 g/kWh: 400 g/kWh"
    )


def test_without_a_window_it_starts_as_late_as_it_may_and_says_why() -> None:
    decision = decide(asked(limit=100), GRID, MIDNIGHT)
    assert (decision.at, decision.window, decision.mean) == (MIDNIGHT + 10 * HOUR, False, 400.0)
    assert decision.reason == (
        "no 2 h below 100 g/kWh (the cleanest is 135 g/kWh from 2026-12-01 04:00Z): the latest start that is done by "
        "2026-12-01 12:00Z"
    )


def test_a_window_must_end_in_time() -> None:
    late = decide(asked(by_hour=5), GRID, MIDNIGHT)
    assert (late.at, late.window) == (MIDNIGHT + 3 * HOUR, False), "from 3:05 it would end at 5:05"


def test_what_the_forecast_does_not_cover_is_no_window() -> None:
    decision = decide(asked(limit=100, by_hour=40), GRID, MIDNIGHT)
    assert decision.at == MIDNIGHT + 38 * HOUR
    assert decision.mean is None
    assert "the forecast ends at 2026-12-01 12:00Z" in decision.reason
    assert "none is covered" in decide(asked(by_hour=80), GRID, MIDNIGHT + 40 * HOUR).reason


@pytest.mark.parametrize(("now_hour", "words"), [(10, "only if started now"), (11, "too late to be done by then")])
def test_without_time_to_wait_it_starts_now(now_hour: int, words: str) -> None:
    decision = decide(asked(), GRID, MIDNIGHT + now_hour * HOUR)
    assert decision.at == MIDNIGHT + now_hour * HOUR
    assert words in decision.reason


@given(
    values=st.lists(st.floats(0, 800), min_size=12, max_size=12),
    limit=st.floats(1, 800),
    hours=st.floats(0.5, 8),
    by_hour=st.floats(0, 14),
)
def test_it_is_in_time_whenever_it_can_be_and_a_window_is_the_first(
    values: list[float], limit: float, hours: float, by_hour: float
) -> None:
    grid, when = forecast(*values), asked(limit, by_hour, hours)
    decision = decide(when, grid, MIDNIGHT)
    assert decision.at == MIDNIGHT or decision.at + timedelta(hours=hours) <= when.by
    length, earlier = timedelta(hours=hours), MIDNIGHT
    if decision.window:
        assert decision.mean is not None
        assert decision.mean < limit
    while earlier < min(decision.at, when.latest):
        mean = grid.mean(earlier, earlier + length)
        assert mean is None or mean >= limit
        earlier += timedelta(minutes=5)


def test_a_time_in_thousands_of_years_is_decided_at_once() -> None:
    """Starts are counted as far as the forecast goes, and not to the deadline."""
    far = StartWhen(100, datetime(9999, 1, 1, tzinfo=UTC), 2, "forecast.csv")
    decision = decide(far, GRID, MIDNIGHT)
    assert (decision.at, decision.mean) == (far.latest, None)
    assert "the cleanest is 135 g/kWh" in decision.reason


@pytest.mark.parametrize("by", ["0001-01-01T00:00Z", "9999-12-31T23:59-05:00"])
def test_a_time_that_no_clock_shows_is_refused(by: str) -> None:
    with pytest.raises(TrainerError, match="no point in time"):
        parse_start_when(f"carbon<200,by={by}", "6", "forecast.csv")


class Clock:
    """A clock that only waiting moves."""

    def __init__(self) -> None:
        self.seconds = MIDNIGHT.timestamp()
        self.pauses: list[float] = []

    def now(self) -> float:
        return self.seconds

    def pause(self, stopped: threading.Event, seconds: float) -> bool:
        self.pauses.append(seconds)
        self.seconds += seconds
        return stopped.is_set()


def test_it_waits_tells_how_long_and_says_in_the_record_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    told = wait(asked(), clock.now, lambda *_: GRID, clock.pause)
    assert told == {
        "limit_g_per_kwh": 200,
        "by": "2026-12-01T12:00:00+00:00",
        "hours": 2,
        "forecast": "forecast.csv",
        "note": "",
        "asked_at": "2026-12-01T00:00:00+00:00",
        "started_at": "2026-12-01T03:05:00+00:00",
        "delayed_sec": 11100.0,
        "below_limit": True,
        "mean_g_per_kwh": pytest.approx(194.583, abs=1e-3),
        "reason": "the first 2 h below 200 g/kWh: 195 g/kWh",
    }
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == (
        "gangway: starting at 2026-12-01 03:05Z, in 3 h 5 min: the first 2 h below 200 g/kWh: 195 g/kWh"
    )
    assert lines[-1] == "gangway: starting: the first 2 h below 200 g/kWh: 195 g/kWh"
    assert max(clock.pauses) == 600


def test_values_that_are_made_up_are_told_as_that(capsys: pytest.CaptureFixture[str]) -> None:
    made_up = GRID._replace(note="SIMULATED: a sine")
    clock = Clock()
    told = wait(asked(), clock.now, lambda *_: made_up, clock.pause)
    assert told is not None
    assert told["note"] == "SIMULATED: a sine"
    assert "SIMULATED: a sine" in capsys.readouterr().err.splitlines()[0]


def test_a_price_is_waited_for_by_the_same_rules(capsys: pytest.CaptureFixture[str]) -> None:
    clock, asked_of = Clock(), []

    def read(where: str, of: Quantity) -> Forecast:
        asked_of.append((where, of))
        return forecast(3.5, 3.5, 2.25, 1.75, 1.5, 1.25, 3, 3.5, 3.5, 3.5, 3.5, 3.5)

    told = wait(asked(limit=1.9)._replace(of=PRICE), clock.now, read, clock.pause)
    assert told is not None
    # From 2:15: (45 * 2.25 + 60 * 1.75 + 15 * 1.5) / 120 = 1.906; from 2:20 it is below.
    assert told["started_at"] == "2026-12-01T02:20:00+00:00"
    assert told["limit_usd_per_hour"] == 1.9
    assert told["mean_usd_per_hour"] == pytest.approx((40 * 2.25 + 60 * 1.75 + 20 * 1.5) / 120)
    assert not any("g_per_kwh" in key for key in told)
    assert told["reason"] == "the first 2 h below 1.9 USD/h: 1.875 USD/h"
    assert set(asked_of) == {("forecast.csv", PRICE)}
    dear = decide(asked(limit=1)._replace(of=PRICE), read("", CARBON), MIDNIGHT)
    assert "the cheapest is 1.375 USD/h from 2026-12-01 04:00Z" in dear.reason


def test_a_better_forecast_is_taken_up_and_one_that_fails_is_not_missed(capsys: pytest.CaptureFixture[str]) -> None:
    clock, reads = Clock(), []

    def read(where: str, of: Quantity) -> Forecast:
        reads.append(clock.seconds)
        if len(reads) == 2:
            raise TrainerError(place=where, problem="gives no forecast: timed out")
        return forecast(*[400] * 12) if len(reads) == 1 else forecast(400, 400, *[100] * 10)

    told = wait(asked(), clock.now, read, clock.pause)
    assert told is not None
    assert told["below_limit"]
    # From 1:20: 40 minutes of 400 and 80 of 100 are 200, which is not below.
    assert told["started_at"] == "2026-12-01T01:25:00+00:00"
    err = capsys.readouterr().err
    assert "no 2 h below 200 g/kWh" in err
    assert "cannot be read again, so the last one counts" in err


def test_at_the_latest_moment_the_reason_stays_what_it_was() -> None:
    clock = Clock()
    told = wait(asked(limit=100), clock.now, lambda *_: GRID, clock.pause)
    assert told is not None
    assert told["started_at"] == "2026-12-01T10:00:00+00:00"
    assert told["reason"].startswith("no 2 h below 100 g/kWh")


def test_a_signal_ends_the_wait_and_handlers_are_put_back(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def pause(stopped: threading.Event, seconds: float) -> bool:
        signal.raise_signal(signal.SIGTERM)
        return stopped.wait(5)

    assert wait(asked(), Clock().now, lambda *_: GRID, pause) is None
    assert signal.getsignal(signal.SIGTERM) is before
    assert "run the same command to wait again" in capsys.readouterr().err


def test_the_condition_is_read() -> None:
    assert parse_start_when("carbon<200,by=2026-12-01T06:00Z", "6", "f.csv") == StartWhen(
        200.0, MIDNIGHT + 6 * HOUR, 6.0, "f.csv"
    )
    assert parse_start_when("usd<1.9,by=2026-12-01T06:00Z", "6", "f.csv") == StartWhen(
        1.9, MIDNIGHT + 6 * HOUR, 6.0, "f.csv", PRICE
    )
    assert parse_start_when(" carbon < 99.5 , by=2026-12-01T07:00+01:00", "0.5", "f.csv").by == MIDNIGHT + 6 * HOUR


@pytest.mark.parametrize(
    ("text", "hours", "where", "place"),
    [
        ("carbon>200,by=2026-12-01T06:00Z", "6", "f", "--start-when"),
        ("carbon<200", "6", "f", "--start-when"),
        ("", "6", "f", "--start-when"),
        ("eur<1.9,by=2026-12-01T06:00Z", "6", "f", "--start-when"),
        ("usd<-1,by=2026-12-01T06:00Z", "6", "f", "--start-when"),
        ("usd<1.9,by=tomorrow", "6", "f", "--start-when by"),
        ("usd<1.9,by=2026-12-01T06:00Z", "6", None, "--forecast"),
        ("carbon<200,by=tomorrow", "6", "f", "--start-when by"),
        ("carbon<200,by=2026-12-01T06:00", "6", "f", "--start-when by"),
        ("carbon<200,by=2026-12-01T06:00Z", None, "f", "--hours"),
        ("carbon<200,by=2026-12-01T06:00Z", "0", "f", "--hours"),
        ("carbon<200,by=2026-12-01T06:00Z", "long", "f", "--hours"),
        ("carbon<200,by=2026-12-01T06:00Z", "6", None, "--forecast"),
    ],
)
def test_a_mistake_names_its_place(text: str, hours: str | None, where: str | None, place: str) -> None:
    with pytest.raises(TrainerError) as caught:
        parse_start_when(text, hours, where)
    assert caught.value.place == place
    assert caught.value.fix


def test_a_run_that_has_begun_is_found_by_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("mine", "runs/dcgan-digits"):
        Path(folder).mkdir(parents=True)
        Path(folder, "stats.jsonl").write_text("")
    train = ["--standalone", "-m", "gangway.trainer", "train"]
    assert has_begun([*train, "--preset", "x", "--run-dir", "mine"])
    assert has_begun([*train, "--run-dir=mine"])
    assert has_begun([*train, "--preset", "dcgan-digits"])
    assert not has_begun([*train, "--preset", "dcgan-digits", "--run-dir", "other"])
    assert not has_begun([*train, "--config", "c.json"])


def test_the_launcher_says_what_it_ignores_and_refuses_what_makes_no_sense(capsys: pytest.CaptureFixture[str]) -> None:
    assert launch.main(["--start-when", "carbon<200", "--hours=6", "-m", "gangway.trainer", "presets"]) == 2
    assert "--start-when: no such condition" in capsys.readouterr().err
    assert launch.main(["--hours", "6", "--forecast", "f", "--watch", "nowhere"]) == 2
    assert launch._wait_to_start({"--hours": "6", "--forecast": "f"}, [], float("inf"))
    assert "--hours is ignored without --start-when" in capsys.readouterr().err


def _write(path: Path, *values: float) -> None:
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    rows = [f"{(now + n * HOUR).isoformat()},{g}" for n, g in enumerate(values)]
    path.write_text("\n".join(["time,g_per_kwh", *rows]))


def _by(hours: float) -> str:
    return (datetime.now(UTC) + timedelta(hours=hours)).isoformat()


@pytest.mark.slow
def test_the_decision_is_in_the_diary_and_a_run_without_gpu_says_that_nothing_is_limited(
    start: Callable[..., Any], tmp_path: Path, lines_of: Callable[[Path], list[dict[str, Any]]]
) -> None:
    _write(tmp_path / "forecast.csv", 100, 100, 100)
    own = ("--start-when", f"carbon<200,by={_by(2)}", "--hours", "0.1", "--forecast", str(tmp_path / "forecast.csv"))
    train = ("train", "--preset", "dcgan-digits", "--kimg", "0.128", "--metrics-samples", "2", "--run-dir")
    argv = (*own, "--standalone", "--nproc-per-node=1", "-m", "gangway.trainer", *train, str(tmp_path / "run"))
    command = start("-m", "gangway.trainer.launch", *argv, "--power-limit-watts", "auto")
    code, text = command.finish()
    assert code == 0, text
    assert "warning: neither power nor clocks are limited: there is no GPU in this run" in text
    events = {line["event"]: line for line in lines_of(tmp_path / "run") if "event" in line}
    assert events["start-delayed"]["mean_g_per_kwh"] == 100
    assert events["power-refused"]["troubles"] == ["there is no GPU in this run"]
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["choices"]["power"] == "no limit: there is no GPU in this run"
    code, text = start("-m", "gangway.trainer.launch", *argv).finish()
    assert code == 0, text
    assert "the run has begun: it goes on at once" in text


def test_a_file_without_a_price_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _write(tmp_path / "forecast.csv", 100, 100, 100)
    own = ("--start-when", f"usd<2,by={_by(20)}", "--hours", "0.1", "--forecast", str(tmp_path / "forecast.csv"))
    assert launch.main([*own, "--standalone", "-m", "gangway.trainer", "presets"]) == 2
    assert "its first line names no column usd_per_hour" in capsys.readouterr().err


@pytest.mark.slow
def test_sigterm_while_waiting_is_an_interruption(start: Callable[..., Any], tmp_path: Path) -> None:
    _write(tmp_path / "forecast.csv", 900, 900, 900, 900, 900, 100, 100)
    own = ("--start-when", f"carbon<200,by={_by(6)}", "--hours", "1", "--forecast", str(tmp_path / "forecast.csv"))
    command = start("-m", "gangway.trainer.launch", *own, "--standalone", "-m", "gangway.trainer", "presets")
    command.wait_for(lambda: "starting at" in next(tmp_path.glob("command-*.log")).read_text())
    command.process.send_signal(signal.SIGTERM)
    code, text = command.finish()
    assert code == 75, text
    assert "stopped while waiting" in text


@pytest.mark.slow
def test_the_jobs_deadline_bounds_the_wait(start: Callable[..., Any], tmp_path: Path) -> None:
    _write(tmp_path / "forecast.csv", 900, 900, 900)
    carbon = ("--start-when", f"carbon<200,by={_by(20)}", "--hours", "1", "--forecast", str(tmp_path / "forecast.csv"))
    own = ("--max-hours", "0.5", *carbon)
    argv = (*own, "--standalone", "-m", "gangway.trainer", "presets")
    code, text = start("-m", "gangway.trainer.launch", *argv).finish()
    assert code == 0, text
    assert "too late to be done by then" in text
