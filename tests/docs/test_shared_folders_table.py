"""The table of docs/queues.md on shared folders, against the function that judges them, as a user and as root."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangway.components.core.findings import Severity
from gangway.jobs.job_folder import sharing_findings
from tests.gangway.jobs.test_shared_folders import place as place
from tests.other_users import ALICE, GROUP, MALLORY

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="wants root, to give folders to other users")
PAGE = Path(__file__).resolve().parents[2] / "docs/queues.md"
OWNERS = {"root's": 0, "yours": ALICE, "another user's": MALLORY}
FOLDERS = ("the jobs folder", "a folder above it")
WORDS = {None: "starts", Severity.WARNING: "starts, with a warning", Severity.ERROR: "refused"}


def table() -> list[tuple[str, str, int, str, str]]:
    """Folder, owner, mode, and what you and root get; one for each mode."""
    section = PAGE.read_text("utf-8").partition("### Sharing a folder")[2].partition("\n## ")[0]
    lines = section.partition("| folder | owner |")[2].partition("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [(row[0], row[1], int(mode, 8), row[3], row[4]) for row in rows for mode in re.findall(r"\d{4}", row[2])]


ROWS = table()


@pytest.fixture
def as_user() -> Iterator[None]:
    yield
    os.seteuid(0)


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[1]}-{row[2]:04o}")
def test_each_row_is_what_the_program_does(place: Path, row: tuple[str, str, int, str, str]) -> None:
    folder, owner, mode, *expected = row
    queue = place / "data/queue"
    queue.mkdir(parents=True)
    judged, other = (queue, queue.parent) if folder == FOLDERS[0] else (queue.parent, queue)
    os.chown(judged, OWNERS[owner], GROUP)
    judged.chmod(mode)
    other.chmod(0o755 if other == queue.parent else 0o1777)
    found = []
    for uid in (ALICE, 0):
        os.seteuid(uid)
        severities = {each.severity for each in sharing_findings(queue)}
        worst = next((each for each in (Severity.ERROR, Severity.WARNING) if each in severities), None)
        found.append(WORDS[worst])
        os.seteuid(0)
    assert found == expected


def test_it_has_every_folder_and_owner_without_and_with_the_sticky_bit() -> None:
    assert {row[:2] for row in ROWS} == {(folder, owner) for folder in FOLDERS for owner in OWNERS}
    for folder in FOLDERS:
        modes = {mode for each, owner, mode, *_ in ROWS if (each, owner) == (folder, "root's")}
        assert modes == {0o755, 0o777, 0o1777, 0o2775, 0o3775}
