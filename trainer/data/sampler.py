"""The order in which training sees the images: a pure function of seed and images seen, on any number of workers, so
there is no state to save. Within an epoch every image comes exactly once; a batch may span two epochs.
"""

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Sampler"]


@dataclass(frozen=True)
class Sampler:
    """The endless sequence of image numbers."""

    num_images: int
    seed: int

    def indices(self, images_seen: int, batch_size: int) -> NDArray[np.int64]:
        """Numbers of the images of the global batch after `images_seen`, [batch_size], each in 0..num_images-1."""
        positions = np.arange(images_seen, images_seen + batch_size)
        epochs, offsets = np.divmod(positions, self.num_images)
        batch = np.empty(batch_size, dtype=np.int64)
        for epoch in np.unique(epochs):
            here = epochs == epoch
            batch[here] = _permutation(self.num_images, self.seed, int(epoch))[offsets[here]]
        return batch


@functools.lru_cache(maxsize=2)  # a batch touches at most two epochs unless the data set is tiny
def _permutation(num_images: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """The order of one epoch. PCG64 and Generator.permutation are fixed by NumPy's version, which the record holds."""
    order: NDArray[np.int64] = np.random.Generator(np.random.PCG64([seed, epoch])).permutation(num_images)
    return order
