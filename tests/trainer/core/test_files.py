"""Files appear whole or not at all, also on a full disk."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.core.files import (
    atomic_writer,
    check_folder,
    clean_temporaries,
    read_input,
    read_text_input,
    sha256_of,
    write_atomically,
)
from gangway.trainer.records.run_record import RunContext


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "a.txt"
    write_atomically(path, b"one")
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert _names(path.parent) == ["a.txt"]


def test_an_interrupted_writer_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_atomically(path, b"old")

    def write_half() -> None:
        with atomic_writer(path) as file:
            file.write(b"half of")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert path.read_bytes() == b"old"
    assert _names(tmp_path) == ["a.txt"]


def test_a_full_disk_is_a_user_error_and_leaves_the_old_file(tmp_path: Path, full_disk: Callable[[str], None]) -> None:
    path = tmp_path / "a.txt"
    write_atomically(path, b"old")
    full_disk("a.txt")
    with pytest.raises(TrainerError, match="No space left on device") as caught:
        write_atomically(path, b"new")
    assert caught.value.value == str(path)
    assert "can write" in caught.value.allowed
    assert path.read_bytes() == b"old"
    assert _names(tmp_path) == ["a.txt"]


def test_leftovers_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".partial-a.txt").write_bytes(b"half")
    (tmp_path / "b.txt").write_bytes(b"whole")
    clean_temporaries(tmp_path)
    assert _names(tmp_path) == ["b.txt"]


def test_the_hash_is_sha256(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert sha256_of(tmp_path / "a") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_input_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert read_input(tmp_path / "a", "f") == b"abc"
    for path, problem in (("b", "nothing here"), ("a/b", "nothing here"), ("", "is a folder, not a file")):
        with pytest.raises(TrainerError, match=problem) as caught:
            read_input(tmp_path / path, "mend it", missing="nothing here")
        assert (caught.value.place, caught.value.fix) == (str(tmp_path / path), "mend it")
        assert (caught.value.value, caught.value.allowed) == (str(tmp_path / path), "a file that this user can read")
    with pytest.raises(TrainerError, match="cannot be read: Input/output error"):
        read_input(Path("/proc/self/mem"), "mend it")


def test_what_is_no_text_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("größe", encoding="utf-8")
    assert read_text_input(tmp_path / "a", "mend it") == "größe"
    (tmp_path / "b.png").write_bytes(b"\x89PNG\r\n" + bytes(range(256)) * 4)
    with pytest.raises(TrainerError, match="is not a text file: byte 0 is not UTF-8") as caught:
        read_text_input(tmp_path / "b.png", "name a JSON file")
    assert (caught.value.value, caught.value.allowed) == ("1,030 bytes", "text in UTF-8")
    for read in (TrainConfig.from_file, RunContext.read):
        with pytest.raises(TrainerError, match="is not a text file"):
            read(tmp_path / "b.png")


def test_a_folder_that_can_be_made_is_fine(tmp_path: Path) -> None:
    check_folder(tmp_path, "--out")
    check_folder(tmp_path / "new" / "newer", "--out")
    assert _names(tmp_path) == []


def test_a_file_in_the_way_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(TrainerError, match=r"--out: .*file is a file where a folder is needed") as caught:
            check_folder(path, "--out")
        assert (caught.value.place, caught.value.value) == ("--out", str(path))


def test_a_folder_that_takes_nothing_is_named_whatever_its_rights_say() -> None:
    with pytest.raises(TrainerError, match=r"--out: /proc takes no new files: ") as caught:
        check_folder(Path("/proc/runs/a"), "--out")
    assert caught.value.fix == "fix what the system reports, or name another --out"


def test_a_path_that_can_be_no_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "link").symlink_to("gone/deep")
    for name, problem in (
        ("a" * 300, "no such folder can be: File name too long"),
        ("circle", "no such folder can be: Too many levels of symbolic links"),
        ("link", "link is a link to nowhere: gone/deep"),
        ("link/below", "link is a link to nowhere: gone/deep"),
    ):
        with pytest.raises(TrainerError, match=problem) as caught:
            check_folder(tmp_path / name, "--run-dir")
        assert caught.value.place == "--run-dir"


@pytest.mark.parametrize(
    ("number", "fix"), [(errno.ENOSPC, "free some space"), (errno.EDQUOT, "free some space"), (errno.EROFS, "get the")]
)
def test_a_full_disk_is_not_taken_for_a_lack_of_rights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, fix: str
) -> None:
    def refuses(**_: object) -> str:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("tempfile.mkdtemp", refuses)
    with pytest.raises(TrainerError, match=f"takes no new files: {os.strerror(number)}") as caught:
        check_folder(tmp_path, "--out")
    assert caught.value.fix.startswith(fix)
