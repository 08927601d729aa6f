"""Plots a forecast: the end of its history, the interval, and the baseline."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from matplotlib.axes import Axes

from components.core.findings import InputError
from components.core.whole_files import write_whole
from gangway.finops.forecasts.tables import Answer
from gangway.render.drawing import LIGHT, as_days, date_axis, draw, legend_size

_KINDS: tuple[Literal["png", "svg"], ...] = ("png", "svg")
_HISTORY = 3
"""Plotted history, in horizons."""


def check_plot(path: Path) -> None:
    """Raise InputError for an unsupported file suffix."""
    if path.suffix.lstrip(".") not in _KINDS:
        raise InputError(
            "--plot", "no picture of that kind", value=str(path), allowed=".png, .svg",
            fix=f"--plot {path.with_suffix('.png')}",
        )  # fmt: skip


def write_plot(answer: Answer, path: Path) -> Path:
    """Write the plot in the format of the suffix. InputError: cannot be written."""
    return write_whole(path, draw_forecast(answer, "svg" if path.suffix == ".svg" else "png"))


def draw_forecast(answer: Answer, kind: Literal["png", "svg"]) -> bytes:
    """Draw the plot as bytes of a file of that kind."""
    interval = f"{answer.setting.level:.0%} interval"
    labels = ("history", "seasonal naive", "middle", interval)

    def paint(sheet: object, panels: Sequence[Axes]) -> None:
        axes, series, number = panels[0], answer.series, answer.model.origin
        axes.spines["left"].set(visible=True, color=LIGHT.grid)
        axes.grid(color=LIGHT.grid, linewidth=0.8)
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
        axes.set_title(f"{series.name}{simulated}", color=LIGHT.ink)
        columns, _ = legend_size(labels)
        axes.legend(labelcolor=LIGHT.ink, ncols=columns, loc="upper left", bbox_to_anchor=(0, -0.2), borderaxespad=0)

    return draw(paint, kind, LIGHT, legend_inches=legend_size(labels)[1])
