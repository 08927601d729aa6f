"""Preparing goes on after whatever stopped it, and the result is the same to the bit."""

import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangway.trainer.core.console import Progress
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.data import prepare as prepare_module
from gangway.trainer.data.decode import Cut, FilmDecoder
from gangway.trainer.data.index import BrokenItemError, Decoded, Recipe, SourceNote
from gangway.trainer.data.packaged_data import photos_recipe
from gangway.trainer.data.prepare import JOURNAL_FILE, Broken, Journal, decode_in_order, prepare
from gangway.trainer.data.shards import ShardedImages
from gangway.trainer.data.sources import LocalFolder

NOTE = SourceNote(name="x", content="x", official="x", split="x", processing="x", licence="x")


@dataclass(frozen=True)
class Numbers:
    """Item n is `sizes[n]` images of value n, and label n % 3; broken items say so."""

    sizes: tuple[int, ...]
    broken: frozenset[int] = frozenset()

    def __call__(self, item: int) -> Decoded:
        if item in self.broken:
            raise BrokenItemError("of no use")
        size = self.sizes[item]
        return Decoded(np.full((size, 1, 2, 2), item, np.uint8), np.full(size, item % 3, np.int64))


def _recipe(sizes: tuple[int, ...], per_shard: int = 3, **changes: Any) -> Recipe:
    return Recipe(
        dataset="numbers",
        shape=(1, 2, 2),
        classes=("a", "b", "c"),
        items=tuple(f"item {number}" for number in range(len(sizes))),
        items_per_shard=per_shard,
        decode=Numbers(sizes, **changes),
        note=NOTE,
    )


class StopError(Exception):
    """Stands in for whatever ends a preparation."""


class Stopping(Progress):
    """Stops after so many items."""

    def __init__(self, after: int) -> None:
        super().__init__("numbers", 10)
        self._left = after

    def add(self, number: int) -> None:
        self._left -= number
        if self._left < 0:
            raise StopError


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=12).map(tuple),
    per_shard=st.integers(1, 5),
    stop=st.integers(0, 12),
    data=st.data(),
)
def test_stopped_anywhere_it_goes_on_to_the_same_data_set(
    sizes: tuple[int, ...], per_shard: int, stop: int, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("shards")
    broken = frozenset(data.draw(st.sets(st.integers(0, len(sizes) - 1), max_size=len(sizes) - 1)))
    recipe = _recipe(sizes, per_shard, broken=broken)
    try:
        prepare(recipe, folder, skip_broken=True, progress=Stopping(stop))
    except StopError:
        assert not (folder / "index.json").exists()
    index = prepare(recipe, folder, skip_broken=True)
    whole = prepare(recipe, tmp_path_factory.mktemp("whole"), skip_broken=True)
    assert index == whole
    images = ShardedImages.open(folder)
    expected = [number for number, size in enumerate(sizes) if number not in broken for _ in range(size)]
    everything = np.arange(len(expected))
    assert images.take(everything)[:, 0, 0, 0].tolist() == expected
    assert images.labels(everything).tolist() == [number % 3 for number in expected]
    assert index.source is not None
    left_out = [(each.reason, each.count, each.names) for each in index.source.skipped]
    names = tuple(f"item {number}" for number in sorted(broken))
    assert left_out == ([("of no use", len(broken), names)] if broken else [])


def test_finished_shards_are_kept_and_damaged_ones_made_anew(tmp_path: Path) -> None:
    recipe = _recipe((1,) * 9)
    index = prepare(recipe, tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert prepare(recipe, tmp_path) == index
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    (tmp_path / "00001.npy").write_bytes(b"damaged")
    with pytest.raises(TrainerError, match=r"00001\.npy: shard is corrupt") as caught:
        ShardedImages.open(tmp_path)
    assert "makes it anew" in caught.value.fix
    assert prepare(recipe, tmp_path) == index
    assert ShardedImages.open(tmp_path).index == index
    after = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert {name for name in before if after[name] == before[name]} == {"00000.npy", "00002.npy"}


def test_damaged_labels_are_made_anew_and_the_shards_kept(tmp_path: Path) -> None:
    recipe = _recipe((1,) * 9)
    index = prepare(recipe, tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("0*.npy")}
    np.save(tmp_path / "labels.npy", np.zeros(9, np.int64))
    with pytest.raises(TrainerError, match=r"labels\.npy: file of labels is corrupt") as caught:
        ShardedImages.open(tmp_path)
    assert "makes it anew" in caught.value.fix
    assert prepare(recipe, tmp_path) == index
    assert ShardedImages.open(tmp_path).labels(np.arange(4)).tolist() == [0, 1, 2, 0]
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("0*.npy")} == before


def test_a_broken_item_stops_it_and_what_came_before_is_kept(tmp_path: Path) -> None:
    recipe = _recipe((1,) * 9, broken=frozenset({4}))
    with pytest.raises(TrainerError, match="item 4: cannot be used: of no use") as caught:
        prepare(recipe, tmp_path)
    assert "--skip-broken" in caught.value.fix
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000.npy", JOURNAL_FILE]
    assert prepare(recipe, tmp_path, skip_broken=True).num_images == 8


def _killed(item: int) -> Decoded:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError(f"item {item}: nobody gets here")


def test_a_process_that_is_killed_is_told_apart(tmp_path: Path) -> None:
    poison = replace(_recipe((1,) * 9), decode=_killed)
    with pytest.raises(TrainerError, match="--workers: a decoding process was killed") as caught:
        prepare(poison, tmp_path, workers=2)
    assert caught.value.fix.startswith("--workers 1")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"dataset": "letters"}, "the folder holds numbers, from another source or with other settings"),
        ({"note": NOTE.model_copy(update={"content": "y"})}, "numbers, from another source"),
        ({"items_per_shard": 4}, "numbers, from another source"),
    ],
    ids=["dataset", "source", "settings"],
)
def test_a_folder_of_something_else_is_left_alone(changes: dict[str, Any], problem: str, tmp_path: Path) -> None:
    index = prepare(_recipe((1,) * 9), tmp_path)
    with pytest.raises(TrainerError, match=problem) as caught:
        prepare(replace(_recipe((1,) * 9), **changes), tmp_path)
    assert caught.value.place == "--out"
    assert ShardedImages.open(tmp_path).index == index


