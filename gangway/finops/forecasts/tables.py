"""A forecast as tables, JSON, and a CSV for the launcher's `--start-when`."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from gangway.components.core.safe_text import visible
from gangway.sim.forecast.accuracy import FALSE_ALARM_EVERY, Accuracy, Drift, Skill
from gangway.sim.forecast.forecaster import Backtest, Forecast, Setting
from gangway.sim.forecast.ledger import Settled, Standing
from gangway.sim.forecast.series import Series, format_time, said_length

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_MOST_ROWS = 24
_MOST_OTHERS = 10


@dataclass(frozen=True)
class Published:
    """The ledger's track record. `added`: whether this forecast is new in it; `others`: see `Entries.others`."""

    added: bool
    others: tuple[str, ...]
    settled: Settled
    standing: Standing


@dataclass(frozen=True)
class Answer:
    """One forecast and its evidence. `published`: None without a ledger."""

    series: Series
    setting: Setting
    model: Forecast
    baseline: Forecast
    tested: Backtest
    published: Published | None = None

    def rows(self) -> Iterator[tuple[str, float, float, float, float]]:
        """Time, middle, low, high and baseline of each step."""
        steps = zip(self.model.middle, self.model.low, self.model.high, self.baseline.middle, strict=True)
        for index, values in enumerate(steps):
            yield (format_time(self.series.find_time(self.model.origin + index)), *values)


def to_csv(answer: Answer) -> str:
    """Times, middles under the series' own name, interval ends and baseline; the history's source is a # note."""
    notes = [f"# {line}" for line in answer.series.note.splitlines()]
    head = f"time,{answer.series.name},low,high,baseline"
    lines = (",".join([time, *(f"{value:.10g}" for value in values)]) for time, *values in answer.rows())
    return "\n".join([*notes, head, *lines, ""])


def to_json(answer: Answer) -> dict[str, Any]:
    """The forecast as JSON data; unknown values are null."""
    series, setting, tested = answer.series, answer.setting, answer.tested
    published = answer.published
    return {
        "series": series.name,
        "of": series.of,
        "note": series.note,
        "history": {
            "first": format_time(series.start),
            "last": format_time(series.find_time(len(series.values) - 1)),
            "values": len(series.values),
            "step_sec": series.step.total_seconds(),
        },
        "season": {"steps": setting.season, "reason": setting.season_reason},
        "level": setting.level,
        "forecast": [
            {"time": time, "middle": middle, "low": low, "high": high, "baseline": naive}
            for time, middle, low, high, naive in answer.rows()
        ],
        "backtest": {
            "baseline": asdict(tested.naive),
            "model": asdict(tested.model),
            "skill": skill_json(tested.gain),
        },
        "drift": {**asdict(tested.drift), "false_alarm_every": FALSE_ALARM_EVERY},
        "ledger": published
        and {
            "added": published.added,
            "others": published.others,
            **asdict(published.settled),
            "baseline": published.standing.baseline and asdict(published.standing.baseline),
            "model": published.standing.model and asdict(published.standing.model),
            "skill": skill_json(published.standing.gain),
        },
    }


def skill_json(gain: Skill | None) -> dict[str, Any] | None:
    """The skill as JSON data, unknown or infinite values null; null if the baseline never errs."""
    if gain is None:
        return None
    found = {"value": gain.value, "low": gain.low, "high": gain.high, "p_value": gain.compared.p_value}
    values = {name: value if value is not None and math.isfinite(value) else None for name, value in found.items()}
    return {**values, "blocks": gain.compared.pairs, "verdict": gain.verdict}


def show(answer: Answer, console: "Console") -> None:
    """Print the history's source, the next steps, and the accuracy of such forecasts."""
    series, setting = answer.series, answer.setting
    if series.note:
        console.print(series.note, markup=False, highlight=False)
    last = format_time(series.find_time(len(series.values) - 1))
    ahead = said_length(setting.horizon * series.step)
    history = f"{series.name}: {len(series.values):,} values, one per {said_length(series.step)}"
    summary = f"{history}, the last at {last}; {ahead} ahead"
    console.print(summary, markup=False, highlight=False)
    console.print(f"season: {setting.season_reason}", markup=False, highlight=False)
    console.print(_forecast_table(answer))
    title = f"back-test: {answer.tested.model.forecasts} earlier forecasts of {setting.horizon} steps"
    console.print(_accuracy_table(title, answer.tested.naive, answer.tested.model, setting.level))
    console.print(_skill_line(answer.tested.gain), markup=False, highlight=False)
    console.print(_drift_line(answer), markup=False, highlight=False)
    if answer.published is not None:
        _show_published(answer.published, series, setting, console)


