"""The pages hang together: relative links lead to files and headings that are there, and the index lists every page."""

import re
from collections import Counter
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent.parent
DOCS = REPO / "docs"
INDEX = DOCS / "README.md"
PAGES = [REPO / "README.md", REPO / "examples" / "README.md", *sorted(DOCS.glob("*.md"))]

_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[(?:[^\]]|\n)*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPO).as_posix())


def prose_of(page: Path) -> str:
    """A page without its fenced blocks, in which nothing is a link or a heading."""
    return _FENCE.sub("", page.read_text("utf-8"))


def anchor_of(heading: str) -> str:
    """As GitHub makes it of a heading.

    >>> anchor_of("4. Up, watch, `destroy`")
    '4-up-watch-destroy'
    """
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors_of(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    return {anchor_of(heading) for heading in _HEADING.findall(prose_of(page))}


def get_links(page: Path) -> list[str]:
    """Where a page's links lead, but for other sites."""
    return [link for link in _LINK.findall(prose_of(page)) if "://" not in link and not link.startswith("mailto:")]


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    for link in get_links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert target.is_relative_to(REPO), link
        assert not anchor or anchor in anchors_of(target), f"{link}: no such heading"


@every_page
def test_headings_of_a_page_differ(page: Path) -> None:
    """A second one of the same words would have another anchor than its link says."""
    linked = {
        link.partition("#")[2] for other in PAGES for link in get_links(other) if page.name in link or "#" in link
    }
    twice = [name for name, times in Counter(map(anchor_of, _HEADING.findall(prose_of(page)))).items() if times > 1]
    assert not linked & set(twice)


def test_the_index_lists_every_page() -> None:
    listed = [link.partition("#")[0] for link in get_links(INDEX)]
    assert {page.name for page in DOCS.glob("*.md")} - {INDEX.name} <= set(listed)


def test_links_are_found() -> None:
    assert len(get_links(INDEX)) > 10
    assert get_links(REPO / "README.md").count("docs/deploying.md") >= 1
    assert anchor_of("TCO: rent or own") == "tco-rent-or-own"
    assert "what-plan-says" in anchors_of(DOCS / "costs.md")
