"""The order of images as a pure function of seed and images seen, its digest, and a prefetching loader."""

import functools
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gangway.trainer.core.errors import TrainerError


class ImageSource(Protocol):
    """Numbered images with or without labels."""

    def __len__(self) -> int: ...

    @property
    def num_classes(self) -> int:
        """Number of classes; 0 without labels."""

    def take(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Copy the images of these numbers, [len(indices), C, H, W] or [len(indices), C, T, H, W]."""

    def labels(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Labels of these images, [len(indices)], in 0..num_classes-1."""

    def mirrored(self) -> "ImageSource":
        """Twice the images: mirrored left to right from `len(self)` on."""


NUM_DOMAINS = 2


def numbers_by_domain(data: ImageSource) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Image numbers of the first and of the second domain."""
    labels = data.labels(np.arange(len(data)))
    return np.flatnonzero(labels == 0), np.flatnonzero(labels == 1)


def check_domains(data: ImageSource, place: str) -> None:
    """TrainerError at `place` unless the images are of two non-empty domains."""
    fix = (
        "put the pictures into two folders in one: `data prepare folder --source THAT_FOLDER --labels`, into another "
        "folder of shards, and name that with --data"
    )
    if data.num_classes != NUM_DOMAINS:
        raise TrainerError(
            place=place,
            problem="these shards are not of two domains, which the networks translate between",
            value=f"{data.num_classes} classes" if data.num_classes else "no labels",
            allowed=f"labels of {NUM_DOMAINS} classes, one for each domain",
            fix=fix,
        )
    counts = [len(numbers) for numbers in numbers_by_domain(data)]
    if not all(counts):
        raise TrainerError(
            place=place,
            problem="one of the two domains has no image",
            value=f"{counts[0]} and {counts[1]} images",
            allowed="at least one image of each domain",
            fix=fix,
        )


_ALIGNED_BYTES = 512  # Alignment of tensors: kernels read whole lines of memory


class PinnedBatch:
    """Tensors by name on the CPU; `pack` puts them into one block for a single copy, page-locked with `pin`."""

    def __init__(self, contents: Mapping[str, Tensor], *, pack: bool = False, pin: bool = False) -> None:
        self.contents, self._packed = dict(contents), None
        self._offsets: dict[str, int] = {}
        if not pack:
            return
        size = 0
        for name, tensor in contents.items():
            self._offsets[name] = size
            size += -(-tensor.nbytes // _ALIGNED_BYTES) * _ALIGNED_BYTES
        self._packed = torch.empty(size, dtype=torch.uint8, pin_memory=pin)
        self.contents = self._views(self._packed, contents)
        for name, tensor in contents.items():
            self.contents[name].copy_(tensor)

    def to(self, device: torch.device) -> dict[str, Tensor]:
        """The tensors on that device, copied asynchronously in stream order."""
        if self._packed is None:
            return {name: tensor.to(device, non_blocking=True) for name, tensor in self.contents.items()}
        return self._views(self._packed.to(device, non_blocking=True), self.contents)

    def _views(self, packed: Tensor, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {
            name: packed[offset : offset + like[name].nbytes].view(like[name].dtype).view(like[name].shape)
            for name, offset in self._offsets.items()
        }


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a small tensor to the device asynchronously."""
    return (tensor.pin_memory() if device.type == "cuda" else tensor).to(device, non_blocking=True)


MASK = (1 << 64) - 1
_STRIDE, _FIRST, _SECOND = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_AHEAD = 2  # Batches to prefetch: one for the next step, and one for slow storage
_THREADS_OF_A_GPU = 2
"""One thread is too slow for a GPU (an H200 waited three fifths of a step of 1,024 images); more than two take
interpreter time from the thread that starts kernels."""


class Reading(NamedTuple):
    """How batches are prefetched, which does not change images: `threads` (0: by device) and `prefetch` batches."""

    threads: int = 0
    prefetch: int = _AHEAD

    def threads_for(self, *, gpu: bool) -> int:
        """Number of threads."""
        return self.threads or (_THREADS_OF_A_GPU if gpu else 1)


AS_SUITS = Reading()


@dataclass(frozen=True)
class Sampler:
    """The endless sequence of image numbers. `stream` 0 is the discriminator's; each has its own order."""

    num_images: int
    seed: int
    stream: int = 0

    def indices(self, images_seen: int, batch_size: int) -> NDArray[np.int64]:
        """Image numbers of the global batch after `images_seen`, [batch_size], in 0..num_images-1."""
        positions = np.arange(images_seen, images_seen + batch_size)
        epochs, offsets = np.divmod(positions, self.num_images)
        batch = np.empty(batch_size, dtype=np.int64)
        for epoch in np.unique(epochs):
            in_epoch = epochs == epoch
            batch[in_epoch] = _permutation(self.num_images, self.seed, int(epoch), self.stream)[offsets[in_epoch]]
        return batch


@functools.lru_cache(maxsize=4)  # a batch touches at most two epochs of a stream unless the data set is tiny
def _permutation(num_images: int, seed: int, epoch: int, stream: int) -> NDArray[np.int64]:
    # Fixed by NumPy's version, which the record holds.
    words = [seed, epoch, stream] if stream else [seed, epoch]
    order: NDArray[np.int64] = np.random.Generator(np.random.PCG64(words)).permutation(num_images)
    return order


def order_digest(first: int, numbers: NDArray[np.int64]) -> int:
    """The digest of images [n] shown consecutively from position `first` of the run."""
    places = np.arange(first, first + len(numbers), dtype=np.uint64)
    # splitmix64's output function (Steele et al. 2014) of place and number, in arithmetic modulo 2^64.
    mixed = (places << np.uint64(32)) + numbers.astype(np.uint64) + _STRIDE
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    return int((mixed ^ (mixed >> np.uint64(31))).sum(dtype=np.uint64))


Draw = Callable[[int], Mapping[str, Tensor]]
"""Other tensors of the batch after so many images, by name, on the CPU: a function of that number only."""


def no_draws(images: int) -> Mapping[str, Tensor]:
    """A `Draw` without tensors."""
    return {}


@dataclass(frozen=True)
class Reals:
    """This worker's share of a global batch on the CPU; `order` is a digest of its images."""

    pinned: PinnedBatch
    order: int


class Loader:
    """Prefetches this worker's share of the batch at any position; `among` limits numbers, `stall_sec` sums waits."""

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
        self._batch_size, self._pin = batch_size, pin
        sampler = Sampler(len(data) if among is None else len(among), seed, stream)
        # Not a method, so that no thread keeps its loader alive.
        self._read = functools.partial(_read, data, sampler, batch_size, share, pin, draw, among)
        self._reading, self._threads = reading, self._pool(reading)
        self._earlier: list[ThreadPoolExecutor] = []
        self._ahead: OrderedDict[int, Future[Reals]] = OrderedDict()
        self.stall_sec = 0.0

    def take(self, images: int, following: int | None = None) -> Reals:
        """This worker's share of the batch after `images`; prefetches the batches from `following` on."""
        began = time.perf_counter()
        for position in [position for position in self._ahead if position < images]:
            self._ahead.pop(position).cancel()
        reals = self._submit(images).result()
        self.stall_sec += time.perf_counter() - began
        del self._ahead[images]
        for number in range(1, self._reading.prefetch + 1):
            self._submit(images + number * ((following or images + self._batch_size) - images))
        return reals

    def _submit(self, images: int) -> Future[Reals]:
        if images not in self._ahead:
            self._ahead[images] = self._threads.submit(self._read, images)
        return self._ahead[images]

    def read_with(self, reading: Reading) -> None:
        """Read batches that are not submitted yet in this way."""
        if reading.threads_for(gpu=self._pin) != self._reading.threads_for(gpu=self._pin):
            self._threads.shutdown(wait=False)  # submitted batches still complete
            self._earlier.append(self._threads)
            self._threads = self._pool(reading)
        self._reading = reading

    def _pool(self, reading: Reading) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(reading.threads_for(gpu=self._pin), thread_name_prefix="loader")

    def close(self) -> None:
        """Wait for the batches being read and end the threads, also those of an earlier `read_with`."""
        for threads in (*self._earlier, self._threads):
            threads.shutdown(wait=True, cancel_futures=True)


def _read(
    data: ImageSource,
    sampler: Sampler,
    batch_size: int,
    share: slice,
    pin: bool,
    draw: Draw,
    among: NDArray[np.int64] | None,
    images: int,
) -> Reals:
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
    """Images per second that the loader alone delivers to one worker, in training's order."""
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
