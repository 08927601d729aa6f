"""CIFAR-10 from both official archives, and no code of a pickle is ever run."""

import gzip
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gangway.trainer.core.errors import TrainerError
from gangway.trainer.data import cifar10
from gangway.trainer.data.cifar10 import cifar10_recipe
from gangway.trainer.data.prepare import prepare
from gangway.trainer.data.shards import ShardedImages
from gangway.trainer.data.sources import md5_of


def _prepared(source: Path, out: Path, split: str = "train") -> ShardedImages:
    prepare(cifar10_recipe(str(source), out, split=split, allow_other_hash=True), out)
    return ShardedImages.open(out)


@pytest.mark.parametrize("version", ["python", "binary"])
def test_an_archive_is_read_as_it_was_written(version: str, cifar: Callable[..., Any], tmp_path: Path) -> None:
    archive = cifar(version)
    data = _prepared(archive.path, tmp_path)
    everything = np.arange(20)
    np.testing.assert_array_equal(data.take(everything), archive.images)
    np.testing.assert_array_equal(data.labels(everything), archive.labels)
    index = data.index
    assert (index.dataset, index.shape, index.num_classes, len(index.shards)) == ("cifar10", (3, 32, 32), 10, 5)
    assert index.labels is not None
    assert index.labels.classes[:3] == ("airplane", "automobile", "bird")
    assert index.source is not None
    assert index.source.content == f"md5 {md5_of(archive.path)}"
    assert index.source.official.startswith("no: md5")


def test_both_versions_and_a_folder_give_the_same_data_set(cifar: Callable[..., Any], tmp_path: Path) -> None:
    hashes = {
        _prepared(source, tmp_path / str(number)).index.sha256
        for number, source in enumerate([cifar("python").path, cifar("binary").path, cifar("python").path.parent])
    }
    assert len(hashes) == 1


def test_the_test_batch_is_another_split(cifar: Callable[..., Any], tmp_path: Path) -> None:
    archive = cifar("python")
    test = _prepared(archive.path, tmp_path, "test")
    assert len(test) == 4
    assert not np.array_equal(test.take(np.arange(4)), archive.images[:4])
    assert test.index.source is not None
    assert test.index.source.split == "test"


