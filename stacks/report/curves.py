"""A run's lines of statistics, read from its directory, and drawn as curves."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes

from components.core.findings import InputError
from stacks.report.plots import Chart, Theme, render
from stacks.report.rendering import number

_DRAWN = (
    *("images", "kimg", "images_per_sec", "loss_g", "loss_d", "grad_norm_g", "grad_norm_d", "energy_joules"),
    *("wall_sec", "cpu_utilisation", "gpu_utilisation", "host_memory_gib", "rss_gib", "gpu_gib", "mfu", "world_size"),
)
"""Of a line of statistics: numbers where they are there."""
_FIX = "fetch it anew, or take it away: tables need the record alone"


def read_stats(path: Path, needed: Sequence[str] = ()) -> tuple[dict[str, Any], ...]:
    """The whole lines of a stats.jsonl; none where there is no such file. One still being written is left out.

    Args:
        path: of the file.
        needed: what each line of statistics must have besides, be it null.

    InputError: it cannot be read, or has a line that is none of statistics and of no event, or lacks something.
    """
    try:
        complete = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror or error}", fix="fetch it anew") from None
    lines = ((number, text) for number, text in enumerate(complete.split(b"\n"), 1) if text.strip())
    return tuple(_parse(path, number, text, needed) for number, text in lines)


def _parse(path: Path, number: int, text: bytes, needed: Sequence[str]) -> dict[str, Any]:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(str(path), f"has a line that is no JSON: {error}", value=f"line {number}", fix=_FIX) from None
    why = _odd(line, needed)
    if why:
        shown = text[:80].decode("utf-8", "replace")
        raise InputError(f"{path}: line {number}", f"is no line of a run: {why}", value=shown, fix=_FIX)
    assert isinstance(line, dict), "all else is odd"
    return line


def _odd(line: object, extra: Sequence[str]) -> str:
    """What is wrong with a line; empty for nothing."""
    if not isinstance(line, dict):
        return "it is no JSON object"
    needed = ("images",) if "event" in line else ("images", "session", "kimg")
    lacking = [key for key in needed if not _is_number(line.get(key))]
    if lacking:
        return f"{lacking[0]} is no number"
    if "event" in line:
        return "" if isinstance(line["event"], str) else "event is no word"
    if absent := [key for key in extra if key not in line]:
        return f"it lacks {', '.join(absent)}"
    wrong = [key for key in _DRAWN if not isinstance(line.get(key), int | float | None)]
    return f"{wrong[0]} is no number" if wrong else _odd_energy(line.get("energy"))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _odd_energy(energy: object) -> str:
    if energy is None:
        return ""
    if not isinstance(energy, Mapping):
        return "energy is not by device"
    whole = all(isinstance(one, list) and len(one) == 3 for one in energy.values())
    joules = whole and all(isinstance(one[0], int | float | None) for one in energy.values())
    return "" if joules else "energy is not joules, provenance and method of each device"


NEEDED = ("loss_g", "loss_d", "grad_norm_g", "grad_norm_d", "images_per_sec", "world_size")
"""What each line of statistics must have to be drawn, besides its place in the run; null where it was not measured."""

Line = Mapping[str, Any]

_WORDS = {"interrupt": "interrupted", "kill": "killed", "resume": "resumed", "restart": "restarted"}
_NEAR = 0.03
"""Events closer than this share of the run get one mark."""
_MOST_LABELS = 6


@dataclass(frozen=True)
class Mark:
    """A moment of the run worth a vertical line: where, in thousands of images, and what happened."""

    kimg: float
    label: str


class _Series(NamedTuple):
    """A column of stats.jsonl and how the chart calls it."""

    key: str
    label: str


def curve_charts(stats: Sequence[Line]) -> list[Chart]:
    """Losses, throughput and gradient norms, from the parsed lines of stats.jsonl; empty when there is no data line.
    `stats`: data lines {images, step, kimg, images_per_sec, loss_g, loss_d, r1, grad_norm_g, grad_norm_d,
    world_size, session, ...} and event lines {event, images, time, ...}.
    """
    sessions = _sessions(stats)
    if not sessions:
        return []
    events = marks(stats)
    losses = (_Series("loss_g", "generator"), _Series("loss_d", "discriminator"))
    norms = (_Series("grad_norm_g", "generator"), _Series("grad_norm_d", "discriminator"))
    return [
        _line_chart("losses", "Loss", "Loss of both networks", losses, sessions, events),
        _throughput_chart(sessions, events),
        _line_chart("gradients", "Gradient norm", "Gradient norm of both networks", norms, sessions, events),
    ]


def marks(stats: Sequence[Line]) -> list[Mark]:
    """The interruptions and resumptions among the event lines; neighbours share a mark, saying both in order."""
    found = list(_moments(stats))
    reach = _NEAR * max((line["images"] / 1000 for line in stats), default=0.0)
    merged: list[Mark] = []
    for mark in found:
        if merged and mark.kimg - merged[-1].kimg <= reach:
            said = merged[-1].label.split(", ")
            label = merged[-1].label if mark.label in said else f"{merged[-1].label}, {mark.label}"
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


def _last(sessions: Sequence[Sequence[Line]], key: str) -> float:
    return _values(sessions[-1], key)[-1]


def _line_chart(
    name: str,
    axis: str,
    title: str,
    series: tuple[_Series, _Series],
    sessions: Sequence[Sequence[Line]],
    events: Sequence[Mark],
) -> Chart:
    def draw(axes: Axes, theme: Theme) -> None:
        for (key, _), colour, style in zip(series, (theme.first, theme.second), ("-", (0, (5, 1.2))), strict=True):
            for lines in sessions:
                kimg = [line["kimg"] for line in lines]
                axes.plot(kimg, _values(lines, key), color=colour, linestyle=style, linewidth=1.5)
        _name_lines(axes, theme, sessions, series)
        _dress(axes, theme, axis, sessions, events)

    ends = " and ".join(f"{label} {number(_last(sessions, key))}" for key, label in series)
    return render(
        name,
        f"Line chart: {title.lower()} over thousands of images shown; at the end {ends}. {_spoken(events)}",
        f"{title} over thousands of real images shown (kimg). {_legend(events)}".strip(),
        3.3,
        draw,
    )


def _throughput_chart(sessions: Sequence[Sequence[Line]], events: Sequence[Mark]) -> Chart:
    speeds = [value for lines in sessions for value in _values(lines, "images_per_sec")]
    top = max((value for value in speeds if math.isfinite(value)), default=1.0)

    def draw(axes: Axes, theme: Theme) -> None:
        for lines in sessions:
            kimg, speed = [line["kimg"] for line in lines], _values(lines, "images_per_sec")
            axes.plot(kimg, speed, color=theme.first, linewidth=1.5)
            axes.fill_between(kimg, speed, color=theme.first, alpha=0.12, linewidth=0)
            count = lines[0]["world_size"]
            text = f"{count} process{'' if count == 1 else 'es'}"
            axes.text(kimg[0] + 0.01 * _span(sessions), top * 0.05, text, fontsize=8.5, color=theme.quiet)
        axes.set_ylim(0, top * 1.12)
        _dress(axes, theme, "Images per second", sessions, events)

    sizes = " then ".join(str(lines[0]["world_size"]) for lines in sessions)
    return render(
        "throughput",
        f"Line chart: images per second over thousands of images shown, at most {number(top)}; "
        f"processes: {sizes}. {_spoken(events)}",
        f"Throughput over thousands of real images shown (kimg), with the number of processes. {_legend(events)}",
        2.9,
        draw,
    )


def _span(sessions: Sequence[Sequence[Line]]) -> float:
    return float(max(line["kimg"] for lines in sessions for line in lines))


def _name_lines(axes: Axes, theme: Theme, sessions: Sequence[Sequence[Line]], series: tuple[_Series, _Series]) -> None:
    """Each line's name at its end, where the eye already is; moved apart where the lines end close together."""
    first, second = (_last(sessions, key) for key, _ in series)
    bottom, top = axes.get_ylim()
    crowded = abs(first - second) < 0.08 * (top - bottom)
    up = 7 if first >= second else -7
    for value, (_, label), colour, shift in zip(
        (first, second), series, (theme.first, theme.second), (up, -up), strict=True
    ):
        if math.isfinite(value):
            axes.annotate(
                label,
                (sessions[-1][-1]["kimg"], value),
                (7, shift if crowded else 0),
                textcoords="offset points",
                color=colour,
                fontsize=9,
                va="center",
            )


def _dress(axes: Axes, theme: Theme, axis: str, sessions: Sequence[Sequence[Line]], events: Sequence[Mark]) -> None:
    """Grid, axis names and the marks of events."""
    axes.grid(axis="y", color=theme.grid, linewidth=0.8)
    axes.set_xlim(0, _span(sessions) * 1.005)
    axes.set_xlabel("kimg", color=theme.quiet, fontsize=9)
    axes.set_title(axis, loc="left", color=theme.quiet, fontsize=9, pad=16)
    for place, mark in enumerate(events):
        axes.axvline(mark.kimg, color=theme.quiet, linewidth=1, linestyle=(0, (2, 2)))
        if len(events) <= _MOST_LABELS:
            # Every second label sits a little higher, so that neighbours do not run into each other.
            axes.annotate(
                mark.label,
                (mark.kimg, 1),
                (0, 3 + 10 * (place % 2)),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                ha="center",
                fontsize=8.5,
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
