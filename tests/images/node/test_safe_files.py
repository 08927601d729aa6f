"""Names and links from elsewhere: whatever they say, a file lands below its folder or nowhere."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.images.node.safe_files import UnsafeNameError, get_size, open_folder, replace_file, split_name

pytestmark = pytest.mark.attack("a bucket's writer", "object names and links that lead out of the data folder")

PARTS = st.sampled_from(["a", "b", "..", ".", "", "c d", "\n", "$(id)", "~", "a\0b", "...", "-x"]) | st.text(max_size=5)


def write(root: Path, name: str, content: bytes) -> None:
    with open_folder(root, name) as (at, last), replace_file(at, last) as file:
        file.write(content)


def write_half(root: Path, name: str) -> None:
    with open_folder(root, name) as (at, last), replace_file(at, last) as file:
        file.write(b"22")
        raise OSError("cut")


@pytest.mark.slow
@given(st.lists(PARTS, min_size=1, max_size=5).map("/".join))
def test_a_name_is_below_or_refused(name: str) -> None:
    root = Path("/root")
    try:
        parts = split_name(name)
    except UnsafeNameError:
        return
    path = root.joinpath(*parts)
    assert path == Path(os.path.normpath(path))
    assert path.is_relative_to(root)
    assert path != root


@pytest.mark.parametrize("name", ["..", ".", "", "/a", "a/", "a//b", "../a", "a/../b", "a/..", "a\0"])
def test_what_leads_out_is_refused_before_anything_is_made(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnsafeNameError, match="is not a path below"), open_folder(tmp_path, name):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    write(tmp_path, "a/b/c.bin", b"1")
    assert (tmp_path / "a/b/c.bin").read_bytes() == b"1"
    with pytest.raises(OSError, match="cut"):
        write_half(tmp_path, "a/b/c.bin")
    assert (tmp_path / "a/b/c.bin").read_bytes() == b"1"
    write(tmp_path, "a/b/c.bin", b"333")
    assert [path.name for path in (tmp_path / "a/b").iterdir()] == ["c.bin"]
    assert (tmp_path / "a/b/c.bin").read_bytes() == b"333"


def test_a_link_in_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        write(tmp_path / "in", "a/b", b"1")
    assert list((tmp_path / "outside").iterdir()) == []


def test_links_and_hard_links_are_replaced_and_a_folder_stays(tmp_path: Path) -> None:
    """A FIFO, too: to open it would wait for ever."""
    target = tmp_path / "target"
    target.write_text("keep")
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "link").symlink_to(target)
    (folder / ".link.part").symlink_to(target)
    (folder / "hard").hardlink_to(target)
    (folder / ".hard.part").hardlink_to(target)
    os.mkfifo(folder / "fifo")
    os.mkfifo(folder / ".fifo.part")
    for name in ("link", "hard", "fifo"):
        write(folder, name, b"new")
        assert (folder / name).read_bytes() == b"new"
    assert target.read_text() == "keep"
    (folder / "inner").mkdir()
    with pytest.raises(OSError, match="directory"):
        write(folder, "inner", b"1")


def test_only_a_regular_file_has_a_size(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    at = os.open(tmp_path, os.O_RDONLY)
    try:
        assert [get_size(at, name) for name in ("file", "link", "folder", "fifo", "none")] == [
            2,
            None,
            None,
            None,
            None,
        ]
    finally:
        os.close(at)
