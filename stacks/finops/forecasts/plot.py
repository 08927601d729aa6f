"""The picture of a forecast: the end of its history, the interval, and the baseline beside it."""

from collections.abc import Iterable, Sequence
from datetime import UTC
from pathlib import Path
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num

from components.core.findings import InputError
from components.forecast.series import Series
from stacks.finops.forecasts.tables import Answer
from stacks.report.drawing import LIGHT, draw, legend_size
from stacks.report.rendering import write_whole

_KINDS: tuple[Literal["png", "svg"], ...] = ("png", "svg")
_HISTORY = 3
"""So many horizons of it are shown."""


def check_plot(path: Path) -> None:
    """InputError for a file of another kind."""
    if path.suffix.lstrip(".") not in _KINDS:
        raise InputError(
            "--plot", "no picture of that kind", value=str(path), allowed=".png, .svg",
            fix=f"--plot {path.with_suffix('.png')}",
        )  # fmt: skip


def write_plot(answer: Answer, path: Path) -> Path:
    """Writes the picture; its kind is that of the file's ending. InputError: it cannot be written."""
    return write_whole(path, draw_forecast(answer, "svg" if path.suffix == ".svg" else "png"))


def draw_forecast(answer: Answer, kind: Literal["png", "svg"]) -> bytes:
    """The picture as bytes of a file of that kind."""
    interval = f"{answer.setting.level:.0%} interval"
    labels = ("history", "seasonal naive", "middle", interval)

    def paint(sheet: object, panels: Sequence[Axes]) -> None:
        axes, series, number = panels[0], answer.series, answer.model.origin
        axes.spines["left"].set(visible=True, color=LIGHT.grid)
        axes.grid(color=LIGHT.grid, linewidth=0.8)
        shown = range(max(0, number - _HISTORY * answer.setting.horizon), number)
        coming = range(number, number + answer.setting.horizon)
        past, future = (_days(series, indices) for indices in (shown, coming))
        axes.plot(past, [series.values[index] for index in shown], color=LIGHT.ink, linewidth=1.4, label=labels[0])
        axes.plot(future, answer.baseline.middle, color=LIGHT.series[1], linewidth=1.4, linestyle="--", label=labels[1])
        axes.plot(future, answer.model.middle, color=LIGHT.series[0], linewidth=2, label=labels[2])
        axes.fill_between(
            future, answer.model.low, answer.model.high, color=LIGHT.series[0], alpha=0.2, linewidth=0, label=labels[3]
        )
        locator = AutoDateLocator(tz=UTC, minticks=3, maxticks=7)  # type: ignore[no-untyped-call]  # matplotlib's has none
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]
        axes.margins(x=0)
        simulated = ", SIMULATED" if series.note.startswith("SIMULATED") else ""
        axes.set_title(f"{series.name}{simulated}", color=LIGHT.ink)
        columns, _ = legend_size(labels)
        axes.legend(labelcolor=LIGHT.ink, ncols=columns, loc="upper left", bbox_to_anchor=(0, -0.2), borderaxespad=0)

    return draw(paint, kind, LIGHT, legend_inches=legend_size(labels)[1])


def _days(series: Series, indices: Iterable[int]) -> list[float]:
    """When these values were or will be, as matplotlib counts."""
    return [float(date2num(series.time_of(index))) for index in indices]  # type: ignore[no-untyped-call]
