"""Files under names of others' choice: a link, a FIFO, a device and a file without an end are told, none is read."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from trainer.core.regular_files import read_regular

pytestmark = pytest.mark.attack("a run's folder", "links, FIFOs and files without an end under a run's names")


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


ODD: dict[str, tuple[Callable[[Path], object], int]] = {
    "a FIFO": (os.mkfifo, errno.EINVAL),
    "a folder": (Path.mkdir, errno.EINVAL),
    "a link to a file": (lambda path: path.symlink_to("/etc/passwd"), errno.ELOOP),
    "a link to a device without an end": (lambda path: path.symlink_to("/dev/zero"), errno.ELOOP),
    "a link to nowhere": (lambda path: path.symlink_to("nowhere"), errno.ELOOP),
    "a terabyte": (sparse, errno.EFBIG),
}


@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize("name", ["run.json", "checkpoints/000016.json"])
def test_what_is_no_plain_file_is_told_at_once(what: str, name: str, tmp_path: Path) -> None:
    make, code = ODD[what]
    (tmp_path / name).parent.mkdir(exist_ok=True)
    make(tmp_path / name)
    with pytest.raises(OSError, match=r"link|regular|larger") as caught:
        read_regular(tmp_path, name)
    assert caught.value.errno == code


def test_a_folder_in_between_that_is_a_link_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/000016.json").write_text("{}")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/checkpoints").symlink_to("../elsewhere")
    with pytest.raises(OSError, match="link"):
        read_regular(tmp_path / "run", "checkpoints/000016.json")


def test_a_folder_that_a_person_names_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "run/checkpoints").mkdir(parents=True)
    (tmp_path / "run/checkpoints/000016.json").write_text("{}")
    (tmp_path / "newest").symlink_to("run")
    assert read_regular(tmp_path / "newest", "checkpoints/000016.json") == b"{}"
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "newest", "run.json")


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    before = len([*Path("/proc/self/fd").iterdir()])
    (tmp_path / "a").mkdir()
    os.mkfifo(tmp_path / "a/b")
    for name in ("a/b", "a/c", "a/b/c", "a"):
        with pytest.raises(OSError, match=r".+"):
            read_regular(tmp_path, name)
    assert len([*Path("/proc/self/fd").iterdir()]) == before
