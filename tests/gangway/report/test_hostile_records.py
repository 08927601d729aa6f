"""A record is written by whoever has the run's folder: every text in it is refused with its name, or stands in tables
and pages as the text that it is.
"""

import csv
import io
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from typer.testing import CliRunner

from gangway.cli.main import app
from gangway.components.core.findings import InputError
from gangway.components.core.safe_text import leaves, visible
from gangway.finops.bill.focus import focus_rows, missing_rows_reason
from gangway.report.comparison.exports import figures_csv, focus_csv
from gangway.report.comparison.groups import get_members
from gangway.report.comparison.write import comparison_report
from gangway.runs.run_folders import Run, find_runs
from tests.hostile import HOSTILE, SEEN, UNSEEN, Loc, changed, text_places

pytestmark = pytest.mark.attack(
    "a run's folder", "texts of a record that say more to CSV, HTML, Markdown or a terminal"
)
RECORDED = Path(__file__).parent / "comparison" / "recorded" / "run.json"
FORMULA = ("=", "+", "-", "@", "\t")


def read(values: dict[str, Any], folder: Path) -> Run:
    (folder / "run.json").write_text(json.dumps(values), "utf-8")
    (run,) = find_runs([folder])
    return run


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    values: dict[str, Any] = json.loads(RECORDED.read_text("utf-8"))
    del values["digest"]
    return values


def mistake_in(values: dict[str, Any], folder: Path) -> InputError | None:
    try:
        read(values, folder)
    except InputError as mistake:
        return mistake
    return None


def taken(values: dict[str, Any], text: str, folder: Path) -> list[Loc]:
    """The places that take the text; every other one is named by a mistake, one after the other."""
    places = list(text_places(values))
    while mistake := mistake_in(changed(values, *places, text=text), folder):
        named = mistake.place.removeprefix(f"{folder}/run.json: ")
        left = [place for place in places if not f"{'.'.join(map(str, place))}.".startswith(f"{named}.")]
        assert len(left) < len(places), mistake
        places = left
    return places


class Tags(HTMLParser):
    """Every element of a page, and its attributes that would run something."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        runs = [name for name, value in attrs if name.startswith("on") or (value or "").startswith("javascript:")]
        self.found += [tag, *runs]


@pytest.fixture(scope="module")
def plain_page(recorded: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """What a page of a harmless run is made of."""
    return set(Tags(page_of(read(recorded, tmp_path_factory.mktemp("plain")), tmp_path_factory.mktemp("page"))).found)


def page_of(run: Run, folder: Path) -> str:
    return comparison_report([run], None).write_page(folder).read_text("utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*UNSEEN, *SEEN])
def test_a_records_texts_stay_texts(
    name: str, recorded: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = HOSTILE[name]
    places = taken(recorded, text, tmp_path)
    run = read(changed(recorded, *places, text=text), tmp_path)
    assert run.record.machine_type == visible(text)
    for _, leaf in leaves(run.record.model_dump()):
        assert not isinstance(leaf, str) or leaf.replace("\n", "").isprintable()

    exported = [figures_csv(get_members([run]).members)]
    if not missing_rows_reason(run.record):
        exported.append(focus_csv(focus_rows(run.record, text)))
    for document in exported:
        header, *rows = csv.reader(io.StringIO(document))
        assert {len(row) for row in rows} == {len(header)}
        cells = dict(zip(header, rows[0], strict=True))
        whole = cells.get("machine_type", cells.get("x_machine_type", ""))
        assert whole.removeprefix("'") == visible(text)
        assert not whole.startswith(FORMULA)

    markdown = comparison_report([run], None).markdown()
    tokens = [
        child for token in MarkdownIt("gfm-like", {"linkify": False}).parse(markdown) for child in token.children or ()
    ]
    assert {token.type for token in tokens} <= {"text", "em_open", "em_close", "code_inline", "softbreak"}
    assert capsys.readouterr().out == ""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["HTML", "double quote"])
def test_a_page_has_no_other_elements(
    name: str, recorded: dict[str, Any], plain_page: set[str], tmp_path: Path
) -> None:
    run = read(changed(recorded, *taken(recorded, SEEN[name], tmp_path), text=SEEN[name]), tmp_path)
    page = page_of(run, tmp_path / "page")
    assert set(Tags(page).found) <= plain_page


@pytest.mark.parametrize("output", ["md", "csv", "json", "focus"])
def test_no_command_prints_what_acts_on_a_terminal(output: str, recorded: dict[str, Any], tmp_path: Path) -> None:
    text = UNSEEN["escape sequence"]
    read(changed(recorded, *taken(recorded, text, tmp_path), text=text), tmp_path)
    done = CliRunner().invoke(app, ["report", str(tmp_path), "--format", output])
    assert done.exit_code in (0, 1), done.output
    assert "\\x1b" in done.output
    assert done.output.replace("\n", "").isprintable()
