"""Reading ahead changes nothing but time."""

import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gangway.trainer.data.images_in_memory import ImagesInMemory
from gangway.trainer.data.loader import Loader, Reading, Sampler, images_per_sec
from gangway.trainer.data.shards import ShardedImages, write_shards


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
            assert reals.pixels[:, 0, 0, 0].tolist() == numbers.tolist()
            assert reals.labels is not None
            assert reals.labels.tolist() == (numbers % 5).tolist()
    finally:
        loader.close()


def test_without_labels_there_are_none(tmp_path: Path) -> None:
    write_shards(tmp_path, "x", np.zeros((4, 1, 2, 2), np.uint8))
    loader = Loader(ShardedImages.open(tmp_path), 0, 2, slice(0, 2))
    assert loader.take(0).labels is None
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
            assert loader.take(8 * number).pixels[:, 0, 0, 0].tolist() == numbers.tolist()
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
    assert loader.take(0).pixels.shape == (5, 1, 1, 4)
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
