"""Short training of a state on images in memory, such as a federation client's round."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gangway.trainer.core.errors import TrainerError
from gangway.trainer.data.loader import ImagesInMemory, check_domains
from gangway.trainer.distributed.world import World
from gangway.trainer.phases.batch import Batch
from gangway.trainer.phases.updates import Accumulator
from gangway.trainer.steps.state import TrainState
from gangway.trainer.steps.step import get_phases, new_game, step


class LocalRound(NamedTuple):
    """A round's real images, and the mean of each loss over its steps, by name; None for a penalty that no step had."""

    images: int
    losses: dict[str, float | None]


def local_train(
    state: TrainState, images: NDArray[np.uint8], labels: NDArray[np.int64] | None = None, *, steps: int = 1
) -> LocalRound:
    """Makes `steps` steps on uint8 `images` [N, C, H, W], or clips, and changes the state in place; writes no file.

    The images' order and all random numbers depend on the seed and the images seen. Raises TrainerError for images of
    another shape than the configuration's, or missing labels.
    """
    config = state.config
    if images.shape[1:] != config.image_shape or not len(images):
        raise TrainerError(
            place="images",
            problem="are not what the state's networks make",
            value=f"{images.dtype} {images.shape}",
            allowed=f"uint8 [N, {', '.join(map(str, config.image_shape))}], one image at least",
            fix="resize them, or create the state of a configuration of their size",
        )
    if config.num_labels and labels is None:
        kind = "domains" if config.translates else "classes"
        raise TrainerError(
            place="labels",
            problem=f"are missing, and the networks know {config.num_labels} {kind}",
            allowed=f"[{len(images)}] whole numbers below {config.num_labels}",
            fix="give them, or create the state of a configuration without",
        )
    source = ImagesInMemory(images, labels, config.num_labels)
    if config.translates:
        check_domains(source, "labels")
    device = next(next(iter(state.roles.values())).network.parameters()).device
    world, phases = World.alone(device), get_phases(state)
    game, sums, begun = new_game(phases, config, world), Accumulator(phases, device), state.images
    batch = Batch(config, world, source, state.images)
    try:
        for _ in range(steps):
            step(state, batch, game, sums)
    finally:
        batch.close()
    return LocalRound(state.images - begun, sums.means([sums.cpu().tolist()]))
