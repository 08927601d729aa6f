"""The ledger: forecasts and their later truth, kept as they were, read strictly, judged once all is known."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gangway.components.core.findings import InputError
from gangway.sim.forecast.accuracy import FEWEST, Judged, accuracy
from gangway.sim.forecast.forecaster import Forecast, Setting
from gangway.sim.forecast.ledger import Entries, Scored, Settled, open_ledger, overlapping, read_ledger, standings
from gangway.sim.forecast.series import Series

NOW = datetime(2026, 12, 1, 4, tzinfo=UTC)
SETTING = Setting(horizon=2, season=24, level=0.8)
MODEL = Forecast(4, (9.0, 9.0), (10.0, 11.0), (12.0, 12.0))
BASELINE = Forecast(4, (5.0, 5.0), (8.0, 8.0), (15.0, 15.0))


def grown(series: Series, *values: float) -> Series:
    return replace(series, values=(*series.values, *values))


@pytest.fixture
def path(tmp_path: Path, series: Series) -> Path:
    """A ledger with one forecast, of the two hours after the history."""
    with open_ledger(tmp_path / "l.jsonl") as ledger:
        assert ledger.settle(series) == Settled(0, 0)
        assert ledger.add(series, SETTING, MODEL, BASELINE, NOW)
    return tmp_path / "l.jsonl"


def judged(ledger: Entries, name: str, level: float, of: str = "") -> tuple[list[Judged], list[Judged]]:
    scored = ledger.scored(name, level, of)
    return [each.model for each in scored], [each.baseline for each in scored]


def test_a_forecast_is_judged_when_all_its_truth_is_known(path: Path, series: Series) -> None:
    with open_ledger(path) as ledger:
        assert ledger.settle(grown(series, 10.5)) == Settled(1, 0)
        assert judged(ledger, "jobs", 0.8) == ([], [])
    with open_ledger(path) as ledger:
        assert ledger.settle(grown(series, 10.5, 13.0)) == Settled(1, 0)
        assert ledger.settle(grown(series, 10.5, 13.0)) == Settled(0, 0)
        model, baseline = judged(ledger, "jobs", 0.8)
    found = accuracy(model, 0.8)
    assert (found.forecasts, found.mae, found.coverage) == (1, (0.5 + 2) / 2, 0.5)
    assert accuracy(baseline, 0.8).mae == (2.5 + 5) / 2
    with open_ledger(path) as ledger:
        assert judged(ledger, "jobs", 0.9) == judged(ledger, "usd", 0.8) == ([], [])
        assert judged(ledger, "jobs", 0.8)[0] == model


def test_lines_are_only_added(path: Path, series: Series) -> None:
    before = path.read_bytes()
    with open_ledger(path) as ledger:
        ledger.settle(grown(series, 10.5))
    after = path.read_bytes()
    assert after.startswith(before)
    assert json.loads(after.splitlines()[1]) == {
        "kind": "truth", "series": "jobs", "of": "", "time": "2026-12-01T04:00:00Z", "value": 10.5,
    }  # fmt: skip


def test_what_was_published_is_not_bettered_afterwards(path: Path, series: Series) -> None:
    """Neither a second forecast from the same time nor a revised truth changes a figure."""
    with open_ledger(path) as ledger:
        ledger.settle(grown(series, 10.5, 13.0))
        before = judged(ledger, "jobs", 0.8)
        assert not ledger.add(series, SETTING, BASELINE, MODEL, NOW)
        assert ledger.settle(grown(series, 10.5, 11.0)) == Settled(0, 1)
        assert judged(ledger, "jobs", 0.8) == before


def test_series_of_one_name_are_told_apart_by_what_they_are_of(path: Path, series: Series) -> None:
    """And none of them has to do with lines of before that was written."""
    text = path.read_text("utf-8")
    path.write_text(text.replace(' "of": "",', ""), "utf-8")
    assert path.read_text("utf-8") != text
    dear, cheap = replace(series, of="p3/a"), replace(series, of="g4dn/b")
    with open_ledger(path) as ledger:
        assert ledger.others(dear) == ("",)
        assert ledger.add(dear, SETTING, MODEL, BASELINE, NOW)
        assert (ledger.others(cheap), ledger.others(dear)) == (("", "p3/a"), ())
        assert ledger.add(cheap, SETTING, MODEL, BASELINE, NOW)
        assert ledger.settle(grown(cheap, 1.0, 1.0)) == ledger.settle(grown(dear, 9.0, 9.0)) == Settled(2, 0)
    with open_ledger(path) as ledger:
        (found,), (other,) = (judged(ledger, "jobs", 0.8, of)[0] for of in ("p3/a", "g4dn/b"))
        assert (found.truth, other.truth) == ((9.0, 9.0), (1.0, 1.0))
        assert (judged(ledger, "jobs", 0.8), ledger.waiting("jobs", 0.8)) == (([], []), 1)
        assert ledger.settle(grown(series, 5.0, 5.0)) == Settled(2, 0), "unless one asks for just them"


def test_half_a_line_of_a_crash_is_left_out(path: Path, series: Series) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"kind": "truth", "ser')
    with open_ledger(path) as ledger:
        assert ledger.settle(grown(series, 10.5)) == Settled(1, 0)
    assert path.read_bytes().startswith(whole + b'{"kind": "truth", "series": "jobs"')


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("half", ['{"kin', '{"kind": "forecast", "series": "jo'])
def test_half_a_line_is_a_ledgers_by_how_it_begins(path: Path, series: Series, half: str, *, whole: bool) -> None:
    before = path.read_bytes() if whole else b""
    path.write_bytes(before + half.encode())
    with open_ledger(path) as ledger:
        assert ledger.add(series, SETTING, MODEL, BASELINE, NOW) is not whole
    assert path.read_bytes().startswith(before or b'{"kind": "forecast", "series": "jobs"')


@pytest.mark.parametrize(
    "content", ['{"precious": 1}', '{"kind": "Deployment"}', "a\nb", '{"precious": 1}\n{"prec', "\n", "LEDGERmine"]
)
def test_what_is_no_ledger_stays_as_it_is(path: Path, content: str) -> None:
    before = content.encode().replace(b"LEDGER", path.read_bytes())
    path.write_bytes(before)
    with pytest.raises(InputError, match="no line of a ledger"), open_ledger(path):
        pass
    assert path.read_bytes() == before


def changed(path: Path, **values: object) -> str:
    return json.dumps({**json.loads(path.read_bytes().splitlines()[0]), **values})


TRUTH = {"kind": "truth", "series": "jobs", "time": "2026-12-01T04:00:00Z", "value": 1.0}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("nonsense", "not JSON: line 1, column 2: expected ident"),
        ("[]", "allowed: a JSON object"),
        (json.dumps({**TRUTH, "kind": "rumour"}), "kind: not an accepted value; allowed: forecast, truth"),
        (json.dumps({**TRUTH, "value": "1"}), "value: not an accepted value; allowed: a number"),
        (json.dumps({**TRUTH, "value": float("nan")}), "value: not an accepted value; allowed: a finite number"),
        (json.dumps({**TRUTH, "time": "2026-12-01T04:00:00"}), "timezone"),
        (json.dumps({**TRUTH, "more": 1}), "more: unknown key"),
    ],
)
def test_a_damaged_line_is_told_with_its_number(path: Path, line: str, why: str) -> None:
    path.write_text(path.read_text("utf-8") + line + "\n", "utf-8")
    with pytest.raises(InputError) as refused, open_ledger(path):
        pass
    assert refused.value.place == f"{path}, line 2"
    assert why in refused.value.problem
    assert refused.value.fix


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"model": {"low": [1.0], "middle": [0.5], "high": [2.0]}}, "ascending order"),
        ({"model": {"low": [1.0], "middle": [1.0, 2.0], "high": [2.0]}}, "several lengths"),
        ({"model": {"low": [1.0], "middle": [1.0], "high": [2.0]}}, "different numbers of steps"),
        ({"level": 1.5}, "below 1"),
        ({"step_sec": 0.0}, "above 0"),
    ],
)
def test_a_forecast_that_makes_no_sense_is_damaged(path: Path, values: dict[str, object], why: str) -> None:
    path.write_text(changed(path, **values) + "\n", "utf-8")
    with pytest.raises(InputError, match="line 1") as refused, open_ledger(path):
        pass
    assert why in refused.value.problem


def test_the_same_forecast_twice_is_damaged(path: Path) -> None:
    path.write_bytes(path.read_bytes() * 2)
    with pytest.raises(InputError, match="a second forecast of 'jobs'"), open_ledger(path):
        pass


def test_one_writer_and_a_place_to_write(path: Path, tmp_path: Path) -> None:
    with open_ledger(path), pytest.raises(InputError, match="another process"), open_ledger(path):
        pass
    with pytest.raises(InputError, match="cannot be opened"), open_ledger(tmp_path):
        pass


@pytest.mark.parametrize(
    ("hours", "expected"), [((), 1), ((0,), 1), ((0, 3, 6), 1), ((0, 1, 2, 3, 9), 3), ((0, 2, 9), 2)]
)
def test_as_many_overlap_as_are_about_a_time_of_the_first(hours: tuple[int, ...], expected: int) -> None:
    """Of three hours each."""
    begin, hour = datetime(2026, 1, 1, tzinfo=UTC), timedelta(hours=1)
    judged = Judged((0.0,) * 3, (0.0,) * 3, (0.0,) * 3, (0.0,) * 3)
    scored = [Scored(hour, tuple(begin + (at + step) * hour for step in range(3)), judged, judged) for at in hours]
    assert overlapping(scored) == expected


MIDNIGHT = datetime(2026, 12, 1, tzinfo=UTC)
ONE_STEP = Setting(horizon=1, season=24, level=0.8)


def filled(path: Path, values: tuple[float, ...], settled: int) -> Path:
    """A ledger of forecasts one step ahead that say 10, of a baseline that says 8; `settled` truths are known."""
    series = Series("jobs", MIDNIGHT, timedelta(hours=1), values)
    with open_ledger(path) as ledger:
        for origin in range(1, len(values)):
            model = Forecast(origin, (9.0,), (10.0,), (12.0,))
            ledger.add(series.until(origin), ONE_STEP, model, Forecast(origin, (7.0,), (8.0,), (9.0,)), MIDNIGHT)
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
    series = Series("usd", MIDNIGHT, timedelta(hours=1), (1.0, 1.0))
    said = Forecast(2, (0.5,), (1.0,), (1.5,))
    with open_ledger(path) as ledger:
        ledger.add(series, ONE_STEP, said, said, MIDNIGHT)
        ledger.add(series.until(1), replace(ONE_STEP, level=0.9), replace(said, origin=1), said, MIDNIGHT)
        ledger.add(replace(series, of="p3/a"), ONE_STEP, said, said, MIDNIGHT)
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
    assert abs(since - (MIDNIGHT + timedelta(hours=2 * FEWEST + 1))) <= timedelta(hours=3)


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
