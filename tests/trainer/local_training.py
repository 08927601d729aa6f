"""Training on images in memory: a data set, and steps in this process without files or process groups."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gangway.trainer.distributed.world import World
from gangway.trainer.phases.batch import Batch
from gangway.trainer.phases.updates import Accumulator
from gangway.trainer.steps.state import TrainState
from gangway.trainer.steps.step import get_phases, new_game, step


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


class LocalRound(NamedTuple):
    """A round's real images, and the mean of each loss over its steps, by name; None for a penalty that no step had."""

    images: int
    losses: dict[str, float | None]


def local_train(
    state: TrainState, images: NDArray[np.uint8], labels: NDArray[np.int64] | None = None, *, steps: int = 1
) -> LocalRound:
    """Makes steps on uint8 `images` [N, C, H, W] in place."""
    config = state.config
    device = next(next(iter(state.roles.values())).network.parameters()).device
    world, phases = World.alone(device), get_phases(state)
    game, sums, begun = new_game(phases, config, world), Accumulator(phases, device), state.images
    batch = Batch(config, world, ImagesInMemory(images, labels, config.num_labels), state.images)
    try:
        for _ in range(steps):
            step(state, batch, game, sums)
    finally:
        batch.close()
    return LocalRound(state.images - begun, sums.means([sums.cpu().tolist()]))
