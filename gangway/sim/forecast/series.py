"""Series of values at equal steps, and their files: CSV or JSON with times and values.

    # simulated: where the values come from          (lines that begin with # are kept as the series' note)
    time,g_per_kwh
    2026-12-01T00:00Z,310

Strict: nothing is filled in, sorted or dropped silently.
"""

import csv
import io
import itertools
import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from gangway.components.core.findings import InputError
from gangway.components.core.safe_text import visible
from gangway.trainer.core.regular_files import read_file

MOST_VALUES = 200_000
_MOST_BYTES = 64 * 2**20
_YEARS = range(1971, 2200)
YEARS = f"from {_YEARS.start} to {_YEARS.stop - 1}"
_MOST = 1e30
"""Values get squared and summed."""
_TIME = "time"
_SHAPES = "CSV whose first line is time,NAME; or JSON [{time: ..., NAME: ...}, ...]"
_EXAMPLE = "write 2026-12-01T00:00Z"


@dataclass(frozen=True)
class Series:
    """Values at equal steps. `name`: with its unit, such as g_per_kwh; `of`: tells series of one name apart."""

    name: str
    start: datetime
    step: timedelta
    values: tuple[float, ...]
    note: str = ""
    of: str = ""

    def find_time(self, index: int) -> datetime:
        """The time of a value by index, which may be in the future."""
        return self.start + index * self.step

    def find_index(self, moment: datetime) -> int | None:
        """The index of the value at a time, if any."""
        index, rest = divmod(moment - self.start, self.step)
        return index if not rest and 0 <= index < len(self.values) else None

    def until(self, number: int) -> "Series":
        """The first `number` values."""
        return replace(self, values=self.values[:number])

    def write_csv(self) -> str:
        """As text for `read_series`."""
        lines = [f"# {line}" for line in self.note.splitlines()]
        rows = (f"{format_time(self.find_time(index))},{value:.10g}" for index, value in enumerate(self.values))
        return "\n".join([*lines, f"{_TIME},{self.name}", *rows, ""])


@dataclass(frozen=True)
class _Row:
    place: str
    moment: datetime
    value: float


def format_time(moment: datetime) -> str:
    """UTC, without seconds if they are 0."""
    utc = moment.astimezone(UTC)
    return utc.strftime("%Y-%m-%dT%H:%M:%SZ" if utc.second else "%Y-%m-%dT%H:%MZ")


def said_length(length: timedelta) -> str:
    """A duration in one unit.

    >>> said_length(timedelta(hours=36)), said_length(timedelta(days=2)), said_length(timedelta(seconds=90))
    ('36 h', '2 d', '90 s')
    """
    seconds = length.total_seconds()
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds % size == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


def read_series(path: Path, column: str | None = None) -> Series:
    """Read a file. `column`: the value, if there are several. InputError: what is wrong, and in which line."""
    return parse_series(file_text(path), str(path), column)


def file_text(path: Path) -> str:
    """Return a history file's text. InputError: unreadable, too large, or not text."""
    try:
        content = read_file(path, _MOST_BYTES)
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}", allowed=_SHAPES, fix="name a file") from None
    try:
        return content.decode("utf-8-sig")  # spreadsheets write a byte order mark
    except UnicodeDecodeError as error:
        raise InputError(
            str(path), f"no text: byte {error.start} is not UTF-8", allowed=_SHAPES, fix="save it as UTF-8"
        ) from None


def parse_series(text: str, place: str, column: str | None = None) -> Series:
    """Parse a file's text; see `read_series`."""
    as_json = text.lstrip()[:1] in ("[", "{")
    name, note, cells = _json_cells(text, place, column) if as_json else _csv_cells(text, place, column)
    rows = [_row(location, moment, value, name) for location, moment, value in cells]
    if len(rows) < 2:
        raise InputError(place, f"{len(rows)} value(s)", allowed="two at least", fix="give more of its history")
    check_number(len(rows), place)
    step = _get_step(rows)
    return Series(visible(name), rows[0].moment, step, tuple(row.value for row in rows), note)


def check_number(values: int, place: str) -> None:
    """Raise InputError if a series of so many values is too long."""
    if values > MOST_VALUES:
        raise InputError(
            place,
            "too many values",
            value=values,
            allowed=f"{MOST_VALUES:,}",
            fix="leave older ones out, or take means over longer steps",
        )


def in_years(moment: datetime) -> datetime:
    """Return the moment. ValueError: too close to the calendar's ends for time zones, steps and seasons."""
    if moment.year not in _YEARS:
        raise ValueError(f"no time {YEARS}")
    return moment


_Cells = Iterator[tuple[str, Any, Any]]


