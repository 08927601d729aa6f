"""The order in which training sees the images, a pure function of seed and images seen; a digest of what was shown
where; and threads that read the next batches ahead while the step computes.
"""

import functools
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer.data.images_in_memory import ImageSource
from trainer.data.pinned_batch import PinnedBatch

MASK = (1 << 64) - 1
_STRIDE, _FIRST, _SECOND = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_AHEAD = 2
"""Batches under way: one that the next step takes, and one more for a storage that hesitates."""
_THREADS_OF_A_GPU = 2
"""A GPU takes batches faster than one thread reads (an H200 waited three fifths of a step of 1,024 images); more of
them take the interpreter's time from the one that starts kernels.
"""


class Reading(NamedTuple):
    """How batches are read ahead. It changes no image: what is shown where is a function of the images seen alone.

    Attributes:
        threads: that read; 0 for what suits the device.
        prefetch: batches under way.
    """

    threads: int = 0
    prefetch: int = _AHEAD

    def threads_for(self, *, gpu: bool) -> int:
        """How many there are."""
        return self.threads or (_THREADS_OF_A_GPU if gpu else 1)


AS_SUITS = Reading()


@dataclass(frozen=True)
class Sampler:
    """The endless sequence of image numbers. `stream` 0 is the discriminator's; each has an order of its own."""

    num_images: int
    seed: int
    stream: int = 0

    def indices(self, images_seen: int, batch_size: int) -> NDArray[np.int64]:
        """Numbers of the images of the global batch after `images_seen`, [batch_size], each in 0..num_images-1."""
        positions = np.arange(images_seen, images_seen + batch_size)
        epochs, offsets = np.divmod(positions, self.num_images)
        batch = np.empty(batch_size, dtype=np.int64)
        for epoch in np.unique(epochs):
            here = epochs == epoch
            batch[here] = _permutation(self.num_images, self.seed, int(epoch), self.stream)[offsets[here]]
        return batch


@functools.lru_cache(maxsize=4)  # a batch touches at most two epochs of a stream unless the data set is tiny
def _permutation(num_images: int, seed: int, epoch: int, stream: int) -> NDArray[np.int64]:
    """The order of one epoch of a stream. PCG64 and Generator.permutation are fixed by NumPy's version, which the
    record holds.
    """
    words = [seed, epoch, stream] if stream else [seed, epoch]
    order: NDArray[np.int64] = np.random.Generator(np.random.PCG64(words)).permutation(num_images)
    return order


def order_digest(first: int, numbers: NDArray[np.int64]) -> int:
    """The digest of images [n] shown one after the other, from place `first`: images of the run before it."""
    places = np.arange(first, first + len(numbers), dtype=np.uint64)
    # splitmix64's output function (Steele et al. 2014) of place and number, in arithmetic modulo 2^64.
    mixed = (places << np.uint64(32)) + numbers.astype(np.uint64) + _STRIDE
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    return int((mixed ^ (mixed >> np.uint64(31))).sum(dtype=np.uint64))


Draw = Callable[[int], Mapping[str, Tensor]]
"""What else belongs to the batch after so many images, by name, on the CPU: a function of that number alone."""


def no_draws(images: int) -> Mapping[str, Tensor]:
    """A `Draw` of nothing."""
    return {}


@dataclass(frozen=True)
class Reals:
    """This worker's share of a global batch, on the CPU.

    Attributes:
        pinned: pixels, labels where the data set has some, and what was drawn; packed and pinned where asked for.
        order: digest of which images these are (trainer.data.loader).
    """

    pinned: PinnedBatch
    order: int

    @property
    def pixels(self) -> Tensor:
        """[share, C, H, W] or [share, C, T, H, W] uint8."""
        return self.pinned.contents["pixels"]

    @property
    def labels(self) -> Tensor | None:
        """[share] int64; None where the data set has none."""
        return self.pinned.contents.get("labels")


class Loader:
    """This worker's share of the batch at any position, read ahead.

    `share` is this worker's slice of the global batch; `pin` is into page-locked memory, from which a GPU copies while
    it computes; `draw` gives what else the batch at a position needs; `among` are numbers of the images that there are
    for it, None for all; `reading` may be set anew at any time. `stall_sec` is what `take` has waited so far.
    """

    def __init__(
        self,
        data: ImageSource,
        seed: int,
        batch_size: int,
        share: slice,
        *,
        pin: bool = False,
        draw: Draw = no_draws,
        stream: int = 0,
        among: NDArray[np.int64] | None = None,
        reading: Reading = AS_SUITS,
    ) -> None:
        self._data, self._draw, self._among = data, draw, among
        self._sampler = Sampler(len(data) if among is None else len(among), seed, stream)
        self._batch_size, self._share, self._pin = batch_size, share, pin
        self._reading, self._threads = reading, self._pool(reading)
        self._ahead: OrderedDict[int, Future[Reals]] = OrderedDict()
        self.stall_sec = 0.0

    def take(self, images: int, following: int | None = None) -> Reals:
        """The share of the batch that begins after `images` images; the batches after it are then read ahead.
        `following`: where the next begins, where that is not after this batch.
        """
        began = time.perf_counter()
        for position in [position for position in self._ahead if position < images]:
            self._ahead.pop(position).cancel()
        reals = self._promised(images).result()
        self.stall_sec += time.perf_counter() - began
        del self._ahead[images]
        for number in range(1, self._reading.prefetch + 1):
            self._promised(images + number * ((following or images + self._batch_size) - images))
        return reals

    def _promised(self, images: int) -> Future[Reals]:
        """The batch at a position, under way from now on."""
        if images not in self._ahead:
            self._ahead[images] = self._threads.submit(
                _read,
                self._data,
                self._sampler,
                images,
                self._batch_size,
                self._share,
                self._pin,
                self._draw,
                self._among,
            )
        return self._ahead[images]

    def read_with(self, reading: Reading) -> None:
        """Reads what is not under way yet so from now on."""
        if reading.threads_for(gpu=self._pin) != self._reading.threads_for(gpu=self._pin):
            self._threads.shutdown(wait=False)  # what is under way comes still
            self._threads = self._pool(reading)
        self._reading = reading

    def _pool(self, reading: Reading) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(reading.threads_for(gpu=self._pin), thread_name_prefix="loader")

    def close(self) -> None:
        """Ends the threads."""
        self._threads.shutdown(wait=True, cancel_futures=True)


def _read(
    data: ImageSource,
    sampler: Sampler,
    images: int,
    batch_size: int,
    share: slice,
    pin: bool,
    draw: Draw,
    among: NDArray[np.int64] | None,
) -> Reals:
    """Not a method, so that no thread keeps its loader alive."""
    numbers = sampler.indices(images, batch_size)[share]
    if among is not None:
        numbers = among[numbers]
    contents = {"pixels": torch.from_numpy(data.take(numbers))}
    if data.num_classes:
        contents["labels"] = torch.from_numpy(data.labels(numbers))
    return Reals(
        PinnedBatch({**contents, **draw(images)}, pack=pin, pin=pin), order_digest(images + share.start, numbers)
    )


def images_per_sec(data: ImageSource, batch_size: int, seconds: float) -> float:
    """Images a second that the loader alone delivers to one worker, in training's order."""
    loader = Loader(data, 0, batch_size, slice(0, batch_size))
    try:
        images = 0
        began = time.perf_counter()
        while (passed := time.perf_counter() - began) < seconds:
            loader.take(images)
            images += batch_size
        return images / passed
    finally:
        loader.close()
