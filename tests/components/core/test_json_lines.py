"""Files of JSON lines: whole lines alone, whatever happened while one was written, and one writer."""

import errno
import os
from pathlib import Path

import pytest

from gangway.components.core.json_lines import append_line, complete_lines, cut_half_line, half_line, lock


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