def _forecast_table(answer: Answer) -> "Table":
    rows = list(answer.rows())
    every = -(-len(rows) // _MOST_ROWS)
    thinned = f", every {every} steps (all: --out, --json)" if every > 1 else ""
    table = _table(f"forecast, with {answer.setting.level:.0%} intervals{thinned}", "time")
    for name in ("baseline", "low", "middle", "high"):
        table.add_column(name, justify="right")
    for time, middle, low, high, naive in rows[every - 1 :: every]:
        table.add_row(time, *(_number(value) for value in (naive, low, middle, high)))
    return table


def _accuracy_table(title: str, baseline: Accuracy, model: Accuracy, level: float) -> "Table":
    table = _table(title, "figure")
    for name in ("seasonal naive", "quantile boosting"):
        table.add_column(name, justify="right")
    table.add_row("mean absolute error", _number(baseline.mae), _number(model.mae))
    table.add_row("pinball loss", _number(baseline.pinball), _number(model.pinball))
    table.add_row(f"true values in {level:.0%} intervals", f"{baseline.coverage:.1%}", f"{model.coverage:.1%}")
    table.add_row("mean width", _number(baseline.width), _number(model.width))
    return table


def _table(title: str, first: str) -> "Table":
    from rich.table import Table

    table = Table(title=title, title_justify="left", padding=(0, 1, 0, 0), show_edge=False)
    table.add_column(first)
    return table


def _skill_line(gain: Skill | None) -> str:
    if gain is None:
        return "skill: not defined, the baseline has no error"
    text = f"skill: {gain.value:.0%} less error than the baseline"
    interval = "" if gain.low is None or gain.high is None else f" (95 %: {gain.low:.0%} to {gain.high:.0%})"
    means = {"better": "better than the baseline", "worse": "WORSE than the baseline: use the baseline"}
    return f"{text}{interval}: {means.get(gain.verdict, gain.verdict)}"


def _drift_line(answer: Answer) -> str:
    drift: Drift = answer.tested.drift
    often = f"by chance at most about once in {FALSE_ALARM_EVERY:,.0f}"
    if drift.alarm is None:
        return f"drift: none in {drift.seen} forecasts ({often})"
    assert drift.began is not None, "an alarm has a beginning"
    began = answer.series.find_time(answer.tested.forecasts[min(drift.began, drift.alarm)].origin)
    side = "above" if drift.upward else "below"
    return f"drift: since about {format_time(began)} values are {side} the forecast ({often})"


def _show_published(published: Published, series: Series, setting: Setting, console: "Console") -> None:
    new = "forecast added" if published.added else "already has a forecast from this time, which counts"
    text = f"ledger: {new}; {published.settled.new} new true values"
    if published.settled.revised:
        text += f"; {published.settled.revised} recorded values differ in this file and were kept"
    console.print(text, markup=False, highlight=False)
    if published.others:
        this, *others = (visible(of) or "unnamed" for of in (series.of, *published.others[:_MOST_OTHERS]))
        subjects = f"{this}; other subjects: {', '.join(others)} (--of NAME sets the subject)"
        console.print(f"ledger: the first {series.name} of {subjects}", markup=False, highlight=False)
    standing = published.standing
    if standing.model is not None and standing.baseline is not None:
        title = f"ledger: {standing.model.forecasts} published forecasts with known true values"
        console.print(_accuracy_table(title, standing.baseline, standing.model, setting.level))
        console.print(_skill_line(standing.gain), markup=False, highlight=False)


def _number(value: float) -> str:
    """Four significant digits with thousands separators.

    >>> _number(0.0123456), _number(12345.6), _number(20)
    ('0.01235', '12,346', '20')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
