"""The accuracy of ledgers' forecasts in a report of runs: a table, drawings, JSON, CSV columns."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet

from gangway.components.core.findings import InputError
from gangway.components.core.safe_text import visible
from gangway.components.estimate.statistics import correct
from gangway.finops.forecasts.tables import skill_json
from gangway.render.drawing import PANEL_INCHES, Drawing, Theme, as_days, date_axis, legend_size
from gangway.render.rendering import Sources, number
from gangway.report.comparison.formatting import CellText
from gangway.sim.forecast.accuracy import FALSE_ALARM_EVERY, Skill
from gangway.sim.forecast.ledger import Scored, Standing, read_ledger, standings
from gangway.sim.forecast.series import format_time

_MOST_STEPS: Final = 200
"""Of a drawing."""
HEADINGS: Final = (
    "Forecasts scored", "Mean absolute error", "The baseline's", "Less error", "Truths within", "Drift",
)  # fmt: skip


def read_ledgers(paths: Sequence[Path]) -> list[Standing]:
    """Read every series of the files, each file once. InputError: unreadable, damaged, or without forecasts."""
    found = []
    for path in dict.fromkeys(paths):
        of_file = standings(read_ledger(path))
        if not of_file:
            fix = "name a file that forecasts were kept in, or leave it out"
            raise InputError(str(path), "a ledger without a forecast", allowed="one at least", fix=fix)
        found += of_file
    return _correct_claims(found)


def _correct_claims(found: Sequence[Standing]) -> list[Standing]:
    """A table's rows are one family of claims."""
    gains = [kept.gain for kept in found]
    compared = correct({place: None if gain is None else gain.compared for place, gain in enumerate(gains)})
    return [
        kept if gain is None or one is None
        else replace(kept, gain=replace(gain, compared=one))
        for kept, gain, one in zip(found, gains, compared.values(), strict=True)
    ]  # fmt: skip


def get_cells(kept: Standing, sources: Sources) -> list[CellText]:
    """Cells under HEADINGS, every number with its source."""
    waiting = f"{kept.waiting} waiting for their truth" if kept.waiting else ""
    cell = partial(_cell_text, kept, sources)
    cells = [cell(len(kept.scored), str(len(kept.scored)), waiting)]
    if kept.model is None or kept.baseline is None:
        return cells + [cell(None, "none known yet", provenance="absent")] * (len(HEADINGS) - 1)
    cells += [cell(each.mae, number(each.mae)) for each in (kept.model, kept.baseline)]
    gain = kept.gain
    less = "the baseline never errs" if gain is None else _percent(gain.value)
    within = kept.model.coverage
    return [
        *cells,
        cell(None if gain is None else gain.value, less, _gain_spread(gain)),
        cell(within, f"{within:.1%}", f"of {kept.level:.0%} promised"),
        cell(None, *_drift(kept)),
    ]


def _cell_text(
    kept: Standing, sources: Sources, value: float | None, text: str, spread: str = "", provenance: str = "measured"
) -> CellText:
    footnote = sources.cell(value, "1", provenance, kept.source).footnote
    tooltip = "\n".join(part for part in (f"{kept.name}: {text}", spread, f"{provenance}: {kept.source}") if part)
    return CellText(text, "", spread, provenance, tooltip, footnote)


def _gain_spread(gain: Skill | None) -> str:
    if gain is None:
        return ""
    if gain.low is None or gain.high is None:
        return gain.verdict
    return f"{_percent(gain.low)} to {_percent(gain.high)}: {gain.verdict}"


def _percent(value: float) -> str:
    return f"{value:.0%}".replace("-", "\N{MINUS SIGN}")


def _drift(one: Standing) -> tuple[str, str]:
    if one.drift is None:
        return "not known", "too few forecasts"
    since = one.drifts_since()
    if since is None:
        return "none", f"in {one.drift.seen} forecasts"
    lie = f"truths lie {'above' if one.drift.upward else 'below'}"
    return lie, f"since about {format_time(since)}; by chance once in {FALSE_ALARM_EVERY:,.0f}"


def as_json(kept: Standing) -> dict[str, Any]:
    """As JSON data; unknown values are null."""
    return {
        "ledger": visible(str(kept.path)),
        "series": kept.series,
        "of": kept.of,
        "level": kept.level,
        "scored": len(kept.scored),
        "waiting": kept.waiting,
        "model": kept.model and asdict(kept.model),
        "baseline": kept.baseline and asdict(kept.baseline),
        "skill": skill_json(kept.gain),
        "drift": kept.drift and {**asdict(kept.drift), "false_alarm_every": FALSE_ALARM_EVERY},
        "provenance": "measured",
        "source": kept.source,
    }


