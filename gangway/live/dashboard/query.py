"""Filters, sorting and pages of the dashboard's tables, from a URL's query."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from gangway.components.core.findings import InputError
from gangway.components.core.safe_text import one_line
from gangway.jobs.base import Phase
from gangway.live.dashboard.index import STATES, RunRow
from gangway.live.dashboard.sources import JobRow

PAGE_ROWS = 50
_MOST_CHARACTERS = 200
Row = TypeVar("Row")

SORTS: Mapping[str, tuple[str, Callable[[RunRow], Any]]] = {
    "at": ("Last change", lambda row: row.at),
    "start": ("Start", lambda row: row.start),
    "id": ("Run", lambda row: row.id),
    "preset": ("Preset", lambda row: row.preset),
    "images": ("kimg", lambda row: row.images),
    "rate": ("images/s", lambda row: row.images_per_sec),
    "quality": ("Quality", lambda row: row.quality[0][1] if row.quality else None),
    "energy": ("kWh", lambda row: row.joules),
    "usd": ("USD", lambda row: row.usd),
}
"""Columns of runs by which they can be sorted: label and key."""
_TEXTS = ("id", "preset")
"""Sorted upwards unless the URL says otherwise."""


class Page(NamedTuple, Generic[Row]):
    """Rows of one page. `found`: on all pages; `total`: without filters."""

    rows: Sequence[Row]
    number: int
    pages: int
    found: int
    total: int


def get_page(rows: Sequence[Row], number: int, total: int) -> Page[Row]:
    """The page of that number, from 1, or the nearest one."""
    pages = max(1, -(-len(rows) // PAGE_ROWS))
    number = min(max(1, number), pages)
    return Page(rows[(number - 1) * PAGE_ROWS : number * PAGE_ROWS], number, pages, len(rows), total)


def page_number(query: QueryParams) -> int:
    """InputError: not a number."""
    text = _get(query, "page") or "1"
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise InputError("page", "not a page", value=text, allowed="a number from 1", fix="page=1")
    return int(text)


@dataclass(frozen=True)
class RunQuery:
    """What the table of runs shows. `since`, `until`: days of the last change, UTC; empty for all."""

    text: str = ""
    preset: str = ""
    state: str = ""
    since: str = ""
    until: str = ""
    sort: str = "at"
    order: str = "desc"
    page: int = 1

    @classmethod
    def of(cls, query: QueryParams) -> "RunQuery":
        """InputError: an unknown state, column or order, or not a date."""
        sort = _choice(query, "sort", SORTS) or "at"
        order = _choice(query, "order", ("asc", "desc")) or ("asc" if sort in _TEXTS else "desc")
        state, days = _choice(query, "state", STATES), {name: _get(query, name) for name in ("since", "until")}
        for name, text in days.items():
            _day(name, text)
        text, preset = _get(query, "q"), _get(query, "preset")
        return cls(text, preset, state, days["since"], days["until"], sort, order, page_number(query))

    def url(self, **changes: object) -> str:
        """Of the table with other settings, on its first page unless the page is among them."""
        values = {
            **{"q": self.text, "preset": self.preset, "state": self.state, "since": self.since, "until": self.until},
            **{"sort": self.sort, "order": self.order, **changes},
        }
        return f"/runs?{urlencode({name: value for name, value in values.items() if value})}"

    def sort_url(self, column: str) -> str:
        """By that column; the other way round if it is already sorted by it."""
        default = "asc" if column in _TEXTS else "desc"
        return self.url(sort=column, order=_reverse(self.order) if column == self.sort else default)

    def find(self, rows: Sequence[RunRow]) -> Page[RunRow]:
        """The rows of the page; unknown figures come last."""
        now, words = time.time(), self.text.casefold().split()
        since, until = _day("since", self.since), _day("until", self.until)
        end = None if until is None else until + timedelta(days=1)
        found = [
            row
            for row in rows
            if (not self.preset or row.preset == self.preset)
            and (not self.state or row.state(now) == self.state)
            and (since is None or row.at >= since.timestamp())
            and (end is None or row.at < end.timestamp())
            and (not words or all(word in row.words for word in words))
        ]
        key = SORTS[self.sort][1]
        known = sorted((row for row in found if key(row) is not None), key=key, reverse=self.order == "desc")
        return get_page([*known, *(row for row in found if key(row) is None)], self.page, len(rows))


@dataclass(frozen=True)
class JobQuery:
    """What the table of jobs shows; `engine` is a queue's key."""

    state: str = ""
    user: str = ""
    engine: str = ""
    page: int = 1

    @classmethod
    def of(cls, query: QueryParams) -> "JobQuery":
        """InputError: an unknown state."""
        return cls(_choice(query, "state", [*Phase]), _get(query, "user"), _get(query, "engine"), page_number(query))

    def url(self, **changes: object) -> str:
        """Of the table with other settings."""
        values = {"state": self.state, "user": self.user, "engine": self.engine, **changes}
        return f"/jobs?{urlencode({name: value for name, value in values.items() if value})}"

    def find(self, rows: Sequence[JobRow]) -> Page[JobRow]:
        """The rows of the page, the newest first."""
        found = [
            row
            for row in rows
            if (not self.state or row.status.phase == self.state)
            and (not self.user or row.status.user == self.user)
            and (not self.engine or row.engine == self.engine)
        ]
        first = datetime.min.replace(tzinfo=UTC)
        found.sort(key=lambda row: row.status.submitted_at or first, reverse=True)
        return get_page(found, self.page, len(rows))


def _get(query: QueryParams, name: str) -> str:
    return one_line(query.get(name, "").strip()[:_MOST_CHARACTERS])


def _choice(query: QueryParams, name: str, allowed: Sequence[str] | Mapping[str, object]) -> str:
    text = _get(query, name)
    if text and text not in allowed:
        raise InputError.not_among(name, "unknown", text, list(allowed))
    return text


def _day(name: str, text: str) -> datetime | None:
    if not text:
        return None
    try:
        found = date.fromisoformat(text)
        return datetime(found.year, found.month, found.day, tzinfo=UTC)
    except ValueError:
        raise InputError(name, "not a date", value=text, allowed="a day such as 2026-11-30", fix="leave it") from None


def _reverse(order: str) -> str:
    return "asc" if order == "desc" else "desc"
