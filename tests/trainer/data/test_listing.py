"""What a source leaves out is counted alike, whatever kind of source it is, and labels are of what is left."""

import json
import os
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gangway.trainer.core.errors import TrainerError
from gangway.trainer.data.celeba import folder_recipe
from gangway.trainer.data.index import SourceNote
from gangway.trainer.data.prepare import prepare
from gangway.trainer.data.shards import ShardedImages
from gangway.trainer.data.sources import MOST_NAMES, Skipped, Tally, ancestors, files_in, table
from tests.other_users import MALLORY

Counts = dict[tuple[str, str], int]


def _png(width: int, height: int, bits: int, content: bytes = b"") -> bytes:
    """An RGB file of that size and depth, of one colour where there are no other pixels."""
    row = b"\0" + bytes(range(1, 4)) * (width * bits // 8)
    parts = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, bits, 2, 0, 0, 0),
        b"IDAT": zlib.compress(content or row * height),
        b"IEND": b"",
    }
    chunks = (
        struct.pack(">I", len(part)) + name + part + struct.pack(">I", zlib.crc32(name + part))
        for name, part in parts.items()
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _tiff16(width: int, height: int) -> bytes:
    """RGB of 16 bits, which Pillow itself does not write."""
    where = 8 + 2 + 12 * 10 + 4
    tags = [(256, width), (257, height), (258, where), (259, 1), (262, 2), (273, where + 6), (277, 3), (278, height)]
    tags += [(279, width * height * 6), (284, 1)]
    entries = (struct.pack("<HHII", tag, 3 if tag == 258 else 4, 3 if tag == 258 else 1, value) for tag, value in tags)
    head = b"II" + struct.pack("<HIH", 42, 8, len(tags)) + b"".join(entries) + bytes(4)
    return head + struct.pack("<HHH", 16, 16, 16) + b"\x9c\x40" * (width * height * 3)


def _fill(put: Callable[[str, bytes], None], picture: Callable[..., bytes]) -> Counts:
    """What every kind of source can hold, four images of it usable; what is left out."""
    for number, name in enumerate(("cats/1.png", "cats/2.JPG", "dogs/a b/3.png", "dogs/4.png")):
        put(name, picture(number, kind="JPEG" if name.endswith("JPG") else "PNG"))
    put("dogs/deep.png", _png(20, 20, 16))
    put("dogs/deep.tif", _tiff16(20, 20))
    put("dogs/huge.png", _png(20_000, 20_000, 8, content=b"x"))
    put("dogs/cut.png", picture(9)[:200])
    for name in (".git/HEAD", ".git/refs/x.png", "__MACOSX/cats/._1.png", "dogs/.DS_Store", "cats/README"):
        put(name, b"x")
    for name in ("cats/a.txt", "cats/b.TXT", "sheets/a.csv", "sheets/.hidden/x.png"):
        put(name, b"x")
    return {
        (".png file", "more than 8 bits a channel"): 1,
        (".tif file", "more than 8 bits a channel"): 1,
        (".png file", "too many pixels"): 1,
        (".png file", "not a readable image"): 1,
        ("folder", "hidden"): 3,
        ("file", "hidden"): 1,
        ("file", "not an image"): 1,
        (".txt file", "not an image"): 2,
        (".csv file", "not an image"): 1,
        ("class", "has no image"): 1,
    }


def _folder(root: Path, picture: Callable[..., bytes]) -> Counts:
    def put(name: str, content: bytes) -> None:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)

    counts = _fill(put, picture)
    elsewhere = root.with_name("elsewhere")
    elsewhere.mkdir()
    (elsewhere / "5.png").write_bytes(picture(5))
    (root / "foxes").symlink_to(elsewhere)
    (elsewhere / "again").symlink_to(root)
    (root / "dogs" / "self").symlink_to("self")
    (root / "dogs" / "gone").symlink_to("/nowhere/else")
    (root / "dogs" / ".#locked").symlink_to("an editor's note")
    (root / "birds").mkdir()
    os.mkfifo(root / "dogs" / "pipe.png")
    return {
        **counts,
        ("file", "hidden"): 2,
        ("folder", "empty"): 1,
        ("device, socket or pipe", "not a file"): 1,
        ("link", "leads nowhere"): 2,
        ("link", "leads to a folder that it is in"): 1,
    }


