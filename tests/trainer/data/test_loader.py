"""Reading ahead changes nothing but time."""

import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from gangway.trainer.__main__ import main
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.data.loader import (
    MASK,
    ImageSource,
    Loader,
    PinnedBatch,
    Reading,
    Sampler,
    check_domains,
    images_per_sec,
    numbers_by_domain,
    order_digest,
    to_device,
)
from gangway.trainer.data.packaged_data import day_dusk_recipe
from gangway.trainer.data.prepare import prepare
from gangway.trainer.data.shards import ShardedImages
from tests.shard_files import write_shards
from tests.trainer.local_training import ImagesInMemory


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> ShardedImages:
    folder = tmp_path_factory.mktemp("shards")
    images = np.arange(50, dtype=np.uint8).reshape(50, 1, 1, 1).repeat(4, axis=3)
    write_shards(folder, "x", images, images_per_shard=20, labels=np.arange(50) % 5, classes=tuple("abcde"))
    return ShardedImages.open(folder)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 100),
    batch_size=st.integers(1, 30),
    jumps=st.lists(st.integers(-2, 3), min_size=1, max_size=12),
    cut=st.tuples(st.integers(0, 30), st.integers(0, 30)),
)
def test_every_position_holds_what_the_sampler_says(
    data: ShardedImages, seed: int, batch_size: int, jumps: list[int], cut: tuple[int, int]
) -> None:
    """In order, after a resume, back again, and each worker its slice."""
    share = slice(min(*cut, batch_size), min(max(cut), batch_size))
    loader = Loader(data, seed, batch_size, share)
    images = 0
    try:
        for jump in jumps:
            images = max(0, images + jump * batch_size)
            reals = loader.take(images)
            numbers = Sampler(50, seed).indices(images, batch_size)[share]
            assert reals.pinned.contents["pixels"][:, 0, 0, 0].tolist() == numbers.tolist()
            assert reals.pinned.contents["labels"].tolist() == (numbers % 5).tolist()
    finally:
        loader.close()


def test_without_labels_there_are_none(tmp_path: Path) -> None:
    write_shards(tmp_path, "x", np.zeros((4, 1, 2, 2), np.uint8))
    loader = Loader(ShardedImages.open(tmp_path), 0, 2, slice(0, 2))
    assert "labels" not in loader.take(0).pinned.contents
    loader.close()