def _csv_cells(text: str, place: str, column: str | None) -> tuple[str, str, _Cells]:
    lines = text.splitlines()
    head = next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))
    note = "\n".join(visible(line[1:].strip()) for line in lines[:head])
    reader = csv.reader(io.StringIO("\n".join(lines[head:])), strict=True)
    try:
        rows = [(head + reader.line_num, row) for row in reader if row]
    except csv.Error as error:
        raise InputError(
            f"{place}, line {head + reader.line_num}", f"no CSV: {error}", allowed=_SHAPES, fix="correct the line"
        ) from None
    names = [cell.strip() for cell in rows[0][1]] if rows else []
    name = _column(names, place, column)
    at_time, at_value = names.index(_TIME), names.index(name)

    def cells() -> _Cells:
        for number, row in rows[1:]:
            location = f"{place}, line {number}"
            if len(row) != len(names):
                raise InputError(
                    location, f"{len(row)} cells", allowed=f"{len(names)}, as in the first line", fix="correct the line"
                )
            yield location, row[at_time].strip(), row[at_value].strip()

    return name, note, cells()


def _json_cells(text: str, place: str, column: str | None) -> tuple[str, str, _Cells]:
    try:
        points = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(place, f"no JSON: {error}", allowed=_SHAPES, fix="correct the file") from None
    if not isinstance(points, list) or not points or not all(isinstance(point, dict) for point in points):
        raise InputError(place, "no list of objects", allowed=_SHAPES, fix="write one object for each time")
    name = _column(list(points[0]), place, column)

    def cells() -> _Cells:
        for number, point in enumerate(points):
            location = f"{place}[{number}]"
            if lacking := [key for key in (_TIME, name) if key not in point]:
                raise InputError(location, f"lacks {lacking[0]!r}", allowed=_SHAPES, fix=f"add {lacking[0]!r}")
            yield location, point[_TIME], point[name]

    return name, "", cells()


def _column(names: Sequence[str], place: str, column: str | None) -> str:
    if _TIME not in names:
        raise InputError(
            place, f"no column {_TIME!r}", value=", ".join(names), allowed=_SHAPES, fix=f"name the times {_TIME!r}"
        )
    values = [name for name in names if name and name != _TIME]
    if column is not None and column not in values:
        raise InputError.not_among("--column", f"no such column in {place}", column, values)
    if not values:
        raise InputError(place, "no column of values", allowed=_SHAPES, fix="add one, named with its unit")
    if column is None and len(values) > 1:
        raise InputError(
            place, "several columns of values", value=", ".join(values), allowed="one, or --column",
            fix=f"--column {values[0]}",
        )  # fmt: skip
    return column or values[0]


def _row(place: str, moment: Any, value: Any, name: str) -> _Row:
    try:
        if not isinstance(moment, str):
            raise ValueError
        at = in_years(datetime.fromisoformat(moment))
    except ValueError:
        raise InputError(
            f"{place}: {_TIME}", "no time", value=moment,
            allowed=f"a date and time with its zone, ISO 8601, {YEARS}", fix=_EXAMPLE,
        ) from None  # fmt: skip
    if at.tzinfo is None:
        raise InputError(
            f"{place}: {_TIME}", "has no time zone", value=moment, allowed="a time with its zone, ISO 8601",
            fix=f"write {moment}Z for UTC",
        )  # fmt: skip
    try:
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not abs(number) <= _MOST:  # nor is NaN
        raise InputError(
            f"{place}: {name}",
            "no number",
            value=value,
            allowed=f"a number, {_MOST:g} at most",
            fix="put what was measured there, or begin the file after this line",
        )
    return _Row(place, at.astimezone(UTC), number)


def _get_step(rows: Sequence[_Row]) -> timedelta:
    steps = [later.moment - earlier.moment for earlier, later in itertools.pairwise(rows)]
    for index, step in enumerate(steps):
        if step <= timedelta(0):
            raise _clock_back(rows[index], rows[index + 1])
    counts = Counter(steps)
    step = max(counts, key=lambda each: (counts[each], -each))
    for index, each in enumerate(steps):
        if each != step:
            raise _uneven(rows[index], rows[index + 1], step)
    return step


def _clock_back(earlier: _Row, later: _Row) -> InputError:
    same = earlier.moment == later.moment
    return InputError(
        f"{later.place}: {_TIME}",
        "a second value for the time of the row before" if same else "the clock goes back",
        value=format_time(later.moment),
        allowed=f"later than {format_time(earlier.moment)}, the row before",
        fix="leave one of the two out" if same else "sort the rows by time, in UTC where clocks change in autumn",
    )


def _uneven(earlier: _Row, later: _Row, step: timedelta) -> InputError:
    number, rest = divmod(later.moment - earlier.moment, step)
    place, value = f"{later.place}: {_TIME}", format_time(later.moment)
    allowed = f"{format_time(earlier.moment + step)}, {said_length(step)} after the row before"
    if rest or number < 1:
        return InputError(
            place,
            f"irregular: {said_length(later.moment - earlier.moment)} after the row before",
            value=value,
            allowed=allowed,
            fix=f"bring all values to steps of {said_length(step)}, by means over each",
        )
    lacking = f"{number - 1} value is" if number == 2 else f"{number - 1} values are"
    return InputError(
        place,
        f"a gap: {lacking} lacking",
        value=value,
        allowed=allowed,
        fix="add what was measured, or begin the file at this row",
    )
