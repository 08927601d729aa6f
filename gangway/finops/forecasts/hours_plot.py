"""Plots chosen hours: the forecast with its interval, and the stints below."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num

from gangway.finops.forecasts.hours import Asked
from gangway.render.drawing import LIGHT, draw, legend_size


def draw_hours(asked: Asked, kind: Literal["png", "svg"]) -> bytes:
    """Draw the plot as bytes of a file of that kind."""
    labels = ("expected", "interval", "training")

    def paint(sheet: object, panels: Sequence[Axes]) -> None:
        axes, series = panels[0], asked.known.middle
        axes.spines["left"].set(visible=True, color=LIGHT.grid)
        axes.grid(color=LIGHT.grid, linewidth=0.8)
        times = [_day(series.find_time(index)) for index in range(len(series.values) + 1)]
        # A value holds until the next: draw the last one to the end of its step.
        low, middle, high = ([*each.values, each.values[-1]] for each in (asked.known.low, series, asked.known.high))
        axes.fill_between(times, low, high, step="post", color=LIGHT.series[0], alpha=0.2, linewidth=0, label=labels[1])
        axes.step(times, middle, where="post", color=LIGHT.series[0], linewidth=2, label=labels[0])
        for number, (begins, ends, _) in enumerate(asked.stints()):
            axes.axvspan(
                _day(begins), _day(ends), color=LIGHT.series[1], alpha=0.25, linewidth=0,
                label=labels[2] if number == 0 else None,
            )  # fmt: skip
        locator = AutoDateLocator(tz=UTC, minticks=3, maxticks=7)  # type: ignore[no-untyped-call]  # matplotlib's has none
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]
        axes.margins(x=0)
        axes.set_title(f"{series.name}: hours to train in", color=LIGHT.ink)
        columns, _ = legend_size(labels)
        axes.legend(labelcolor=LIGHT.ink, ncols=columns, loc="upper left", bbox_to_anchor=(0, -0.2), borderaxespad=0)

    return draw(paint, kind, LIGHT, legend_inches=legend_size(labels)[1])


def _day(moment: datetime) -> float:
    return float(date2num(moment))  # type: ignore[no-untyped-call]
