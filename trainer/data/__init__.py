"""Data: what is prepared once into shards, and the order in which training sees it.

Preparing writes uint8 shards with their hashes; training only ever reads shards. Not here: augmentation.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from trainer.config import TrainConfig
from trainer.data.digits import prepare_digits
from trainer.data.sampler import Sampler
from trainer.data.shards import INDEX_FILE, ShardedImages
from trainer.errors import TrainerError

__all__ = ["PREPARERS", "Sampler", "ShardedImages", "open_matching", "prepare_if_missing"]

PREPARERS: Mapping[str, Callable[[Path], None]] = MappingProxyType({"digits": prepare_digits})
"""How to make each data set's shards from nothing but its name; the argument is the folder to write."""


def prepare_if_missing(config: TrainConfig, folder: Path) -> None:
    """Writes the configured data set's shards unless the folder has an index already.

    Raises:
        TrainerError: the folder cannot be written.
    """
    if not (folder / INDEX_FILE).exists():
        PREPARERS[config.dataset](folder)


def open_matching(config: TrainConfig, folder: Path) -> ShardedImages:
    """Opens and verifies the shards, and checks that they are what the configuration says.

    Raises:
        TrainerError: no shards, a corrupt shard, or another data set or shape than configured.
    """
    images = ShardedImages.open(folder)
    wanted = (config.dataset, (config.channels, config.resolution, config.resolution))
    if (images.index.dataset, images.index.image_shape) != wanted:
        raise TrainerError(
            place=str(folder / INDEX_FILE),
            problem="these shards hold another data set than the configuration names",
            value=f"{images.index.dataset} {images.index.image_shape}",
            allowed=f"{wanted[0]} {wanted[1]}",
            fix="name another folder with --data, or prepare it anew there",
        )
    return images
