"""The charts of a run's report (hourly cost, curves, quality), as PNGs for the page and SVG for papers."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, Literal

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from gangway.render.drawing import BAR, DARK, LIGHT, PANEL_INCHES, ROW_INCHES, Theme, draw, name_rows
from gangway.render.rendering import number, unit_text
from gangway.trainer.records.quality import QualityRecord

_WORDS = {"interrupt": "interrupted", "kill": "killed", "resume": "resumed", "restart": "restarted"}
_NEAR = 0.03
"""Events closer than this share of the run share a mark."""
_MOST_LABELS = 6
_Dash = Literal["-"] | tuple[float, tuple[float, float]]
_DASHES: Final[tuple[_Dash, _Dash]] = ("-", (0, (5, 1.2)))
_ROOM_FOR_WORDS = 0.25
"""Share of a chart's width below which a session has no label."""


@dataclass(frozen=True)
class Chart:
    """A finished chart. `name`: of its files, without the suffix; `alt`: its content in words and values."""

    name: str
    alt: str
    caption: str
    light: bytes
    dark: bytes
    svg: bytes


def _chart(name: str, alt: str, caption: str, inches: float, paint: Callable[[Axes, Theme], None]) -> Chart:
    def drawn(theme: Theme, kind: Literal["png", "svg"]) -> bytes:
        return draw(lambda _, axes: paint(axes[0], theme), kind, theme, inches=inches)

    return Chart(name, alt, caption, drawn(LIGHT, "png"), drawn(DARK, "png"), drawn(LIGHT, "svg"))


def cost_chart(components: Sequence[Mapping[str, Any]], currency: str) -> Chart | None:
    """Hourly cost by component, dearest first, unpriced ones last; None without data."""
    if not components:
        return None
    rows = sorted(components, key=lambda row: -1.0 if row["hourly"] is None else row["hourly"], reverse=True)
    top = max((row["hourly"] or 0.0 for row in rows), default=0.0) or 1.0

    def paint(axes: Axes, theme: Theme) -> None:
        for place, row in enumerate(rows):
            standby = bool(row.get("standby"))
            axes.barh(
                place,
                row["hourly"] or 0.0,
                height=BAR,
                align="edge",
                color="none" if standby else theme.series[0],
                edgecolor=theme.series[0],
                linewidth=1,
                linestyle="--" if standby else "-",
            )
        values = (_hourly_text(row["hourly"], currency) + (", standby" if row.get("standby") else "") for row in rows)
        _name_bars(axes, theme, [(str(row["name"]), value) for row, value in zip(rows, values, strict=True)])
        axes.set_xlim(0, top)

    spoken = "; ".join(f"{row['name']}: {_hourly_text(row['hourly'], currency)}" for row in rows)
    return _chart(
        "cost-hourly",
        f"Bar chart of hourly cost in {currency} by component. {spoken}.",
        f"Hourly cost by component, {currency} per hour. Dashed: standby, billed only when a fallback steps in.",
        ROW_INCHES * len(rows),
        paint,
    )


def _hourly_text(hourly: float | None, currency: str) -> str:
    return "unknown" if hourly is None else number(hourly, currency)


def _name_bars(axes: Axes, theme: Theme, rows: Sequence[tuple[str, str]]) -> None:
    name_rows(axes, theme, rows)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)


def quality_chart(quality: QualityRecord) -> Chart | None:
    """The three values of a quality metric on one line; None if one is absent."""
    labelled = [
        ("untrained", quality.untrained),
        ("trained", quality.trained),
        ("real against real", quality.real_vs_real),
    ]
    values = [(label, figure.value) for label, figure in labelled if figure.value is not None]
    if len(values) < len(labelled):
        return None

    def paint(axes: Axes, theme: Theme) -> None:
        colours = (theme.quiet, theme.series[0], theme.quiet)
        top = max(value for _, value in values) or 1.0
        for place, ((_, value), colour) in enumerate(zip(values, colours, strict=True)):
            axes.barh(place, value, height=BAR, align="edge", color=colour)
        _name_bars(axes, theme, [(label, number(value)) for label, value in values])
        axes.set_xlim(0, top)

    spoken = ", ".join(f"{label} {number(value)}" for label, value in values)
    unit = f", {unit_text(quality.trained.unit)}" if quality.trained.unit else ""
    slug = "".join(letter if letter.isalnum() else "-" for letter in quality.name.lower())
    return _chart(
        f"quality-{slug}",
        f"Bar chart of {quality.name}: {spoken}. {quality.better.capitalize()} is better.",
        f"{quality.name}{unit}; {quality.better} is better.",
        ROW_INCHES * len(values),
        paint,
    )


Line = Mapping[str, Any]
Series = tuple[str, str]
"""The key and the label of a curve."""


@dataclass(frozen=True)
class Mark:
    """A vertical line for an event, at thousands of images."""

    kimg: float
    label: str


def curve_charts(stats: Sequence[Line]) -> list[Chart]:
    """Losses, throughput and gradient norms; empty without data lines. `stats`: lines of stats.jsonl."""
    sessions = _sessions(stats)
    if not sessions:
        return []
    events = marks(stats)
    losses = ("loss_g", "generator"), ("loss_d", "discriminator")
    norms = ("grad_norm_g", "generator"), ("grad_norm_d", "discriminator")
    return [
        _line_chart("losses", "Loss", "Loss of both networks", losses, sessions, events),
        _throughput_chart(sessions, events),
        _line_chart("gradients", "Gradient norm", "Gradient norm of both networks", norms, sessions, events),
    ]


