"""The committed reference pages are what the code generates."""

import re

import pytest

from gangway.stacks.base.registry import provider_names
from gangway.stacks.program import OUTPUTS
from tests.conftest import REPO
from tools.reference.__main__ import FOLDER, PAGES, outdated
from tools.reference.models import choice, table, text
from tools.reference.pages import find_outputs

MOST_BYTES = 1_000_000


def test_the_pages_are_up_to_date() -> None:
    assert not [path.name for path in outdated()], "run `make reference`"


def test_no_other_page_is_there() -> None:
    written_otherwise = {"changing-settings.md", "security-rules.md"}
    assert {path.name for path in FOLDER.iterdir()} == {*PAGES, *written_otherwise}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_small_and_names_no_machine(name: str) -> None:
    page = (FOLDER / name).read_text("utf-8")
    assert len(page) < MOST_BYTES
    assert str(REPO) not in page
    assert "/home/" not in page


def test_every_key_has_a_description() -> None:
    """The last cell of each row of each table."""
    for path in FOLDER.glob("*.md"):
        empty = re.findall(r"^\| (`[^|]*`) \|.*\|\s*\|$", path.read_text("utf-8"), re.MULTILINE)
        assert not [row for row in empty if path.name != "outputs.md"], path.name


def test_every_output_is_described() -> None:
    found = {name for provider in provider_names() for name, _ in find_outputs(provider)}
    assert found == OUTPUTS.keys() - {"next_command"}


def test_cells_keep_their_columns() -> None:
    assert table(("a", "b"), [("x|y", choice("pq")), ("two\nlines", "")]) == (
        "| a | b |\n| --- | --- |\n| x\\|y | `p` \\| `q` |\n| two lines |  |\n"
    )


def test_markup_of_plain_text_is_escaped_but_not_in_code() -> None:
    assert text("a <host>, `<host>` and layers.*") == r"a &lt;host>, `<host>` and layers.\*"
