"""Files that are written in one step: whole, or as they were, and through nobody's link."""

import errno
import os
from pathlib import Path

import pytest

from gangway.components.core.findings import InputError
from gangway.components.core.whole_files import (
    append_line,
    complete_lines,
    cut_half_line,
    half_line,
    lock,
    make_folder,
    whole_file,
    write_whole,
)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_file_that_cannot_be_written_keeps_the_old_one_and_leaves_nothing(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_whole(tmp_path / "a.svg", b"old")

    def fail(_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(InputError) as caught:
        write_whole(path, b"new")
    assert os.strerror(code) in caught.value.problem
    assert caught.value.fix == (
        "name a file in a folder that can be written" if code == errno.EIO else "make room there"
    )
    assert contents(tmp_path) == {"a.svg": b"old"}


def test_an_interrupted_block_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> None:
        with whole_file(tmp_path / "a") as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert contents(tmp_path) == {}


def test_the_unfinished_file_has_a_name_that_nobody_knows_and_no_reader_takes(tmp_path: Path) -> None:
    names = []
    for _ in range(2):
        with whole_file(tmp_path / "gauges.prom"):
            (name,) = {path.name for path in tmp_path.iterdir()} - {"gauges.prom"}
            names.append(name)
    assert names[0] != names[1]
    assert all(name.startswith(".") and not name.endswith(".prom") for name in names)


def test_a_link_in_the_place_of_the_file_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"mine")
    (tmp_path / "a").symlink_to(tmp_path / "mine")
    write_whole(tmp_path / "a", b"new")
    assert contents(tmp_path) == {"a": b"new", "mine": b"mine"}
    assert not (tmp_path / "a").is_symlink()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file/below: cannot be made"):
        make_folder(tmp_path / "file" / "below")


def test_lines_come_back_in_order(tmp_path: Path) -> None:
    with (tmp_path / "a.jsonl").open("a+b") as file:
        append_line(file, {"a": 1})
        append_line(file, {"b": "\n"})
        file.seek(0)
        assert complete_lines(file.read()) == [b'{"a": 1}', b'{"b": "\\n"}']


def test_half_a_line_is_cut_off_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n{"b"')
    with path.open("a+b") as file:
        file.seek(0)
        content = file.read()
        assert (complete_lines(content), half_line(content)) == ([b'{"a": 1}'], b'{"b"')
        assert path.read_bytes() == content, "reading changes nothing"
        cut_half_line(file, content)
        append_line(file, {"c": 2})
    assert path.read_bytes() == b'{"a": 1}\n{"c": 2}\n'


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, real = tmp_path / "a.jsonl", os.write
    with path.open("a+b") as file:
        append_line(file, {"a": 1})
        monkeypatch.setattr(os, "write", lambda descriptor, text: real(descriptor, text[:3]))
        with pytest.raises(OSError, match="no space left") as failed:
            append_line(file, {"b": 2})
    assert failed.value.errno == errno.ENOSPC
    assert path.read_bytes() == b'{"a": 1}\n'


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with path.open("a+b") as first:
        lock(first)
        with path.open("a+b") as second, pytest.raises(BlockingIOError):
            lock(second)
    with path.open("a+b") as third:
        lock(third)
