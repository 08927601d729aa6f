"""Folders, archives and buckets of three clouds read alike, and a source that is not there is named."""

import hashlib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gangway.trainer.core.errors import TrainerError
from gangway.trainer.data.sources import drop_copies, fetch, files_in, fingerprint, is_remote

FILES = {"a.png": b"1" * 10, "b/c d.png": b"2" * 20, "b/e/f.png": b"3" * 30}


def _fill(put: Callable[[str, bytes], None], prefix: str = "") -> None:
    for name, content in {**FILES, ".hidden": b"x", "b/.DS_Store": b"x"}.items():
        put(prefix + name, content)


def _write(root: Path, name: str, content: bytes) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_bytes(content)


def test_a_folder_and_an_archive_hold_the_same_files(tmp_path: Path) -> None:
    _fill(lambda name, content: _write(tmp_path / "folder", name, content))
    with zipfile.ZipFile(tmp_path / "files.zip", "w") as archive:
        _fill(archive.writestr)
        archive.mkdir("empty")
        archive.writestr("__MACOSX/a.png", b"x")
    for source in ("folder", "files.zip"):
        files = files_in(str(tmp_path / source), tmp_path)
        assert files.listing().files == {name: len(content) for name, content in FILES.items()}
        assert {name: files.read(name) for name in files.listing().files} == FILES
        assert files.place == str(tmp_path / source)


def test_a_bucket_holds_the_same_files(bucket: Any, tmp_path: Path) -> None:
    _fill(bucket.put, "data/")
    _fill(bucket.put, "data-of-others/")
    files = files_in(f"{bucket.url}/data/", tmp_path)
    assert files.listing().files == {name: len(content) for name, content in FILES.items()}
    assert {name: files.read(name) for name in files.listing().files} == FILES
    with pytest.raises(OSError, match="not found"):
        files.read("none.png")


def test_an_archive_in_a_bucket_is_copied_once(bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangway.trainer.data.sources._COPY_BYTES", 1000)
    content = bytes(range(256)) * 10
    bucket.put("data/files.tar.gz", content)
    copy = fetch(f"{bucket.url}/data/files.tar.gz", tmp_path)
    assert copy.read_bytes() == content
    assert copy.is_relative_to(tmp_path)
    before = copy.stat().st_mtime_ns
    assert fetch(f"{bucket.url}/data/files.tar.gz", tmp_path) == copy
    assert copy.stat().st_mtime_ns == before
    drop_copies(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_in_a_bucket_is_named(bucket: Any, tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match=r"--source: cannot be read: .*not found") as caught:
        fetch(f"{bucket.url}/none.zip", tmp_path)
    assert caught.value.value == f"{bucket.url}/none.zip"
    assert files_in(f"{bucket.url}/none", tmp_path).listing().files == {}


@pytest.mark.parametrize("bucket", ["s3"], indirect=True)
def test_a_bucket_that_is_not_there_is_named(bucket: Any, tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match=r"--source: cannot be read: .*404"):
        files_in("s3://another/data", tmp_path).listing()


def test_a_local_source_that_is_not_there_is_named(tmp_path: Path) -> None:
    for read in (files_in, fetch):
        with pytest.raises(TrainerError, match="there is no such source") as caught:
            read(str(tmp_path / "none"), tmp_path)
        assert caught.value.value == str(tmp_path / "none")


def test_other_kinds_of_storage_are_refused() -> None:
    assert [is_remote(source) for source in ("s3://b/x", "gs://b", "az://c/x", "/data", "data", "c:/data")] == [
        *[True] * 3,
        *[False] * 3,
    ]
    with pytest.raises(TrainerError, match="not a kind of storage") as caught:
        is_remote("ftp://host/file")
    assert "s3://BUCKET/FOLDER, gs://BUCKET/FOLDER, az://ACCOUNT/CONTAINER/FOLDER" in caught.value.allowed


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    path = tmp_path / "files.zip"
    with zipfile.ZipFile(path, "w") as archive:
        _fill(archive.writestr)
    whole = path.read_bytes()
    cut = tmp_path / "cut.zip"
    cut.write_bytes(whole[:-100])
    with pytest.raises(TrainerError, match=r"cut\.zip: the archive is damaged"):
        files_in(str(cut), tmp_path).listing()
    flipped = tmp_path / "flipped.zip"
    flipped.write_bytes(whole.replace(b"2" * 20, b"2" * 19 + b"3"))
    with pytest.raises(OSError, match="damaged in the archive"):
        files_in(str(flipped), tmp_path).read("b/c d.png")


def test_the_fingerprint_tells_names_and_sizes_apart() -> None:
    sizes = {"a": 1, "b": 2}
    told = {fingerprint(sizes), fingerprint({"b": 2, "a": 1}), fingerprint({"a": 1, "b": 3}), fingerprint({"a": 1})}
    assert len(told) == 3
    digest = hashlib.sha256(b"a\x001\nb\x002\n").hexdigest()
    assert fingerprint(sizes) == f"sha256 over 2 names and sizes {digest}"


@pytest.mark.attack("who gives the data", "archives and images that unpack to gigabytes")
def test_a_bomb_in_an_archive_is_not_unpacked(tmp_path: Path) -> None:
    """16 MiB of zeros shrink to a thousandth, and may: a bitmap does. More that shrinks so far is no picture."""
    path = tmp_path / "files.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("white.bmp", bytes(16 << 20))
        archive.writestr("bomb.png", bytes((16 << 20) + 1))
    files = files_in(str(path), tmp_path)
    assert files.read("white.bmp") == bytes(16 << 20)
    with pytest.raises(OSError, match="a bomb"):
        files.read("bomb.png")


@pytest.mark.attack("who gives the data", "archives and images that unpack to gigabytes")
def test_what_an_archive_says_is_too_large_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "files.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.png", bytes(1001))
    files = files_in(str(path), tmp_path)
    monkeypatch.setattr("gangway.trainer.data.sources._LARGEST_MEMBER_BYTES", 1001)
    assert len(files.read("a.png")) == 1001
    monkeypatch.setattr("gangway.trainer.data.sources._LARGEST_MEMBER_BYTES", 1000)
    with pytest.raises(OSError, match="too large in the archive: 1,001 bytes"):
        files.read("a.png")


def test_an_archive_that_lies_gives_no_more_than_it_says(tmp_path: Path) -> None:
    """The head of a member says 10 bytes, its data hold a thousand."""
    path = tmp_path / "files.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.png", bytes(1000))
    content = path.read_bytes()
    assert content.count((1000).to_bytes(4, "little")) == 2
    path.write_bytes(content.replace((1000).to_bytes(4, "little"), (10).to_bytes(4, "little")))
    with pytest.raises(OSError, match="damaged in the archive"):
        files_in(str(path), tmp_path).read("a.png")