def marks(stats: Sequence[Line]) -> list[Mark]:
    """Interruptions and resumptions; neighbours share a mark, in order."""
    reach = _NEAR * max((line["images"] / 1000 for line in stats), default=0.0)
    merged: list[Mark] = []
    for mark in _moments(stats):
        if merged and mark.kimg - merged[-1].kimg <= reach:
            labels = merged[-1].label.split(", ")
            label = merged[-1].label if mark.label in labels else f"{merged[-1].label}, {mark.label}"
            merged[-1] = Mark(merged[-1].kimg, label)
        else:
            merged.append(mark)
    return merged


def _moments(stats: Sequence[Line]) -> Iterator[Mark]:
    for line in sorted((line for line in stats if "event" in line), key=lambda line: float(line["images"])):
        words = [said for stem, said in _WORDS.items() if stem in str(line["event"])]
        if words:
            yield Mark(line["images"] / 1000, words[0])


def _sessions(stats: Sequence[Line]) -> list[list[Line]]:
    data = [line for line in stats if "event" not in line]
    return [list(lines) for _, lines in groupby(data, key=lambda line: line["session"])]


def _values(lines: Sequence[Line], key: str) -> list[float]:
    return [math.nan if line[key] is None else float(line[key]) for line in lines]


def _line_chart(
    name: str,
    axis: str,
    title: str,
    series: tuple[Series, Series],
    sessions: Sequence[Sequence[Line]],
    events: Sequence[Mark],
) -> Chart:
    def paint(axes: Axes, theme: Theme) -> None:
        for (key, _), colour, style in zip(series, theme.series[:2], _DASHES, strict=True):
            for lines in sessions:
                kimg = [line["kimg"] for line in lines]
                axes.plot(kimg, _values(lines, key), color=colour, linestyle=style, linewidth=1.5)
        _dress(axes, theme, axis, sessions, events)
        handles = [
            Line2D([], [], color=colour, linestyle=style, linewidth=1.5, label=label)
            for (_, label), colour, style in zip(series, theme.series[:2], _DASHES, strict=True)
        ]
        axes.legend(
            handles=handles, loc="upper left", bbox_to_anchor=(0, -0.17), ncols=2, frameon=False, labelcolor=theme.ink,
            borderaxespad=0, borderpad=0,
        )  # fmt: skip

    ends = " and ".join(f"{label} {number(_values(sessions[-1], key)[-1])}" for key, label in series)
    return _chart(
        name,
        f"Line chart: {title.lower()} over thousands of images shown; at the end {ends}. {_spoken(events)}",
        f"{title} over thousands of real images shown (kimg). {_legend(events)}".strip(),
        PANEL_INCHES,
        paint,
    )


def _throughput_chart(sessions: Sequence[Sequence[Line]], events: Sequence[Mark]) -> Chart:
    speeds = [value for lines in sessions for value in _values(lines, "images_per_sec")]
    top = max((value for value in speeds if math.isfinite(value)), default=1.0)

    def paint(axes: Axes, theme: Theme) -> None:
        for lines in sessions:
            kimg, speed = [line["kimg"] for line in lines], _values(lines, "images_per_sec")
            axes.plot(kimg, speed, color=theme.series[0], linewidth=1.5)
            axes.fill_between(kimg, speed, color=theme.series[0], alpha=0.12, linewidth=0)
            count = lines[0]["world_size"]
            text = f"{count} process{'' if count == 1 else 'es'}"
            if kimg[-1] - kimg[0] > _ROOM_FOR_WORDS * _span(sessions):
                axes.text(kimg[0] + 0.01 * _span(sessions), top * 0.05, text, color=theme.quiet)
        axes.set_ylim(0, top * 1.12)
        _dress(axes, theme, "Images per second", sessions, events)

    sizes = " then ".join(str(lines[0]["world_size"]) for lines in sessions)
    return _chart(
        "throughput",
        f"Line chart: images per second over thousands of images shown, at most {number(top)}; "
        f"processes: {sizes}. {_spoken(events)}",
        f"Throughput over thousands of real images shown (kimg), with the number of processes. {_legend(events)}",
        PANEL_INCHES,
        paint,
    )


def _span(sessions: Sequence[Sequence[Line]]) -> float:
    return float(max(line["kimg"] for lines in sessions for line in lines))


def _dress(axes: Axes, theme: Theme, axis: str, sessions: Sequence[Sequence[Line]], events: Sequence[Mark]) -> None:
    axes.grid(axis="y", color=theme.grid, linewidth=0.8)
    axes.set_xlim(0, _span(sessions) * 1.005)
    axes.set_xlabel("kimg", loc="right", color=theme.quiet)
    axes.set_title(axis, color=theme.quiet, pad=8 + 13 * min(len(events), 2))
    for place, mark in enumerate(events):
        axes.axvline(mark.kimg, color=theme.quiet, linewidth=1, linestyle=(0, (2, 2)))
        if len(events) <= _MOST_LABELS:
            # Every second label is higher, against overlaps.
            axes.annotate(
                mark.label,
                (mark.kimg, 1),
                (0, 3 + 13 * (place % 2)),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                ha="center",
                color=theme.quiet,
            )


def _spoken(events: Sequence[Mark]) -> str:
    if not events:
        return "No interruption."
    return "Marked: " + "; ".join(f"{mark.label} at {number(mark.kimg)} kimg" for mark in events) + "."


def _legend(events: Sequence[Mark]) -> str:
    if not events:
        return ""
    several = f"; {len(events)} of them" if len(events) > _MOST_LABELS else ""
    return f"Dashed verticals: the run was interrupted or resumed{several}."
