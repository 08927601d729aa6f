"""A forecast of the grid's carbon intensity, from a file or the API of one of three services; or of a price, from a
file.

    time,g_per_kwh                              a CSV file; or the same two keys in a list of JSON objects
    2026-12-01T00:00Z,310                       (usd_per_hour in place of g_per_kwh: a price)

Lines before the first that begin with # are a note about the source. Each value holds until the next, the last for as
long as the one before it. Supported answers: Electricity Maps (`forecast` of `carbonIntensity`), WattTime version 3
(`data` of `point_time` and `value`, in lbs_co2_per_mwh) and the Carbon Aware SDK (`forecastData` of `timestamp`,
`duration` and `value`, g/kWh). Marginal and average intensities are different quantities: the limit must use the same
one as the source.
"""

import csv
import io
import itertools
import json
import os
from bisect import bisect_right
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from gangway.trainer.core.errors import TrainerError, visible
from gangway.trainer.core.files import read_input

TOKEN_VARIABLE = "GANGWAY_CARBON_TOKEN"
_GRAMS_PER_KWH_OF_LBS_PER_MWH = 0.45359237
_TIMEOUT_SEC = 30.0
_MOST_BYTES = 10_000_000
_SHOWN = 120  # Characters of an answer that a message quotes
_TIME = "time"


class Quantity(NamedTuple):
    """What is forecast."""

    word: str  # the first word of a condition
    column: str
    unit: str
    best: str  # name of the lowest value
    digits: str
    below: float  # upper limit of every value; `absurd` is the message for larger ones
    absurd: str
    services: bool  # whether the services know it

    def in_words(self, value: float) -> str:
        """A value with its unit."""
        return f"{value:{self.digits}} {self.unit}"

    @property
    def shapes(self) -> str:
        """The formats that can be read."""
        services = "; or an answer of Electricity Maps, WattTime or the Carbon Aware SDK" if self.services else ""
        return f"CSV with {_TIME},{self.column}; JSON [{{{_TIME}, {self.column}}}, ...]{services}"


CARBON = Quantity("carbon", "g_per_kwh", "g/kWh", "cleanest", ".0f", 5000, "no grid emits that", services=True)
PRICE = Quantity("usd", "usd_per_hour", "USD/h", "cheapest", ".4g", 1e6, "no machine costs that", services=False)
QUANTITIES = (CARBON, PRICE)


class Interval(NamedTuple):
    """One value and its validity."""

    start: datetime
    end: datetime
    value: float


class Forecast(NamedTuple):
    """A forecast: `intervals` in order, gaps allowed; `source` without secrets; `note` is the file's comment."""

    intervals: tuple[Interval, ...]
    source: str
    note: str = ""

    @property
    def end(self) -> datetime:
        """End of the forecast."""
        return self.intervals[-1].end

    def mean(self, start: datetime, end: datetime) -> float | None:
        """Time-weighted mean over a window; None if the forecast does not cover all of it."""
        known, weighted = 0.0, 0.0
        first = max(bisect_right(self.intervals, start, key=lambda interval: interval.start) - 1, 0)
        rest = (self.intervals[index] for index in range(first, len(self.intervals)))
        for interval in itertools.takewhile(lambda interval: interval.start < end, rest):
            overlap = (min(end, interval.end) - max(start, interval.start)).total_seconds()
            if overlap > 0:
                known += overlap
                weighted += overlap * interval.value
        wanted = (end - start).total_seconds()
        return weighted / known if known and known >= wanted - 1e-6 else None


def read_forecast(where: str, of: Quantity = CARBON) -> Forecast:
    """Reads a file or address (TrainerError); $GANGWAY_CARBON_TOKEN is only sent encrypted or to this machine."""
    if where.startswith(("http://", "https://")):
        try:
            place = _without_secrets(where)
        except ValueError as error:
            # The address is not repeated: it may hold a password or a token.
            raise TrainerError(
                place="--forecast",
                problem=f"no address: {error}",
                allowed="https://HOST/PATH",
                fix="check its host and its port",
            ) from None
        return parse_forecast(_fetch(where), place, of)
    content = read_input(Path(where), "name a forecast's file, or an address that begins with https://")
    return parse_forecast(content, where, of)


def parse_forecast(content: bytes, place: str, of: Quantity = CARBON) -> Forecast:
    """Parse a file or an answer (TrainerError: unknown shape, or a bad value)."""
    # Spreadsheets write a byte order mark.
    text = content.decode("utf-8-sig", "replace").strip()
    note = list(itertools.takewhile(lambda line: line.startswith("#"), text.splitlines()))
    try:
        as_json = text[:1] in ("{", "[")
        points = _json_points(json.loads(text), of) if as_json else _csv_points(text, len(note), of)
        intervals = _intervals(points, of)
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError, csv.Error) as error:
        why = f"it lacks {error}" if isinstance(error, KeyError) else error
        raise TrainerError(
            place=place, problem=f"is no forecast: {why}", allowed=of.shapes, fix="see docs/forecast.md for an example"
        ) from None
    return Forecast(intervals, place, " ".join(visible(line.lstrip("#").strip()) for line in note))