def test_where_the_source_lies_does_not_matter(tmp_path: Path) -> None:
    index = prepare(_recipe((1,) * 9), tmp_path)
    moved = replace(_recipe((1,) * 9), note=NOTE.model_copy(update={"location": "s3://elsewhere"}))
    assert prepare(moved, tmp_path) == index


def test_a_folder_without_a_journal_is_left_alone(tmp_path: Path) -> None:
    prepare(_recipe((1,) * 9), tmp_path)
    (tmp_path / JOURNAL_FILE).unlink()
    with pytest.raises(TrainerError, match="a data set that this command did not begin"):
        prepare(_recipe((1,) * 9), tmp_path)


@pytest.mark.parametrize("cut", [1, 40])
def test_a_journal_cut_short_costs_a_shard(cut: int, tmp_path: Path) -> None:
    recipe = _recipe((1,) * 9)
    index = prepare(recipe, tmp_path)
    journal = tmp_path / JOURNAL_FILE
    journal.write_bytes(journal.read_bytes()[:-cut])
    (tmp_path / "index.json").unlink()
    assert prepare(recipe, tmp_path) == index
    assert [json.loads(line)["number"] for line in journal.read_text().splitlines()[1:]] == [0, 1, 2]


def test_two_processes_do_not_write_into_one_folder(tmp_path: Path) -> None:
    recipe = _recipe((1,) * 9)
    with Journal.open(tmp_path, recipe), pytest.raises(TrainerError, match="another process is preparing this folder"):
        prepare(recipe, tmp_path)
    assert prepare(recipe, tmp_path).num_images == 9


def test_a_file_system_without_locks_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("gangway.trainer.core.files.fcntl.flock", unsupported)
    assert prepare(_recipe((1,) * 9), tmp_path).num_images == 9


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TrainerError, match=r"file/journal\.jsonl: cannot be written: "):
        prepare(_recipe((1,) * 9), tmp_path / "file")


def test_a_damaged_journal_is_not_guessed_at(tmp_path: Path) -> None:
    (tmp_path / JOURNAL_FILE).write_text("nonsense\n")
    with pytest.raises(TrainerError, match=r"a journal\.jsonl that is damaged"):
        prepare(_recipe((1,)), tmp_path)


