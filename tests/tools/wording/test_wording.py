"""Discouraged words: found across lines, counted by package, never more than before."""

from pathlib import Path

import pytest
import yaml

from tools.wording.__main__ import FOLDER, PACKAGES, compare, find, lowered

WORDS = {"told": "notified", "in vain": "without effect"}
FOUND = {("docs", "told"): ["docs/a.md:1: 'told'", "docs/a.md:2: 'Told'"]}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "trainer").mkdir()
    (tmp_path / "README.md").write_text("A retold story.\n", "utf-8")
    (tmp_path / "docs" / "a.md").write_text("Told\nonce, in\nvain.\n", "utf-8")
    (tmp_path / "trainer" / "b.py").write_text("# is in\n# vain\nuntold = is_told = 1\n", "utf-8")
    (tmp_path / "trainer" / "c.txt").write_text("told\n", "utf-8")
    return tmp_path


def test_whole_words_are_found_in_any_case_and_across_lines(root: Path) -> None:
    assert [*find(root, WORDS)] == [
        ("docs", "told", "docs/a.md:1: 'Told'"),
        ("docs", "in vain", "docs/a.md:2: 'in\\nvain'"),
        ("trainer", "in vain", "trainer/b.py:1: 'in\\n# vain'"),
    ]


def test_more_is_shown_with_places_and_a_replacement() -> None:
    (message,) = compare(FOUND, {"docs": {"told": 1}}, WORDS)
    assert message.startswith("docs: 2 times 'told', not 1: write notified\n  docs/a.md:1: 'told'\n")


def test_fewer_has_to_be_written_down() -> None:
    (message,) = compare(FOUND, {"docs": {"told": 3}}, WORDS)
    assert "--lower" in message


def test_counts_only_fall() -> None:
    counts = {"docs": {"told": 1, "in vain": 2}, "trainer": {"told": 3}}
    assert lowered(FOUND, counts) == {"docs": {"told": 1}, "trainer": {}}
    assert [*compare(FOUND, {"docs": {"told": 2}}, WORDS)] == []


def test_the_lists_fit_together() -> None:
    words, counts = (yaml.safe_load((FOLDER / f"{name}.yaml").read_text("utf-8")) for name in ("words", "counts"))
    assert counts.keys() <= {"docs", *PACKAGES}
    assert {word for of in counts.values() for word in of} <= words.keys()
    assert all(isinstance(word, str) and words[word] for word in words)
