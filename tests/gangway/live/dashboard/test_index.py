"""The index of run folders: what a row says, what a pass reads, and what it leaves alone."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from gangway.live.dashboard import index as index_module
from gangway.live.dashboard.index import RunIndex, RunRow, get_status
from tests.gangway.live.dashboard.conftest import add_line
from tests.gangway.live.dashboard.synthetic import write_run, write_runs


def read(*folders: Path) -> RunIndex:
    index = RunIndex(folders)
    index.refresh()
    return index


def row_of(index: RunIndex, name: str) -> RunRow:
    (row,) = (row for row in index.rows if row.name == name)
    return row


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the folders that are read from now on."""
    found: list[str] = []
    real = index_module._read

    def counted(row: RunRow, files: frozenset[str]) -> RunRow:
        found.append(row.name)
        return real(row, files)

    monkeypatch.setattr(index_module, "_read", counted)
    return found


def test_a_finished_run_is_what_its_record_says(runs: Path) -> None:
    row = row_of(read(runs), "run-00001")
    assert (row.id, row.status, row.preset, row.stack, row.seed) == ("run-00001", "done", "dcgan-cifar10", "stack-1", 1)
    assert (row.images, row.kimg, row.images_per_sec, row.usd) == (6016, 6.0, 51.0, 0.01)
    assert row.quality[0][0] == "FD-ENL0"


def test_a_run_without_a_record_is_what_its_log_says(runs: Path) -> None:
    row = row_of(read(runs), "run-00003")
    assert (row.id, row.status, row.preset, row.kimg) == ("run-00003", "running", "dcgan-digits", 6.0)
    assert row.images_per_sec == pytest.approx(234.3, abs=0.1)
    assert row.usd == pytest.approx(1.5 * 35.6 / 3600, rel=0.01)
    assert row.state(row.at + 10) == "running"
    assert row.state(row.at + 3600) == "silent"


def test_a_pass_reads_changed_folders_only(runs: Path, reads: list[str]) -> None:
    index = read(runs)
    assert len(reads) == 10
    reads.clear()
    index.refresh()
    assert reads == []
    add_line(runs / "run-00003", time=time.time(), images=4096, kimg=4.096, session=0, images_per_sec=100.0)
    write_run(runs / "later", 11)
    shutil.rmtree(runs / "run-00000")
    index.refresh()
    assert sorted(reads) == ["later", "run-00003"]
    assert (row_of(index, "run-00003").images, row_of(index, "run-00003").images_per_sec) == (4096, 100.0)
    assert "run-00000" not in {row.name for row in index.rows}
    assert index.by_key[row_of(index, "later").key].id == "run-00011"


def test_a_new_record_of_an_old_folder_is_seen(runs: Path) -> None:
    index = read(runs)
    past = time.time() - 60
    os.utime(runs / "run-00001", (past, past))  # long ago, so that its listing is kept
    index.refresh()
    index.refresh()
    record = json.loads((runs / "run-00001" / "run.json").read_text())
    record = {**record, "stack": "renamed", "digest": ""}
    (runs / "run-00001" / "new").write_text(json.dumps(record))
    (runs / "run-00001" / "new").rename(runs / "run-00001" / "run.json")  # as the trainer writes it
    index.refresh()
    assert row_of(index, "run-00001").stack == "renamed"


def test_nested_folders_and_suites_are_found_and_hidden_ones_are_not(tmp_path: Path) -> None:
    write_run(tmp_path / "suite" / "local-s0", 0)
    (tmp_path / "suite" / "journal.jsonl").write_text("")
    write_run(tmp_path / ".new-1" / "run", 1)
    write_run(tmp_path / "run-a", 2)
    write_run(tmp_path / "run-a" / "inner", 3)
    index = read(tmp_path, tmp_path)
    assert {row.name for row in index.rows} == {"suite/local-s0", "run-a"}
    assert index.suites == (tmp_path / "suite",)
    assert index.find(tmp_path / "suite" / "local-s0") is row_of(index, "suite/local-s0")
    assert index.find(tmp_path.parent) is None
    assert read(tmp_path / "run-a").rows[0].name == ""


