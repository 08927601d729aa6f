"""Plots of a forecast, and of the hours that `gangway when` chooses in it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from matplotlib.axes import Axes

from gangway.components.core.whole_files import write_whole
from gangway.finops.forecasts.hours import Answer as HoursAnswer
from gangway.finops.forecasts.tables import Answer
from gangway.render.drawing import LIGHT, as_days, date_axis, draw, legend_size

_HISTORY = 3
"""Plotted history, in horizons."""


def write_plot(answer: Answer, path: Path) -> Path:
    """Write the plot in the format of the suffix. InputError: cannot be written."""
    return write_whole(path, draw_forecast(answer, "svg" if path.suffix == ".svg" else "png"))


def draw_forecast(answer: Answer, kind: Literal["png", "svg"]) -> bytes:
    """Draw the end of the history, the forecast with its interval, and the baseline."""
    interval = f"{answer.setting.level:.0%} interval"
    labels = ("history", "seasonal naive", "middle", interval)

    def paint(sheet: object, panels: Sequence[Axes]) -> None:
        axes, series, number = panels[0], answer.series, answer.model.origin
        history_range = range(max(0, number - _HISTORY * answer.setting.horizon), number)
        coming = range(number, number + answer.setting.horizon)
        past, future = (as_days(map(series.find_time, indices)) for indices in (history_range, coming))
        axes.plot(
            past, [series.values[index] for index in history_range], color=LIGHT.ink, linewidth=1.4, label=labels[0]
        )
        axes.plot(future, answer.baseline.middle, color=LIGHT.series[1], linewidth=1.4, linestyle="--", label=labels[1])
        axes.plot(future, answer.model.middle, color=LIGHT.series[0], linewidth=2, label=labels[2])
        axes.fill_between(
            future, answer.model.low, answer.model.high, color=LIGHT.series[0], alpha=0.2, linewidth=0, label=labels[3]
        )
        date_axis(axes)
        simulated = ", SIMULATED" if series.note.startswith("SIMULATED") else ""
        _finish(axes, f"{series.name}{simulated}", labels)

    return draw(paint, kind, LIGHT, legend_inches=legend_size(labels)[1])


def draw_hours(answer: HoursAnswer, kind: Literal["png", "svg"]) -> bytes:
    """Draw the forecast with its interval, and the chosen hours."""
    labels = ("expected", "interval", "training")

    def paint(sheet: object, panels: Sequence[Axes]) -> None:
        axes, forecast = panels[0], answer.forecast
        series = forecast.middle
        times = as_days(map(series.find_time, range(len(series.values) + 1)))
        # A value holds until the next: draw the last one to the end of its step.
        low, middle, high = ([*each.values, each.values[-1]] for each in (forecast.low, series, forecast.high))
        axes.fill_between(times, low, high, step="post", color=LIGHT.series[0], alpha=0.2, linewidth=0, label=labels[1])
        axes.step(times, middle, where="post", color=LIGHT.series[0], linewidth=2, label=labels[0])
        for number, (begins, ends, _) in enumerate(answer.stints()):
            label = labels[2] if number == 0 else None
            axes.axvspan(*as_days((begins, ends)), color=LIGHT.series[1], alpha=0.25, linewidth=0, label=label)
        date_axis(axes)
        _finish(axes, f"{series.name}: hours to train in", labels)

    return draw(paint, kind, LIGHT, legend_inches=legend_size(labels)[1])


def _finish(axes: Axes, title: str, labels: Sequence[str]) -> None:
    axes.spines["left"].set(visible=True, color=LIGHT.grid)
    axes.grid(color=LIGHT.grid, linewidth=0.8)
    axes.set_title(title, color=LIGHT.ink)
    columns, _ = legend_size(labels)
    axes.legend(labelcolor=LIGHT.ink, ncols=columns, loc="upper left", bbox_to_anchor=(0, -0.2), borderaxespad=0)
