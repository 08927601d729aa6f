"""Errors of files in words: place, problem, fix."""

import errno
import os
from pathlib import Path

import pytest

from trainer.core.file_errors import closed_folder, file_problem


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
