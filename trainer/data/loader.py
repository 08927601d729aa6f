"""Reads ahead: a thread takes the next batch from the shards, and draws its random numbers, while the step computes.

A batch is a function of its position alone (trainer.data.sampler): one not foreseen, as after a resume, is read then.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from trainer.data.sampler import Sampler
from trainer.data.shards import ShardedImages
from trainer.steps.order import order_of
from trainer.steps.parcel import Parcel

__all__ = ["Loader", "Reals", "images_per_sec"]

_AHEAD = 2
"""Batches under way: one that the next step takes, and one more for a storage that hesitates."""


Draw = Callable[[int], Mapping[str, Tensor]]
"""What else belongs to the batch after so many images, by name, on the CPU: a function of that number alone."""


def no_draws(images: int) -> Mapping[str, Tensor]:
    """A `Draw` of nothing."""
    return {}


@dataclass(frozen=True)
class Reals:
    """This worker's share of a global batch, on the CPU.

    Attributes:
        parcel: pixels, labels where the data set has some, and what was drawn; packed and pinned where asked for.
        order: digest of which images these are (trainer.steps.order).
    """

    parcel: Parcel
    order: int

    @property
    def pixels(self) -> Tensor:
        """[share, C, H, W] or [share, C, T, H, W] uint8."""
        return self.parcel.contents["pixels"]

    @property
    def labels(self) -> Tensor | None:
        """[share] int64; None where the data set has none."""
        return self.parcel.contents.get("labels")


class Loader:
    """This worker's share of the batch at any position, read ahead.

    `share` is this worker's slice of the global batch; `pin` is into page-locked memory, from which a GPU copies while
    it computes; `draw` gives what else the batch at a position needs. `stall_sec` is what `take` has waited so far.
    """

    def __init__(
        self,
        data: ShardedImages,
        seed: int,
        batch_size: int,
        share: slice,
        *,
        pin: bool = False,
        draw: Draw = no_draws,
    ) -> None:
        self._data, self._sampler, self._draw = data, Sampler(len(data), seed), draw
        self._batch_size, self._share, self._pin = batch_size, share, pin
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="loader")
        self._ahead: OrderedDict[int, Future[Reals]] = OrderedDict()
        self.stall_sec = 0.0

    def take(self, images: int) -> Reals:
        """The share of the batch that begins after `images` images; the batches after it are then read ahead."""
        began = time.perf_counter()
        for position in [position for position in self._ahead if position < images]:
            self._ahead.pop(position).cancel()
        reals = self._promised(images).result()
        self.stall_sec += time.perf_counter() - began
        del self._ahead[images]
        for number in range(1, _AHEAD + 1):
            self._promised(images + number * self._batch_size)
        return reals

    def _promised(self, images: int) -> Future[Reals]:
        """The batch at a position, under way from now on."""
        if images not in self._ahead:
            self._ahead[images] = self._thread.submit(
                _read, self._data, self._sampler, images, self._batch_size, self._share, self._pin, self._draw
            )
        return self._ahead[images]

    def close(self) -> None:
        """Ends the thread."""
        self._thread.shutdown(wait=True, cancel_futures=True)


def _read(
    data: ShardedImages, sampler: Sampler, images: int, batch_size: int, share: slice, pin: bool, draw: Draw
) -> Reals:
    """Not a method, so that the thread does not keep its loader alive."""
    numbers = sampler.indices(images, batch_size)[share]
    contents = {"pixels": torch.from_numpy(data.take(numbers))}
    if data.index.num_classes:
        contents["labels"] = torch.from_numpy(data.labels(numbers))
    return Reals(Parcel({**contents, **draw(images)}, pack=pin, pin=pin), order_of(images + share.start, numbers))


def images_per_sec(data: ShardedImages, batch_size: int, seconds: float) -> float:
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
