"""Follows the lines of a run's stats.jsonl: each look reads only what was added, and keeps a few hundred points."""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gangway.components.core.safe_text import all_visible
from gangway.live.dashboard.files import clip, read_part
from gangway.live.dashboard.index import RunRow, below, parse_line, parse_number
from gangway.runs.run_folders import STATS
from gangway.trainer.config.values.control import ControlSettings
from gangway.trainer.records.decisions import CONTROLLER, OF_DECISIONS, DecisionRecord, decisions

_MOST_BYTES = 4_000_000
"""Per look, so that a long log takes several."""
_MOST_POINTS = 400
_MOST_RUNS, _MOST_EVENTS, _MOST_NOTES, _MOST_METRICS, _MOST_SESSIONS = 24, 400, 20, 6, 1000
SERIES = ("images_per_sec", "loss_g", "loss_d", "watts")
_SAID = ("start", "resume", "interrupt", "failed", "done", "hint")
"""Events that are listed."""


class Point(NamedTuple):
    """Values of SERIES after so many thousand images."""

    kimg: float
    values: tuple[float | None, ...]


class Note(NamedTuple):
    """An event of a run: seconds since 1970, thousands of images, and its text."""

    at: float
    kimg: float
    text: str


class RunLines:
    """What is known of one run's log so far. `is_behind`: a part of it is not read yet."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self.quality: dict[str, list[tuple[float, float]]] = {}
        self.notes: list[Note] = []
        self.last: Mapping[str, Any] = {}
        self.device = self.price_source = ""
        self.spent_usd: dict[int, float] = {}
        self.offset = self.size = 0
        self._stride, self._seen = 1, 0
        self._events: list[dict[str, Any]] = []

    @property
    def is_behind(self) -> bool:
        """Whether the next look reads more."""
        return self.size - self.offset > _MOST_BYTES // 2

    @property
    def controller(self) -> str:
        """The controller's choice of policy; empty without a controller."""
        asked = [line for line in self._events if line.get("event") == CONTROLLER]
        try:
            return ControlSettings.model_validate(asked[-1]["settings"]).choice if asked else ""
        except (LookupError, ValueError):
            return "unknown: its settings are of another version"

    @property
    def decisions(self) -> tuple[DecisionRecord, ...]:
        """Of the controller, the newest last. ValueError: an invalid line."""
        try:
            return tuple(decisions(self._events))
        except (ArithmeticError, LookupError, OSError, TypeError) as error:
            raise ValueError(str(error)) from None

    def add(self, content: bytes) -> None:
        """Take complete lines."""
        for text in content.split(b"\n"):
            line = parse_line(text)
            images = parse_number(line.get("images"))
            if images is None:
                continue
            if "event" in line:
                self._add_event(all_visible(line), images / 1000)
            else:
                self._add_point(line, images / 1000)

    def _add_point(self, line: Mapping[str, Any], kimg: float) -> None:
        self.last = line
        while self.points and self.points[-1].kimg >= kimg:  # resumed from before it
            self.points.pop()
        self._seen += 1
        usd_per_hour, wall_sec = parse_number(line.get("usd_per_hour")), parse_number(line.get("wall_sec"))
        if usd_per_hour is not None and wall_sec is not None and line.get("session") in range(_MOST_SESSIONS):
            self.spent_usd[line["session"]] = usd_per_hour * wall_sec / 3600
        if self._seen % self._stride:
            return
        self.points.append(Point(kimg, tuple(parse_number(line.get(name)) for name in SERIES)))
        if len(self.points) >= 2 * _MOST_POINTS:
            self.points, self._stride = self.points[1::2], 2 * self._stride

    def _add_event(self, line: dict[str, Any], kimg: float) -> None:
        event = str(line["event"])
        if event in ("start", "resume"):
            self.device = clip(line.get("device", ""))
            context = line.get("context")
            price = context.get("usd_per_hour") if isinstance(context, dict) else None
            self.price_source = clip(price.get("source", ""), 200) if isinstance(price, dict) else ""
        if event in (CONTROLLER, "resume", *OF_DECISIONS):
            self._events = [*self._events, line][-_MOST_EVENTS:]
        for name, value in _judged(line) if event == "quality" else ():
            if name in self.quality or len(self.quality) < _MOST_METRICS:
                self.quality[name] = [*self.quality.get(name, []), (kimg, value)][-_MOST_POINTS:]
        if event in _SAID:
            why = line.get("cause") or line.get("why") or ""
            text = line.get("text", "") if event == "hint" else f"{event}{f': {why}' if why else ''}"
            note = Note(parse_number(line.get("time")) or 0.0, kimg, clip(text, 300))
            self.notes = [*self.notes, note][-_MOST_NOTES:]


def _judged(line: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    quality = line.get("quality")
    trained = quality.get("trained") if isinstance(quality, dict) else None
    value = parse_number(trained.get("value")) if isinstance(trained, dict) else None
    if isinstance(quality, dict) and value is not None:
        yield clip(quality.get("name", ""), 20), value


class LineCache:
    """The logs of the runs that were looked at last. Safe to use from several threads."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, RunLines] = OrderedDict()
        self._lock = threading.Lock()

    def look(self, row: RunRow) -> RunLines:
        """Read on, by at most 4 MB. OSError: it cannot be read; a run without a log is empty."""
        with self._lock:
            lines = self._known.setdefault(row.key, RunLines())
            self._known.move_to_end(row.key)
            while len(self._known) > _MOST_RUNS:
                self._known.popitem(last=False)
            try:
                part = read_part(row.root, below(row, STATS), lines.offset, _MOST_BYTES)
            except FileNotFoundError:
                return lines
            if part.size < lines.offset:  # replaced by another log
                lines = self._known[row.key] = RunLines()
                part = read_part(row.root, below(row, STATS), 0, _MOST_BYTES)
            whole, newline, _ = part.content.rpartition(b"\n")
            if not newline and len(part.content) == _MOST_BYTES:
                whole, newline = part.content, b""  # a line longer than any of a run
            lines.add(whole)
            lines.offset, lines.size = part.start + len(whole) + len(newline), part.size
            return lines


def series(lines: RunLines, name: str) -> Sequence[tuple[float, float | None]]:
    """One of SERIES as points of a chart."""
    place = SERIES.index(name)
    return [(point.kimg, point.values[place]) for point in lines.points]
