"""The threat model of docs/security.md: each row names tests that `make attack` runs, and no such test is in no row."""

import re
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
TESTS = REPO / "tests"
PAGE = REPO / "docs" / "security.md"
_MARK = re.compile(r"pytest\.mark\.attack\(\s*[\w\"]")
UNPROTECTED = "administrator of the account, reader of the state, the cloud itself"


def threats() -> dict[tuple[str, str], list[str]]:
    """Who wants what -> the tests that the row names."""
    section = PAGE.read_text("utf-8").partition("## Threat model")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    return {(row[0], row[1]): re.findall(r"`([^`]+)`", row[-1]) for row in rows[2:]}


def marked() -> set[str]:
    """Files with tests that are marked `attack`, by their names below tests/."""
    found = (path for path in TESTS.rglob("test_*.py") if path != Path(__file__))
    return {path.relative_to(TESTS).as_posix() for path in found if _MARK.search(path.read_text("utf-8"))}


ROWS = threats()


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}: {row[1]}")
def test_each_row_names_tests_that_make_attack_runs(row: tuple[str, str]) -> None:
    names = ROWS[row]
    assert set(names) <= marked()
    assert bool(names) is (row[0] != UNPROTECTED)


def test_every_attack_has_a_row() -> None:
    assert marked() <= {name for names in ROWS.values() for name in names}


@pytest.mark.parametrize(
    "who", ["shared queue's folder", "Slurm with teams", "Kubernetes team, by the API", "by a pod"]
)
def test_users_of_shared_queues_have_their_rows(who: str) -> None:
    assert [row for row in ROWS if who in row[0]]