def test_a_full_disk_is_named_and_the_rest_goes_on_later(tmp_path: Path, full_disk: Callable[[str], None]) -> None:
    recipe = _recipe((1,) * 9)
    full_disk("00001.npy")
    with pytest.raises(TrainerError, match=r"00001\.npy: cannot be written: No space left"):
        prepare(recipe, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000.npy", JOURNAL_FILE]
    kept = (tmp_path / "00000.npy").stat().st_mtime_ns
    prepare(recipe, tmp_path)
    assert (tmp_path / "00000.npy").stat().st_mtime_ns == kept


def test_a_disk_too_full_for_the_journal_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangway.trainer.data.prepare.os.fsync", _full)
    with pytest.raises(TrainerError, match=r"journal\.jsonl: cannot be written: No space left"):
        prepare(_recipe((1,) * 9), tmp_path)


def _full(handle: int) -> None:
    if Path(f"/proc/self/fd/{handle}").readlink().name == JOURNAL_FILE:
        raise OSError(28, "No space left on device")


@pytest.fixture
def photos(tmp_path: Path) -> list[str]:
    """A real command that takes some seconds: seven shards, two decoding processes."""
    pytest.importorskip("skimage", reason="the photographs ship in scikit-image")
    flags = ["--resolution", "96", "--workers", "2", "--out", str(tmp_path / "out")]
    return ["-m", "gangway.trainer", "data", "prepare", "photos", *flags]


def _begun(command: Any, out: Path) -> list[psutil.Process]:
    """Waits until two shards are finished; returns the decoding processes."""
    journal = out / JOURNAL_FILE
    command.wait_for(lambda: journal.exists() and len(journal.read_text().splitlines()) > 2)
    assert not (out / "index.json").exists()
    children: list[psutil.Process] = psutil.Process(command.process.pid).children(recursive=True)
    assert len(children) >= 2
    return children


@pytest.mark.slow
def test_killed_in_the_middle_it_goes_on_to_the_identical_data_set(
    start: Callable[..., Any], photos: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    command = start(*photos)
    children = _begun(command, out)
    os.kill(command.process.pid, signal.SIGKILL)
    command.process.wait()
    assert psutil.wait_procs(children, timeout=60)[1] == [], "the decoding processes end with their parent"
    kept = {path.name: path.stat().st_mtime_ns for path in out.glob("0000[01].npy")}
    code, output = start(*photos).finish()
    assert code == 0, output
    assert {path.name: path.stat().st_mtime_ns for path in out.glob("0000[01].npy")} == kept
    assert not list(out.glob(".partial-*"))
    whole = tmp_path / "whole"
    prepare(photos_recipe(resolution=96), whole)
    assert (whole / "index.json").read_text() == (out / "index.json").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_says_so_and_leaves_nothing_half_done(
    start: Callable[..., Any], photos: list[str], tmp_path: Path, number: signal.Signals
) -> None:
    out = tmp_path / "out"
    command = start(*photos)
    children = _begun(command, out)
    os.killpg(command.process.pid, number)  # as a terminal's Ctrl-C and a service's end do
    code, output = command.finish()
    assert code == 75, output
    assert "interrupted: finished shards are kept" in output
    assert "Traceback" not in output
    assert psutil.wait_procs(children, timeout=60)[1] == []
    assert not list(out.glob(".partial-*"))
    assert not (out / "index.json").exists()


@pytest.mark.slow
def test_a_signal_to_its_processes_alone_disturbs_nothing(
    start: Callable[..., Any], photos: list[str], tmp_path: Path
) -> None:
    """One that died of it in the middle of a result would keep the others waiting for its rest."""
    command = start(*photos)
    for child in _begun(command, tmp_path / "out"):
        child.send_signal(signal.SIGTERM)
    code, output = command.finish()
    assert code == 0, output


@dataclass(frozen=True)
class Hungry:
    """Items that take so many bytes of memory on the way."""

    sizes: tuple[int, ...]

    def __call__(self, item: int) -> Decoded:
        taken = np.ones(self.sizes[item], np.uint8)
        return Decoded(taken[:4].reshape(1, 1, 2, 2), np.array([0]))


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA counts mappings on Linux alone")
@pytest.mark.attack("a bucket's writer", "a file that would fill the memory")
def test_what_takes_too_much_memory_is_one_broken_item(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare_module, "MOST_BYTES", 64 << 20)
    recipe = replace(_recipe((1, 1, 1)), decode=Hungry((1 << 20, 1 << 30, 1 << 20)))
    first, second, third = (result for _, result in decode_in_order(recipe, range(3), 1))
    assert isinstance(first, Decoded)
    assert isinstance(second, Broken)
    assert "of memory" in second.why
    assert isinstance(third, Decoded)


@pytest.mark.attack("a bucket's writer", "a film that would fill the memory")
def test_a_film_too_large_for_the_memory_is_a_broken_item(
    tmp_path: Path, film: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare_module, "MOST_BYTES", 96 << 20)
    cut = Cut(resolution=256, channels=3, frames=16)
    names = ("long.avi", "short.avi")
    for name, frames in zip(names, (1500, 20), strict=True):
        (tmp_path / name).write_bytes(film(frames))
    decoder = FilmDecoder(LocalFolder(tmp_path), names, cut)
    recipe = replace(_recipe((1, 1)), items=names, shape=cut.shape, classes=(), decode=decoder)
    long, short = (result for _, result in decode_in_order(recipe, range(2), 1))
    assert isinstance(long, Broken)
    assert isinstance(short, Decoded)
