"""Errors of files in words: place, problem, fix."""

import errno
import os
import sys
from pathlib import Path

import pytest

from gangway.trainer.core.file_errors import check_creatable, closed_folder, file_problem, home_folder


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOTDIR, "part of the path is a file"),
        (errno.ELOOP, "round in a circle"),
        (errno.ENAMETOOLONG, "longer than"),
        (errno.EROFS, "read-only"),
        (errno.EISDIR, "a folder, where a file is expected"),
        (errno.ENOENT, "no such file"),
    ],
)
def test_errors_of_files_have_words(number: int, said: str, tmp_path: Path) -> None:
    found = file_problem(OSError(number, os.strerror(number), str(tmp_path / "x")))
    assert found is not None
    assert said in found.problem
    assert (found.place, bool(found.fix)) == (str(tmp_path / "x"), True)


def test_what_is_no_mistake_of_a_users_stays_an_error(tmp_path: Path) -> None:
    assert file_problem(OSError(errno.ENOSPC, "full", str(tmp_path))) is None, "later there may be room"
    assert file_problem(BrokenPipeError(errno.EPIPE, "pipe")) is None
    assert closed_folder(tmp_path / "x") is None


def test_the_fix_is_what_names_the_closed_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fix(path: Path) -> str:
        found = file_problem(PermissionError(errno.EACCES, "denied", str(path)))
        assert found is not None
        return found.fix

    home, here = tmp_path / "home", tmp_path / "here"
    home.mkdir()
    here.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(here)
    last = "or run it as a user who may use"
    assert fix(home / "x/y") == f"name another place or set HOME to a folder of yours, {last} {home}"
    assert fix(Path("x")) == f"name another place or change to another working directory, {last} {here}"
    assert fix(tmp_path / "x") == f"name another place, {last} {tmp_path}"
    for argv in (["train", "--run-dir", str(here / "x")], ["train", f"--run-dir={here / 'x'}"]):
        monkeypatch.setattr(sys, "argv", ["gangway", *argv])
        assert fix(here / "x") == f"name another place, {last} {here}", "an absolute path is the same from everywhere"


def test_what_cannot_be_created_is_refused_before_anything_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_creatable(tmp_path / "runs" / "new")
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    with pytest.raises(PermissionError, match="new"):
        check_creatable(tmp_path / "runs" / "new")
    check_creatable(tmp_path)  # what is there is somebody else's question
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.X_OK)
    with pytest.raises(PermissionError, match="new"):
        check_creatable(tmp_path / "new")


def test_a_user_without_a_home_has_one_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)
    assert not home_folder().exists()
