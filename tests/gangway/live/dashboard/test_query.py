"""Filters, sorting and pages from a URL's query."""

import time
from pathlib import Path

import pytest
from starlette.datastructures import QueryParams

from gangway.components.core.findings import InputError
from gangway.live.dashboard.index import RunRow
from gangway.live.dashboard.query import SORTS, RunQuery, get_page


def rows(count: int = 120) -> list[RunRow]:
    now = time.time()
    return [
        RunRow(
            f"{number:016x}", Path("/runs"), f"suite/run-{number}", now - number * 86_400, id=f"run-{number}",
            status="done" if number % 2 else "interrupted", preset=f"preset-{number % 3}",
            stack="aws" if number else "", usd=None if number == 5 else float(number % 7),
        )
        for number in range(count)
    ]  # fmt: skip


def ids(text: str, count: int = 120) -> list[str]:
    return [row.id for row in RunQuery.of(QueryParams(text)).find(rows(count)).rows]


def test_the_newest_come_first_fifty_a_page() -> None:
    assert ids("")[:2] == ["run-0", "run-1"]
    assert len(ids("")) == 50
    assert ids("page=3") == [f"run-{number}" for number in range(100, 120)]
    assert ids("page=99") == ids("page=3")


def test_filters_hold_together() -> None:
    assert ids("q=RUN-11+aws&preset=preset-2&state=done") == ["run-11", "run-113", "run-119"]
    assert ids("q=suite/run-3", 10) == ["run-3"]
    assert ids("q=%25_", 10) == []
    day = time.strftime("%Y-%m-%d", time.gmtime(time.time() - 3 * 86_400))
    assert ids(f"since={day}&until={day}") == ["run-3"]


def test_unknown_figures_come_last_in_both_orders() -> None:
    assert ids("sort=usd", 7)[-1] == "run-5"
    assert ids("sort=usd&order=asc", 7) == ["run-0", "run-1", "run-2", "run-3", "run-4", "run-6", "run-5"]
    assert ids("sort=id", 3) == ["run-0", "run-1", "run-2"]


@pytest.mark.parametrize("column", SORTS)
def test_every_column_can_be_sorted_by(column: str) -> None:
    assert len(ids(f"sort={column}")) == 50


@pytest.mark.parametrize(
    ("query", "place"),
    [("sort=zz", "sort"), ("state=gone", "state"), ("order=up", "order"), ("since=yesterday", "since"),
     ("page=-1", "page"), ("page=²", "page"), ("page=99999999999", "page")],
)  # fmt: skip
def test_a_mistake_names_the_word(query: str, place: str) -> None:
    with pytest.raises(InputError) as mistake:
        RunQuery.of(QueryParams(query))
    assert mistake.value.place == place


def test_links_keep_the_filters() -> None:
    query = RunQuery.of(QueryParams("q=a%26b&state=done&sort=usd&page=2"))
    assert query.url(page=3) == "/runs?q=a%26b&state=done&sort=usd&order=desc&page=3"
    assert query.sort_url("usd").endswith("sort=usd&order=asc")
    assert query.sort_url("id").endswith("sort=id&order=asc")


def test_an_empty_table_has_one_page() -> None:
    assert get_page([], 7, 0) == ([], 1, 1, 0, 0)