def _zip(path: Path, picture: Callable[..., bytes]) -> Counts:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("cats/1.png", b"which is there again, and read then")
        with pytest.warns(UserWarning, match="Duplicate name"):
            counts = _fill(archive.writestr, picture)
        archive.writestr("foxes\\5.png", picture(5))
        archive.mkdir("birds")
        archive.mkdir("cats")
        link = zipfile.ZipInfo("dogs/gone")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/nowhere/else")
    again = (".png file", "name is there again; the last is read")
    return {**counts, again: 1, ("folder", "empty"): 1, ("link", "not followed in an archive"): 1}


def _check(source: str, out: Path, expected: Counts) -> None:
    """The same five images, and everything else counted."""
    recipe = folder_recipe(source, out, resolution=16, channels=3, labels=True)
    index = prepare(recipe, out / "shards", skip_broken=True)
    assert index.labels is not None
    assert index.labels.classes == ("cats", "dogs", "foxes")
    assert ShardedImages.open(out / "shards").labels(np.arange(5)).tolist() == [0, 0, 1, 1, 2]
    assert index.source is not None
    left_out = {(each.kind, each.reason): each.count for each in index.source.skipped}
    assert left_out == expected, index.source.skipped
    assert all(len(each.names) == each.count for each in index.source.skipped)


@pytest.mark.parametrize(("name", "fill"), [("raw", _folder), ("raw.zip", _zip)], ids=["folder", "zip"])
def test_a_local_source_counts_what_it_leaves_out(
    name: str, fill: Callable[..., Counts], picture: Callable[..., bytes], tmp_path: Path
) -> None:
    expected = fill(tmp_path / name, picture)
    _check(str(tmp_path / name), tmp_path / "out", expected)


@pytest.mark.slow
def test_a_bucket_counts_what_it_leaves_out(bucket: Any, picture: Callable[..., bytes], tmp_path: Path) -> None:
    expected = _fill(lambda name, content: bucket.put(f"raw/{name}", content), picture)
    bucket.put("raw/foxes/5.png", picture(5))
    bucket.put("raw/birds #?/", b"")  # as a console makes a folder
    _check(f"{bucket.url}/raw", tmp_path / "out", {**expected, ("folder", "empty"): 1})


def test_a_broken_link_stops_it_before_anything_is_decoded(picture: Callable[..., bytes], tmp_path: Path) -> None:
    _folder(tmp_path / "raw", picture)
    recipe = folder_recipe(str(tmp_path / "raw"), tmp_path, resolution=16, channels=3, labels=True)
    with pytest.raises(TrainerError, match="cannot be used: link: leads nowhere") as caught:
        prepare(recipe, tmp_path / "shards")
    assert caught.value.place == str(tmp_path / "raw" / "dogs" / "gone")
    assert "--skip-broken" in caught.value.fix
    assert not (tmp_path / "shards").exists()


@contextmanager
def _as_another_user() -> Iterator[None]:
    """Root may read everything."""
    own = os.geteuid()
    if own == 0:
        os.seteuid(MALLORY)
    try:
        yield
    finally:
        os.seteuid(own)


@pytest.mark.parametrize("mode", [0o000, 0o444], ids=["closed", "names alone"])
def test_a_folder_that_cannot_be_read_is_an_error(mode: int, picture: Callable[..., bytes]) -> None:
    with tempfile.TemporaryDirectory() as name:  # tmp_path is closed to others as a whole
        root = Path(name)
        root.chmod(0o755)
        (root / "cats").mkdir()
        (root / "cats" / "1.png").write_bytes(picture(1))
        (root / "cats").chmod(mode)
        with _as_another_user(), pytest.raises(TrainerError, match="cannot be listed: permission denied") as caught:
            files_in(name, root).listing()
        (root / "cats").chmod(0o700)
    assert caught.value.place.startswith(f"{name}/cats")


def test_one_class_is_refused_and_the_level_below_named(picture: Callable[..., bytes], tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "raw.zip", "w") as archive:
        for name in ("set/train/cats/1.png", "set/train/dogs/2.png"):
            (tmp_path / "raw" / name).parent.mkdir(parents=True)
            (tmp_path / "raw" / name).write_bytes(picture(1))
            archive.writestr(name, picture(1))
    for source, fix in (
        ("raw", f"--source {tmp_path}/raw/set/train, which holds cats, dogs"),
        ("raw.zip", "unpack it, and --source set/train, which holds cats, dogs"),
    ):
        with pytest.raises(TrainerError, match="--labels: all images would be of one class") as caught:
            folder_recipe(str(tmp_path / source), tmp_path, resolution=16, channels=3, labels=True)
        assert caught.value.fix == fix
    below = folder_recipe(str(tmp_path / "raw/set/train"), tmp_path, resolution=16, channels=3, labels=True)
    assert below.classes == ("cats", "dogs")
    (tmp_path / "raw/set/train/dogs/2.png").unlink()
    with pytest.raises(TrainerError, match="of one class") as caught:
        folder_recipe(str(tmp_path / "raw"), tmp_path, resolution=16, channels=3, labels=True)
    assert caught.value.fix.startswith("name the folder above")