def test_another_archive_than_the_official_one_is_refused(
    cifar: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = cifar("python")
    with pytest.raises(TrainerError, match="is not the official archive") as caught:
        cifar10_recipe(str(archive.path), tmp_path, split="train", allow_other_hash=False)
    md5 = md5_of(archive.path)
    assert str(caught.value.value).startswith(f"md5 {md5}, ")
    assert "c58f30108f718f92721af3b95e74349a" in caught.value.allowed
    assert "--allow-other-hash" in caught.value.fix
    monkeypatch.setattr("gangway.trainer.data.cifar10._CHECKSUMS", {md5: "cifar-10-python.tar.gz"})
    recipe = cifar10_recipe(str(archive.path), tmp_path, split="train", allow_other_hash=False)
    assert recipe.note.official == f"yes: md5 {md5} is that of cifar-10-python.tar.gz"


class _Bomb:
    def __reduce__(self) -> tuple[Callable[..., None], tuple[str]]:
        return Path.touch, (Path("exploded"),)  # type: ignore[return-value]  # what an attacker would write


_STAND_INS = ("_codecs\nencode", "numpy\nndarray", "numpy\ndtype", "numpy.core.multiarray\n_reconstruct")
EVIL = {
    "code": pickle.dumps({b"data": _Bomb(), b"labels": []}, protocol=2),
    "builtins": b"\x80\x02cbuiltins\neval\nX\x0f\x00\x00\x00open('x', 'w')\x85R.",
    "os": b"cos\nsystem\n(S'touch exploded'\ntR.",
    "numpy": b"cnumpy\nload\n(S'exploded'\ntR.",
}


@pytest.mark.parametrize("kind", list(EVIL))
def test_a_pickle_that_asks_for_code_is_refused_and_nothing_runs(
    kind: str, tar: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    archive = tmp_path / "evil.tar.gz"
    tar(archive, {f"cifar-10-batches-py/{name}": EVIL[kind] for name in _names()})
    with pytest.raises(TrainerError, match=r"data_batch_1: cannot be used: its pickle asks for [\w.]+, which"):
        _prepared(archive, tmp_path / "out")
    assert not list(tmp_path.glob("exploded"))


STAINS = {name: f"c{name}\n".encode() + b"N}X\x05\x00\x00\x00stainI01\ns\x86b." for name in _STAND_INS}


@pytest.mark.parametrize("name", list(STAINS))
def test_a_pickle_cannot_change_what_it_names(name: str, tar: Callable[..., None], tmp_path: Path) -> None:
    """A pickle may ask to set attributes of anything it can name, even of a function or a class."""
    tar(tmp_path / "stain.tar.gz", {f"cifar-10-batches-py/{batch}": b"\x80\x02" + STAINS[name] for batch in _names()})
    with pytest.raises(TrainerError, match="data_batch_1: cannot be used: not a batch of CIFAR-10"):
        _prepared(tmp_path / "stain.tar.gz", tmp_path / "out")
    known = cifar10._Unpickler._KNOWN.values()
    assert not any(hasattr(stand_in, "stain") for stand_in in known)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not a batch of CIFAR-10: EOFError"),
        (pickle.dumps([1, 2], protocol=2), "not a batch of CIFAR-10"),
        (pickle.dumps({"data": np.zeros((2, 10), np.uint8), "labels": [1, 2]}, protocol=2), r"shape \(2, 10\) for 2"),
        (pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": [1]}, protocol=2), r"shape \(2, 3072\) for 1"),
        (pickle.dumps({"data": np.zeros((1, 3072), np.uint8), "labels": [10]}, protocol=2), r"a label is not 0\.\.9"),
        (pickle.dumps({"data": np.zeros((1, 3072), np.int64), "labels": [1]}, protocol=2), "not bytes in C order"),
        (pickle.dumps({"data": np.zeros((3072, 2), np.uint8).T, "labels": [1, 2]}, protocol=2), "not bytes in C order"),
    ],
    ids=["empty", "list", "width", "length", "label", "dtype", "order"],
)
def test_a_batch_that_is_none_is_named(content: bytes, why: str, tar: Callable[..., None], tmp_path: Path) -> None:
    tar(tmp_path / "odd.tar.gz", {f"cifar-10-batches-py/{name}": content for name in _names()})
    with pytest.raises(TrainerError, match=rf"data_batch_1: cannot be used: .*{why}"):
        _prepared(tmp_path / "odd.tar.gz", tmp_path / "out")


def test_binary_records_must_be_whole(tar: Callable[..., None], tmp_path: Path) -> None:
    tar(tmp_path / "odd.tar.gz", {f"cifar-10-batches-bin/{name}.bin": bytes(3074) for name in _names()})
    with pytest.raises(TrainerError, match="3074 bytes are not whole records of 3073"):
        _prepared(tmp_path / "odd.tar.gz", tmp_path / "out")


def test_a_truncated_archive_is_named(cifar: Callable[..., Any], tmp_path: Path) -> None:
    whole = cifar("python").path.read_bytes()
    cut = tmp_path / "cut.tar.gz"
    for length in (0, 100, len(whole) // 2):
        cut.write_bytes(whole[:length])
        with pytest.raises(TrainerError, match=r"cut\.tar\.gz: is not a readable tar archive"):
            _prepared(cut, tmp_path / "out")


def test_another_archive_or_none_is_named(tar: Callable[..., None], tmp_path: Path) -> None:
    other = tmp_path / "other.tar.gz"
    tar(other, {"cifar-100-python/train": b"x"})
    with pytest.raises(TrainerError, match=r"other\.tar\.gz: the archive has no data_batch_1"):
        _prepared(other, tmp_path / "out")
    other.write_bytes(gzip.compress(b"no tar"))
    with pytest.raises(TrainerError, match="is not a readable tar archive"):
        _prepared(other, tmp_path / "out")
    (tmp_path / "empty").mkdir()
    with pytest.raises(TrainerError, match="holds no archive of CIFAR-10") as caught:
        _prepared(tmp_path / "empty", tmp_path / "out")
    assert "https://www.cs.toronto.edu/~kriz/cifar.html" in caught.value.fix


def test_it_is_read_from_a_bucket(bucket: Any, cifar: Callable[..., Any], tmp_path: Path) -> None:
    archive = cifar("binary")
    bucket.put("sets/cifar-10-binary.tar.gz", archive.path.read_bytes())
    out = tmp_path / "out"
    prepare(cifar10_recipe(f"{bucket.url}/sets", out, split="train", allow_other_hash=True), out)
    data = ShardedImages.open(out)
    np.testing.assert_array_equal(data.take(np.arange(20)), archive.images)
    assert data.index.source is not None
    assert data.index.source.location == f"{bucket.url}/sets"


def _names() -> list[str]:
    return [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