class _Point(NamedTuple):
    start: datetime
    value: float
    length: timedelta | None = None


def _csv_points(text: str, skipped: int, of: Quantity) -> list[_Point]:
    rows = csv.DictReader(io.StringIO("\n".join(text.splitlines()[skipped:])))
    columns = (_TIME, of.column)
    if missing := [column for column in columns if column not in (rows.fieldnames or ())]:
        raise ValueError(f"its first line names no column {' and no '.join(missing)}")
    found: list[_Point] = []
    for row in rows:
        moment, value = (row[column] or "" for column in columns)
        try:
            found.append(_Point(_parse_time(moment), float(value)))
        except ValueError as error:
            raise ValueError(f"line {skipped + rows.line_num}: {error}") from None
    return found


def _json_points(value: Any, of: Quantity) -> list[_Point]:
    if isinstance(value, list) and value and "forecastData" in value[0]:
        value = value[0]
    if isinstance(value, list):
        return [_Point(_parse_time(point[_TIME]), float(point[of.column])) for point in value]
    if not of.services:
        raise ValueError(f"no list of objects with {_TIME} and {of.column}: {json.dumps(value)[:_SHOWN]}")
    if "forecastData" in value:
        return [
            _Point(_parse_time(point["timestamp"]), float(point["value"]), timedelta(minutes=float(point["duration"])))
            for point in value["forecastData"]
        ]
    if "forecast" in value:
        return [_Point(_parse_time(point["datetime"]), float(point["carbonIntensity"])) for point in value["forecast"]]
    if "data" not in value:
        raise ValueError(f"no answer of a service that is known: {json.dumps(value)[:_SHOWN]}")
    units = value["meta"]["units"]
    if units != "lbs_co2_per_mwh":
        raise ValueError(f"its unit is {units!r}, not lbs_co2_per_mwh: ask for signal_type=co2_moer or co2_aoer")
    scale = _GRAMS_PER_KWH_OF_LBS_PER_MWH
    return [_Point(_parse_time(point["point_time"]), float(point["value"]) * scale) for point in value["data"]]


def _parse_time(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone; write {text}Z for UTC")
    return moment.astimezone(UTC)


def _intervals(points: Sequence[_Point], of: Quantity) -> tuple[Interval, ...]:
    if len(points) < 2:
        raise ValueError(f"{len(points)} value(s), and two are the least")
    for point in points:
        if not 0 <= point.value < of.below:
            raise ValueError(f"{point.value:g} {of.unit} at {point.start.isoformat()}, and {of.absurd}")
    points = sorted(points)
    for earlier, later in itertools.pairwise(points):
        if earlier.start == later.start:
            raise ValueError(f"two values at {later.start.isoformat()}")
    last = points[-1]
    ends = [*(point.start for point in points[1:]), last.start + (last.length or last.start - points[-2].start)]
    return tuple(
        Interval(point.start, min(end, point.start + (point.length or end - point.start)), point.value)
        for point, end in zip(points, ends, strict=True)
    )


def _fetch(url: str) -> bytes:
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class Stay(HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None: ...

    parts = urlsplit(url)
    host, token = parts.hostname or "", _token()
    if token and parts.scheme != "https" and host not in ("localhost", "127.0.0.1", "::1"):
        raise TrainerError(
            place="--forecast",
            problem=f"${TOKEN_VARIABLE} would travel unencrypted",
            value=_without_secrets(url),
            allowed="https:// beside a token",
            fix=f"write https://, or unset {TOKEN_VARIABLE}",
        )
    electricity_maps = host.endswith((".electricitymaps.com", ".electricitymap.org"))
    headers = {"auth-token": token} if electricity_maps else {"Authorization": f"Bearer {token}"}
    try:
        with build_opener(Stay).open(Request(url, headers=headers if token else {}), timeout=_TIMEOUT_SEC) as answer:
            content: bytes = answer.read(_MOST_BYTES)
    except (OSError, ValueError, HTTPException) as error:
        if isinstance(error, HTTPError):
            error.close()
        raise TrainerError(
            place=_without_secrets(url),
            problem=f"gives no forecast: {error}",
            fix=f"check the address and the token in ${TOKEN_VARIABLE}, or name a file",
        ) from None
    return content


def _token() -> str:
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not (token.isascii() and token.isprintable()):
        raise TrainerError(
            place=f"${TOKEN_VARIABLE}",
            problem="holds characters that no header can",
            allowed="printable ASCII",
            fix="copy the token again",
        )
    return token


def _without_secrets(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"