STYLEGAN = [["00000/1.png", 2], ["00000\\2.png", 0], ["00001/3.png", 2], ["00001/gone.png", 1]]


def _labelled(path: Path, document: object, picture: Callable[..., bytes]) -> str:
    with zipfile.ZipFile(path, "w") as archive:
        for number, name in enumerate(("00000/1.png", "00000/2.png", "00001/3.png")):
            archive.writestr(name, picture(number))
        archive.writestr("dataset.json", document if isinstance(document, str) else json.dumps({"labels": document}))
    return str(path)


def test_labels_of_an_archive_are_those_of_its_dataset_json(picture: Callable[..., bytes], tmp_path: Path) -> None:
    source = _labelled(tmp_path / "a.zip", STYLEGAN, picture)
    recipe = folder_recipe(source, tmp_path, resolution=16, channels=3, labels=True)
    assert recipe.classes == ("0", "1", "2")
    assert [int(part.labels[0]) for item in range(3) if (part := recipe.decode(item)).labels is not None] == [2, 0, 2]
    left_out = {(each.kind, each.reason): each.names for each in recipe.note.skipped}
    assert left_out == {("label", "has no image"): ("00001/gone.png",), ("class", "has no image"): ("1",)}
    other = _labelled(tmp_path / "b.zip", [*STYLEGAN[:2], ["00001/3.png", 1]], picture)
    changed = folder_recipe(other, tmp_path, resolution=16, channels=3, labels=True)
    assert changed.sha256 != recipe.sha256, "shards with other labels are another data set"
    bare = folder_recipe(source, tmp_path, resolution=16, channels=3, labels=False)
    assert bare.classes == ()
    assert [(each.kind, each.reason) for each in bare.note.skipped] == [("labels", "not read without --labels")]


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (None, "says that the images have no labels"),
        (STYLEGAN[:2], "labels are missing: an image has none there"),
        ([[name, 1] for name, _ in STYLEGAN], "all images are of one class"),
        ([["00000/1.png", [0.5, 0.5]]], "not an accepted value|not allowed|is not"),
        ([["00000/1.png", -1]], "labels"),
        ([["00000/1.png", 10**9]], "labels"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
    ],
    ids=["null", "missing", "one class", "vectors", "negative", "many classes", "cut", "deep"],
)
def test_a_dataset_json_of_another_kind_is_refused(
    document: object, problem: str, picture: Callable[..., bytes], tmp_path: Path
) -> None:
    source = _labelled(tmp_path / "a.zip", document, picture)
    with pytest.raises(TrainerError, match=problem) as caught:
        folder_recipe(source, tmp_path, resolution=16, channels=3, labels=True)
    assert caught.value.place.startswith("dataset.json of ")
    assert caught.value.fix


def test_names_are_bounded_and_counts_are_not() -> None:
    tally = Tally()
    for number in range(MOST_NAMES + 5):
        tally.skip("link", "leads nowhere", f"{number}")
    tally.add("odd\udcff.png", 3)
    link, name = tally.listing().skipped
    assert (link.count, len(link.names)) == (MOST_NAMES + 5, MOST_NAMES)
    assert name.names == ("odd\\udcff.png",)
    assert name.is_broken
    assert [line.split()[0] for line in table([link, name])] == ["1,005", "1"]
    assert table([link] * 22)[20:] == ["  and 2 more kinds and reasons"]
    assert ancestors(["a/b/c", "a/d", "e"]) == {"a", "a/b"}


def test_names_of_broken_files_in_an_older_index_are_counted() -> None:
    parts = dict.fromkeys(("name", "content", "official", "split", "processing", "licence"), "x")
    note = SourceNote.model_validate({**parts, "skipped": ["a.png", "b.png"]})
    assert note.skipped == (Skipped(kind=".png file", reason="cannot be used", count=2, names=("a.png", "b.png")),)
    assert SourceNote.model_validate_json(note.model_dump_json()) == note