def as_columns(found: Sequence[Standing]) -> dict[str, Any]:
    """The figures as CSV cells of one line, numbered by series."""
    return {
        f"forecast_{place}_{name}": value
        for place, kept in enumerate(found, 1)
        for name, value in _columns(as_json(kept)).items()
    }


def _columns(data: dict[str, Any]) -> dict[str, Any]:
    model, baseline, skill, drift = (data[name] or {} for name in ("model", "baseline", "skill", "drift"))
    return {
        **{name: data[name] for name in ("ledger", "series", "of", "level", "scored", "waiting")},
        "mae": model.get("mae"),
        "baseline_mae": baseline.get("mae"),
        "skill": skill.get("value"),
        "skill_low": skill.get("low"),
        "skill_high": skill.get("high"),
        "coverage": model.get("coverage"),
        "drift": None if data["drift"] is None else drift["alarm"] is not None,
        "provenance": data["provenance"],
    }


def ledger_drawings(found: Sequence[Standing]) -> tuple[list[Drawing], list[str]]:
    """A drawing per series, and a sentence for each without known truth."""
    drawings, lacking = [], []
    for place, kept in enumerate(found, 1):
        if kept.scored:
            drawings.append(_drawing(kept, f"forecast-{place}"))
        else:
            lacking.append(f"Forecasts of {kept.name}: no truth of a whole one is known yet")
    return drawings, lacking


def _drawing(kept: Standing, name: str) -> Drawing:
    drawn = _select_drawn(kept.scored)
    level = f"{kept.level:.0%}"
    truths = [row for each in drawn for row in zip(each.model.low, each.model.truth, each.model.high, strict=True)]
    within = sum(low <= truth <= high for low, truth, high in truths)
    first, last = format_time(drawn[0].times[0]), format_time(drawn[-1].times[-1])
    labels = ("truth", "middle", f"{level} interval", "seasonal naive")
    columns, legend_inches = legend_size(labels)

    def paint(sheet: Sheet, panels: Sequence[Axes], theme: Theme) -> None:
        _paint(panels[0], theme, drawn, labels)
        panels[0].set_title(kept.name, color=theme.ink)
        handles, names = panels[0].get_legend_handles_labels()
        sheet.legend(handles, names, loc="outside upper left", ncols=columns, labelcolor=theme.ink)

    return Drawing(
        name=name,
        title=f"Forecasts of {kept.name}",
        alt=f"{kept.name} from {first} to {last}: {within} of {len(truths)} truths within the {level} intervals.",
        caption=(
            f"The last {len(drawn)} of {len(kept.scored)} published forecasts that do not overlap, and what "
            f"came: {within} of {len(truths)} truths within. Measured: {kept.source}."
        ),
        panels=1,
        inches=PANEL_INCHES,
        paint=paint,
        legend_inches=legend_inches,
    )


def _select_drawn(scored: Sequence[Scored]) -> list[Scored]:
    chosen: list[Scored] = []
    for each in reversed(scored):
        if chosen and sum(len(one.times) for one in chosen) + len(each.times) > _MOST_STEPS:
            break
        if not chosen or each.times[-1] < chosen[-1].times[0]:
            chosen.append(each)
    return chosen[::-1]


def _contiguous(drawn: Sequence[Scored]) -> Iterator[list[Scored]]:
    stretch: list[Scored] = []
    for each in drawn:
        if stretch and each.times[0] - stretch[-1].times[-1] != each.step:
            yield stretch
            stretch = []
        stretch.append(each)
    yield stretch


def _paint(axes: Axes, theme: Theme, drawn: Sequence[Scored], labels: tuple[str, str, str, str]) -> None:
    for place, stretch in enumerate(_contiguous(drawn)):
        truth, middle, interval, naive = labels if place == 0 else (f"_{label}" for label in labels)
        days = as_days([time for each in stretch for time in each.times])

        def joined(values: Sequence[tuple[float, ...]]) -> list[float]:
            return list(itertools.chain.from_iterable(values))

        low, high = joined([each.model.low for each in stretch]), joined([each.model.high for each in stretch])
        lone = len(days) == 1
        marker = "_" if lone else ""
        axes.plot(days, joined([each.baseline.middle for each in stretch]), color=theme.series[1], linewidth=1.2,
                  linestyle="--", label=naive, marker=marker)  # fmt: skip
        axes.plot(days, joined([each.model.middle for each in stretch]), color=theme.series[0], linewidth=1.6,
                  label=middle, marker=marker)  # fmt: skip
        if lone:
            axes.vlines(days, low, high, color=theme.series[0], alpha=0.25, linewidth=4, label=interval)
        else:
            axes.fill_between(days, low, high, color=theme.series[0], alpha=0.2, linewidth=0, label=interval)
        axes.plot(days, joined([each.model.truth for each in stretch]), color=theme.ink, linewidth=1.2, marker=".",
                  markersize=2.5, label=truth)  # fmt: skip
    date_axis(axes)