def test_a_folder_that_is_missing_is_empty(tmp_path: Path) -> None:
    assert read(tmp_path / "none").rows == ()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"id": 1}', "\0" * 100, '{"a":' * 10_000])
def test_a_damaged_record_is_a_row_with_the_reason(runs: Path, content: str) -> None:
    (runs / "run-00000" / "run.json").write_text(content)
    row = row_of(read(runs), "run-00000")
    assert row.status == "cannot be read"
    assert row.problem
    assert len(row.problem) < 300


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user: run it as root")
def test_a_closed_folder_hides_no_other() -> None:
    """One whose names can be read, but no file."""
    program = (
        "import os, sys; from pathlib import Path; from gangway.live.dashboard.index import RunIndex\n"
        "os.seteuid(65534); index = RunIndex([Path(sys.argv[1])]); index.refresh()\n"
        "print(sorted({row.status for row in index.rows}), len(index.rows))"
    )
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        write_runs(Path(folder), 10)
        (Path(folder) / "run-00000").chmod(0o744)
        (Path(folder) / "run-00001").chmod(0o700)
        done = subprocess.run([sys.executable, "-c", program, folder], capture_output=True, text=True, check=True)
    assert done.stdout == "['cannot be read', 'done', 'interrupted', 'running'] 9\n"


def test_damaged_lines_are_skipped(runs: Path) -> None:
    with (runs / "run-00003" / "stats.jsonl").open("ab") as file:
        file.write(b'not json\n[1]\n{"time": "x", "images": {}}\n\xff\xfe\n{"half": ')
    assert row_of(read(runs), "run-00003").images == 0  # of the last whole line, which has no number
    add_line(runs / "run-00003", time=1e12, images=5000, session=0)
    assert row_of(read(runs), "run-00003").status == "running"


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (["start", None], "running"),
        (["start", None, "interrupt"], "interrupted"),
        (["start", None, "failed", "checkpoint"], "interrupted"),
        (["start", "interrupt", "resume"], "running"),
        (["start", None, "done", "quality"], "done"),
        ([], "running"),
    ],
)
def test_the_last_lines_say_whether_it_runs(events: list[str | None], expected: str) -> None:
    assert get_status([{} if event is None else {"event": event} for event in events]) == expected


def test_rows_appear_while_the_first_pass_lasts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_runs(tmp_path, 8)
    monkeypatch.setattr(index_module, "_PUBLISH_SEC", -1.0)
    index, seen = RunIndex([tmp_path]), list[tuple[int, bool]]()
    real = index_module._updated

    def watched(*args: Any) -> RunRow:
        seen.append((len(index.rows), index.progress.is_complete))
        return real(*args)

    monkeypatch.setattr(index_module, "_updated", watched)
    index.refresh()
    assert seen[5] == (5, False)
    assert index.progress.is_complete


@pytest.mark.attack("a user who writes to a shared folder of runs", "a link that makes the dashboard read another file")
def test_links_are_never_followed(tmp_path: Path, runs: Path) -> None:
    elsewhere = write_run(tmp_path / "elsewhere" / "secret-run", 20)
    (runs / "linked-folder").symlink_to(elsewhere)
    for name in ("run.json", "stats.jsonl"):
        folder = runs / f"linked-{name}"
        folder.mkdir()
        (folder / name).symlink_to(elsewhere / name)
    os.mkfifo(runs / "run-00000" / "pipe")
    (runs / "run-00002" / "run.json").unlink()
    os.mkfifo(runs / "run-00002" / "run.json")
    index = read(runs)
    assert "run-00020" not in {row.id for row in index.rows}
    assert "linked-folder" not in {row.name for row in index.rows}
    assert row_of(index, "linked-run.json").status == "cannot be read"
    assert row_of(index, "run-00002").status == "cannot be read"
