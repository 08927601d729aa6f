"""What lies beside a record: its sums, and what is seen of a change."""

from pathlib import Path

import pytest

from gangway.trainer.records.file_hashes import FileSum, changed_since, get_sums

LINES = b'{"images": 16}\n{"images": 32}\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("checkpoints", "samples"):
        (tmp_path / name).mkdir()
    (tmp_path / "stats.jsonl").write_bytes(LINES)
    for name in ("samples.png", "samples/000001kimg.png", "checkpoints/000000000032.json", "checkpoints/32.pt"):
        (tmp_path / name).write_text(name)
    return tmp_path


def test_every_file_that_is_shown_or_compared_has_its_sum(folder: Path) -> None:
    sums = get_sums(folder)
    assert set(sums) == {"stats.jsonl", "samples.png", "samples/000001kimg.png", "checkpoints/000000000032.json"}
    assert sums["stats.jsonl"].bytes == len(LINES)
    assert changed_since(folder, sums, done=True) == []


@pytest.mark.attack("a bucket's writer", "a record that is changed, or signed with a key of his own")
@pytest.mark.parametrize("name", ["stats.jsonl", "samples.png", "samples/000001kimg.png"])
@pytest.mark.parametrize("done", [True, False])
def test_a_changed_file_is_named(folder: Path, name: str, done: bool) -> None:
    sums = get_sums(folder)
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[:-2] + b"9\n")
    assert changed_since(folder, sums, done=done) == [name]


def test_a_run_that_was_not_done_may_have_gone_on(folder: Path) -> None:
    sums = get_sums(folder)
    (folder / "stats.jsonl").write_bytes(LINES + b'{"images": 48}\n')
    (folder / "checkpoints/000000000048.json").write_text("{}")
    assert changed_since(folder, sums, done=False) == []
    assert changed_since(folder, sums, done=True) == ["stats.jsonl", "checkpoints/000000000048.json"]
    (folder / "stats.jsonl").write_bytes(LINES[:-4])
    assert changed_since(folder, sums, done=False) == ["stats.jsonl"], "cut off"


@pytest.mark.attack("a bucket's writer", "a record that is changed, or signed with a key of his own")
def test_what_is_away_is_no_change_and_a_link_is_one(folder: Path) -> None:
    sums = get_sums(folder)
    (folder / "samples.png").unlink()
    assert changed_since(folder, sums, done=True) == []
    (folder / "samples.png").symlink_to("/dev/zero")
    assert changed_since(folder, sums, done=True) == ["samples.png"]
    assert "samples.png" not in get_sums(folder)


def test_a_records_names_open_nothing(folder: Path) -> None:
    """They are a stranger's: files are looked for by the names that a run has."""
    stranger = {"../../etc/passwd": FileSum(bytes=1, sha256="0" * 64), **get_sums(folder)}
    assert changed_since(folder, stranger, done=True) == []
