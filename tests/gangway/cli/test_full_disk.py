"""Commands whose stdout is a full disk or a closed pipe, and commands that fill the disk they write to."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gangway.cli.init import _write
from gangway.components.core.findings import InputError
from gangway.jobs.job_folder import OwnJobFolder
from gangway.jobs.local.engine import LocalQueue
from gangway.stacks.config.job_file import JobFile
from tests.conftest import REPO

GANGWAY = [sys.executable, "-m", "gangway.cli"]
TRAINER = [sys.executable, "-m", "gangway.trainer"]
LINES = [
    *([*GANGWAY, *line.split()] for line in (
        "--version", "--help", "plan aws-demo", "plan aws-demo --json", "plan --help", "dockerfile", "catalog list",
        "tco --accelerator H100x8", "quote --accelerator H100x8 --hours 1", "presets",
    )),
    *([*TRAINER, *line.split()] for line in ("--version", "--help", "presets", "schema", "train --help")),
]  # fmt: skip


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("argv", LINES, ids=lambda argv: " ".join(argv[2:]))
def test_a_full_disk_behind_stdout_is_one_line(argv: list[str], unbuffered: str) -> None:
    env = {**os.environ, "PYTHONUNBUFFERED": unbuffered, "PYTHONPATH": str(REPO)}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, env=env, check=False, cwd="/")
    assert done.stderr == "error: what is printed cannot be written: No space left on device\n"
    assert done.returncode == 2


@pytest.mark.parametrize("argv", [LINES[0], LINES[3], LINES[-2]], ids=lambda argv: " ".join(argv[2:]))
def test_a_closed_pipe_stays_quiet(argv: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    env = {**os.environ, "PYTHONPATH": str(REPO)}
    done = subprocess.run(argv, stdout=writing, stderr=subprocess.PIPE, text=True, env=env, check=False, cwd="/")
    os.close(writing)
    assert done.stderr == ""
    assert done.returncode in (0, 141)


def no_room(*_: object, **__: object) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("step", ["write", "rename"])
def test_a_submit_that_fills_the_disk_leaves_no_folder(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = JobFile(name="x", preset="dcgan-digits", kimg=20, max_hours=1)
    place: tuple[Any, str] = (OwnJobFolder, "write") if step == "write" else (os, "rename")
    monkeypatch.setattr(*place, no_room)
    with pytest.raises(InputError, match="free some space"):
        LocalQueue(tmp_path / "team/q").submit(job)
    assert not any(tmp_path.iterdir())


def test_a_submit_that_fails_keeps_a_folder_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "q").mkdir()
    monkeypatch.setattr(OwnJobFolder, "write", no_room)
    with pytest.raises(InputError, match="free some space"):
        LocalQueue(tmp_path / "q").submit(JobFile(name="x", preset="dcgan-digits", kimg=20, max_hours=1))
    assert [path.name for path in tmp_path.rglob("*")] == ["q"]


def test_a_project_that_fills_the_disk_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.open

    def full_at_the_second(path: Path, *args: str, **options: str) -> object:
        return no_room() if path.name == "second" else real(path, *args, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", full_at_the_second)
    with pytest.raises(InputError, match="free some space") as caught:
        _write(tmp_path / "a/project", {"first": "1", "below/second": "2"})
    assert "No space left" in str(caught.value)
    assert not any(tmp_path.iterdir())
