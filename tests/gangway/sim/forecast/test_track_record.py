"""Figures of a ledger, series by series: errors beside the baseline's, what waits, and drift."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gangway.components.core.findings import InputError
from gangway.sim.forecast.drift import FEWEST
from gangway.sim.forecast.forecaster import Forecast, Setting
from gangway.sim.forecast.ledger import open_ledger, read_ledger
from gangway.sim.forecast.series import Series
from gangway.sim.forecast.track_record import standings

NOW = datetime(2026, 12, 1, tzinfo=UTC)
ONE_STEP = Setting(horizon=1, season=24, level=0.8)


def filled(path: Path, values: tuple[float, ...], settled: int) -> Path:
    """A ledger of forecasts one step ahead that say 10, of a baseline that says 8; `settled` truths are known."""
    series = Series("jobs", NOW, timedelta(hours=1), values)
    with open_ledger(path) as ledger:
        for origin in range(1, len(values)):
            model = Forecast(origin, (9.0,), (10.0,), (12.0,))
            ledger.add(series.until(origin), ONE_STEP, model, Forecast(origin, (7.0,), (8.0,), (9.0,)), NOW)
        ledger.settle(series.until(settled))
    return path


def test_errors_coverage_and_what_waits(tmp_path: Path) -> None:
    path = filled(tmp_path / "l", (10.0, 10.5, 13.0, 11.0, 9.0), settled=4)
    (one,) = standings(read_ledger(path))
    assert (one.series, one.level, one.waiting, len(one.scored)) == ("jobs", 0.8, 1, 3)
    assert one.model is not None
    assert one.baseline is not None
    assert (one.model.mae, one.baseline.mae) == ((0.5 + 3 + 1) / 3, (2.5 + 5 + 3) / 3)
    assert one.model.coverage == pytest.approx(2 / 3)
    assert one.gain is not None
    assert one.gain.value == pytest.approx(1 - 4.5 / 10.5)
    assert one.drift is None
    assert one.drifts_since() is None


def test_nothing_is_known_where_no_truth_is(tmp_path: Path) -> None:
    (one,) = standings(read_ledger(filled(tmp_path / "l", (10.0, 10.0), settled=1)))
    assert (one.waiting, one.scored, one.model, one.gain) == (1, (), None, None)


def test_each_series_and_level_stands_for_itself(tmp_path: Path) -> None:
    path = filled(tmp_path / "l", (10.0, 10.0, 10.0), settled=3)
    series = Series("usd", NOW, timedelta(hours=1), (1.0, 1.0))
    said = Forecast(2, (0.5,), (1.0,), (1.5,))
    with open_ledger(path) as ledger:
        ledger.add(series, ONE_STEP, said, said, NOW)
        ledger.add(series.until(1), replace(ONE_STEP, level=0.9), replace(said, origin=1), said, NOW)
        ledger.add(replace(series, of="p3/a"), ONE_STEP, said, said, NOW)
    assert [(one.series, one.level, one.of) for one in standings(read_ledger(path))] == [
        ("jobs", 0.8, ""), ("usd", 0.8, ""), ("usd", 0.9, ""), ("usd", 0.8, "p3/a"),
    ]  # fmt: skip


def test_a_shift_is_found_and_dated_and_a_steady_series_is_not(tmp_path: Path) -> None:
    wiggle = (9.8, 10.1, 9.9, 10.2, 10.0)
    steady = tuple(wiggle[index % 5] for index in range(3 * FEWEST))
    shifted = tuple(value + 5 * (index > 2 * FEWEST) for index, value in enumerate(steady))
    (calm,) = standings(read_ledger(filled(tmp_path / "calm", steady, settled=len(steady))))
    (moved,) = standings(read_ledger(filled(tmp_path / "moved", shifted, settled=len(shifted))))
    assert calm.drift is not None
    assert calm.drift.alarm is None
    assert calm.drifts_since() is None
    assert moved.drift is not None
    assert moved.drift.upward
    since = moved.drifts_since()
    assert since is not None
    assert abs(since - (NOW + timedelta(hours=2 * FEWEST + 1))) <= timedelta(hours=3)


def test_reading_makes_no_file_takes_no_lock_and_leaves_half_a_line_alone(tmp_path: Path) -> None:
    path = filled(tmp_path / "l", (10.0, 10.5, 13.0), settled=3)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"kind": "tru')
    with path.open("a+b"):
        (one,) = standings(read_ledger(path))
    assert len(one.scored) == 2
    assert path.read_bytes() == whole + b'{"kind": "tru'
    with open_ledger(path):
        assert len(standings(read_ledger(path))) == 1
    with pytest.raises(InputError, match="cannot be read"):
        read_ledger(tmp_path / "none")
    assert not (tmp_path / "none").exists()
