"""The interface of a batch's real images, and images in memory; gangway.trainer.data.shards has those in files."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray


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


class ImagesInMemory:
    """uint8 images [N, C, H, W] or clips [N, C, T, H, W], with labels [N] if `num_classes` is above 0."""

    def __init__(
        self, images: NDArray[np.uint8], labels: NDArray[np.int64] | None = None, num_classes: int = 0
    ) -> None:
        self._images, self._labels, self.num_classes = images, labels, num_classes

    def __len__(self) -> int:
        return len(self._images)

    def take(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        """See `ImageSource`."""
        return self._images[indices]

    def labels(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """See `ImageSource`."""
        assert self._labels is not None, "num_classes is 0 without them"
        return self._labels[indices]

    def mirrored(self) -> "ImagesInMemory":
        """See `ImageSource`."""
        both = np.concatenate([self._images, self._images[..., ::-1]])
        labels = None if self._labels is None else np.concatenate([self._labels, self._labels])
        return ImagesInMemory(both, labels, self.num_classes)