def test_the_next_batch_is_read_while_the_step_computes(data: ShardedImages, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    ready = threading.Event()
    sampled = Sampler.indices

    def noting(sampler: Sampler, images: int, batch_size: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        read.append(images)
        if images == 16:
            ready.set()
        return sampled(sampler, images, batch_size)

    monkeypatch.setattr(Sampler, "indices", noting)
    loader = Loader(data, 0, 8, slice(0, 8))
    assert loader.stall_sec == 0
    loader.take(0)
    assert ready.wait(30), "nobody asked for 16 yet"
    assert read == [0, 8, 16]
    assert loader.stall_sec > 0
    loader.close()


def test_an_error_of_the_thread_is_raised_where_the_batch_is_taken(
    data: ShardedImages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ShardedImages, "take", lambda *_: 1 / 0)
    loader = Loader(data, 0, 8, slice(0, 8))
    with pytest.raises(ZeroDivisionError):
        loader.take(0)
    loader.close()


def test_the_rate_is_measured_over_whole_batches(data: ShardedImages) -> None:
    assert images_per_sec(data, 10, 0.05) > 0


@settings(max_examples=20, deadline=None)
@given(
    changes=st.lists(st.tuples(st.integers(0, 4), st.integers(1, 5)), min_size=1, max_size=6), seed=st.integers(0, 9)
)
def test_threads_and_batches_ahead_change_no_image(
    data: ShardedImages, changes: list[tuple[int, int]], seed: int
) -> None:
    """Set anew between any two batches, while others are under way."""
    loader = Loader(data, seed, 8, slice(0, 8))
    try:
        for number, (threads, prefetch) in enumerate(changes * 2):
            numbers = Sampler(50, seed).indices(8 * number, 8)
            assert loader.take(8 * number).pinned.contents["pixels"][:, 0, 0, 0].tolist() == numbers.tolist()
            loader.read_with(Reading(threads, prefetch))
    finally:
        loader.close()


def test_several_threads_read_several_batches_at_once() -> None:
    """Each waits in `take` until the others have come: with one thread they never would."""
    together = threading.Barrier(3, timeout=300)

    class Waits(ImagesInMemory):
        def take(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
            together.wait()
            return super().take(indices)

    images = Waits(np.zeros((50, 1, 1, 4), np.uint8))
    loader = Loader(images, 0, 5, slice(0, 5), reading=Reading(threads=1, prefetch=2))
    loader.read_with(Reading(threads=3, prefetch=2))
    for position in (5, 10, 0):
        loader._submit(position)
    assert loader.take(0).pinned.contents["pixels"].shape == (5, 1, 1, 4)
    loader.close()


def test_closed_it_reads_no_more() -> None:
    """A batch that an earlier pool still read after `close` would fall into whatever comes next."""
    reading, go_on = threading.Event(), threading.Event()
    finished: list[int] = []

    class Slow(ImagesInMemory):
        def take(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
            reading.set()
            go_on.wait(300)
            finished.append(len(indices))
            return super().take(indices)

    loader = Loader(Slow(np.zeros((50, 1, 1, 4), np.uint8)), 0, 5, slice(0, 5), reading=Reading(threads=1, prefetch=2))
    for position in (0, 5, 10):
        loader._submit(position)
    assert reading.wait(300)
    loader.read_with(Reading(threads=3, prefetch=2))
    threading.Timer(0.2, go_on.set).start()
    loader.close()
    after_close = len(finished)
    assert after_close == 1, "the one being read, and none of those that waited"


orders = st.lists(st.integers(0, 10**6), min_size=2, max_size=40)


@given(orders, st.integers(0, 10**9), st.data())
def test_it_adds_up(numbers: list[int], first: int, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(numbers)))
    array = np.array(numbers)
    parts = order_digest(first, array[:cut]) + order_digest(first + cut, array[cut:])
    assert parts & MASK == order_digest(first, array)


@given(orders, st.data())
def test_it_sees_an_exchange(numbers: list[int], data: st.DataObject) -> None:
    one, other = (data.draw(st.integers(0, len(numbers) - 1)) for _ in range(2))
    array = np.array(numbers)
    exchanged = array.copy()
    exchanged[[one, other]] = array[[other, one]]
    assert (order_digest(0, array) == order_digest(0, exchanged)) == (numbers[one] == numbers[other])


def test_it_is_the_same_for_ever() -> None:
    """Records of different versions compare by it."""
    assert f"{order_digest(16, np.array([3, 1, 2])):016x}" == "6a37a0b3e64a8500"


samplers = st.builds(Sampler, num_images=st.integers(1, 300), seed=st.integers(0, 2**63 - 1))


@given(sampler=samplers, epoch=st.integers(0, 5))
def test_every_epoch_shows_every_image_once(sampler: Sampler, epoch: int) -> None:
    order = sampler.indices(epoch * sampler.num_images, sampler.num_images)
    assert sorted(order) == list(range(sampler.num_images))


@given(sampler=samplers, start=st.integers(0, 1000), sizes=st.lists(st.integers(1, 200), min_size=1, max_size=6))
def test_the_sequence_does_not_depend_on_where_it_is_cut(sampler: Sampler, start: int, sizes: list[int]) -> None:
    whole = sampler.indices(start, sum(sizes))
    starts = np.cumsum([start, *sizes[:-1]])
    parts = [sampler.indices(int(begin), size) for begin, size in zip(starts, sizes, strict=True)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_the_order_of_images_is_the_one_of_every_run_so_far() -> None:
    """Taken from a run: another order is another training, and one that resumes would show images twice."""
    assert Sampler(10, 3).indices(0, 20).tolist() == [9, 6, 0, 2, 1, 4, 7, 5, 3, 8, 4, 1, 2, 8, 5, 0, 7, 9, 6, 3]
    assert Sampler(10, 4).indices(0, 10).tolist() == [1, 0, 7, 2, 9, 8, 6, 4, 3, 5]
    assert Sampler(5, 2**62).indices(7, 6).tolist() == [0, 2, 4, 1, 3, 0]


@given(num_images=st.integers(50, 300), seed=st.integers(0, 1000))
def test_seeds_and_epochs_differ_in_order(num_images: int, seed: int) -> None:
    first = Sampler(num_images, seed)
    assert not np.array_equal(first.indices(0, num_images), Sampler(num_images, seed + 1).indices(0, num_images))
    assert not np.array_equal(first.indices(0, num_images), first.indices(num_images, num_images))


PIXELS = np.arange(5 * 3 * 8 * 8, dtype=np.uint8).reshape(5, 3, 8, 8)


@pytest.fixture
def images() -> ImagesInMemory:
    return ImagesInMemory(PIXELS, np.array([1, 0, 0, 1, 0]), 2)


def test_images_are_numbered_by_domain_mirrored_ones_too(images: ImagesInMemory) -> None:
    check_domains(images, "x")
    assert [numbers.tolist() for numbers in numbers_by_domain(images)] == [[1, 2, 4], [0, 3]]
    twice = numbers_by_domain(images.mirrored())
    assert [numbers.tolist() for numbers in twice] == [[1, 2, 4, 6, 7, 9], [0, 3, 5, 8]]


@pytest.mark.parametrize(
    ("labels", "num_classes", "found"),
    [(None, 0, "no labels"), ([0] * 5, 1, "1 classes"), ([0, 1, 2, 0, 1], 3, "3 classes"), ([1] * 5, 2, "0 and 5")],
)
def test_other_data_is_refused(labels: list[int] | None, num_classes: int, found: str) -> None:
    data = ImagesInMemory(PIXELS, None if labels is None else np.array(labels), num_classes)
    with pytest.raises(TrainerError) as caught:
        check_domains(data, "data/index.json")
    assert caught.value.place == "data/index.json"
    assert found in str(caught.value.value)
    assert "domain" in caught.value.allowed
    assert "--labels" in caught.value.fix


def test_the_photographs_are_one_of_day_and_one_of_dusk(tmp_path: Path) -> None:
    pytest.importorskip("skimage", reason="the photographs ship in scikit-image")
    index = prepare(day_dusk_recipe(resolution=64), tmp_path)
    data = ShardedImages.open(tmp_path)
    assert (index.dataset, index.shape) == ("day-dusk", (3, 64, 64))
    assert index.labels is not None
    assert index.labels.classes == ("day", "dusk")
    day, dusk = (data.take(numbers) for numbers in numbers_by_domain(data))
    assert min(len(day), len(dusk)) > 500
    assert day.mean() > 2 * dusk.mean(), "it is darker at dusk"
    red, _, blue = dusk.mean(axis=(0, 2, 3))
    assert blue > 1.2 * red, "and bluer"


def test_two_folders_of_pictures_become_two_domains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, value in (("horses", 40), ("zebras", 200)):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for number in range(3):
            Image.new("RGB", (20, 20), (value,) * 3).save(tmp_path / "pictures" / name / f"{number}.png")
    words = ["--source", str(tmp_path / "pictures"), "--out", str(tmp_path / "out"), "--resolution", "16", "--labels"]
    assert main(["data", "prepare", "folder", *words]) == 0
    assert "2 classes" in capsys.readouterr().out
    data = ShardedImages.open(tmp_path / "out")
    check_domains(data, "x")
    horses, zebras = (data.take(numbers) for numbers in numbers_by_domain(data))
    assert (horses.mean(), zebras.mean()) == (40, 200)


def test_an_array_gives_what_its_shards_give(tmp_path: Path) -> None:
    drawn = np.random.Generator(np.random.PCG64(0))
    pixels = drawn.integers(0, 256, (7, 3, 16, 16), dtype=np.uint8)
    labels = drawn.integers(0, 3, 7)
    folder = tmp_path / "shards"
    write_shards(folder, "folder", pixels, labels=labels, classes=("a", "b", "c"))
    sources: tuple[ImageSource, ...] = (ImagesInMemory(pixels, labels, 3), ShardedImages.open(folder))
    for ours, shards in (sources, tuple(source.mirrored() for source in sources)):
        everything = np.arange(len(shards))[::-1]
        assert (len(ours), ours.num_classes) == (len(shards), shards.num_classes)
        assert np.array_equal(ours.take(everything), shards.take(everything))
        assert np.array_equal(ours.labels(everything), shards.labels(everything))


CPU = torch.device("cpu")


def _contents() -> dict[str, Tensor]:
    drawn = torch.Generator().manual_seed(0)
    return {
        "pixels": torch.randint(0, 256, (5, 3, 7, 7), generator=drawn, dtype=torch.uint8),
        "labels": torch.arange(5),
        "latents": torch.randn(9, 3, generator=drawn)[2:7],
        "one": torch.tensor(0.5),
    }


class Copies(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch publishes no types for it
    """Notes the copies between devices, and whether they are waited for."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # likewise
        self.waited: list[bool] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._to_copy.default:
            self.waited.append(not (kwargs or {}).get("non_blocking", False))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("pack", [False, True])
def test_what_arrives_is_what_was_sent(pack: bool) -> None:
    contents = _contents()
    pinned = PinnedBatch(contents, pack=pack)
    for found in (pinned.contents, pinned.to(CPU)):
        assert list(found) == list(contents)
        for name, tensor in contents.items():
            assert found[name].dtype == tensor.dtype
            assert torch.equal(found[name], tensor)


def test_packed_it_is_one_copy_that_nobody_waits_for() -> None:
    pinned = PinnedBatch(_contents(), pack=True)
    with Copies() as copies:
        arrived = pinned.to(torch.device("meta"))
    assert copies.waited == [False]
    assert {name: tensor.shape for name, tensor in arrived.items()} == {
        name: tensor.shape for name, tensor in _contents().items()
    }


def test_what_is_there_already_is_not_copied() -> None:
    contents = _contents()
    assert all(here is contents[name] for name, here in PinnedBatch(contents).to(CPU).items())
    assert to_device(contents["one"], CPU) is contents["one"]


@pytest.mark.parametrize("threads", [1, 3])
def test_an_abandoned_loader_goes_away_and_its_threads_end(threads: int) -> None:
    """While one batch is being read and others wait, also in the pool of an earlier `read_with`."""
    reading, go_on = threading.Event(), threading.Event()
    readers: set[threading.Thread] = set()

    class Slow(ImagesInMemory):
        def take(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
            readers.add(threading.current_thread())
            reading.set()
            go_on.wait(300)
            return super().take(indices)

    loader = Loader(Slow(np.zeros((50, 1, 1, 4), np.uint8)), 0, 5, slice(0, 5), reading=Reading(threads, prefetch=4))
    for position in (0, 5, 10, 15):
        loader._submit(position)
    loader.read_with(Reading(threads + 1, prefetch=4))
    for position in (20, 25):
        loader._submit(position)
    assert reading.wait(300)
    abandoned = weakref.ref(loader)
    del loader
    gc.collect()
    assert abandoned() is None, "a batch that waits keeps it alive"
    go_on.set()
    for reader in list(readers):
        reader.join(30)
    assert not [reader.name for reader in readers if reader.is_alive()]
