"""Open or prepare the data set of a configuration."""

import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from gangway.trainer.config.refusals import prepare_command
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.console import Progress
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.core.host import program
from gangway.trainer.data.index import INDEX_FILE, Recipe
from gangway.trainer.data.loader import Sampler, check_domains
from gangway.trainer.data.packaged_data import clips_recipe, day_dusk_recipe, digits_recipe, photos_recipe
from gangway.trainer.data.prepare import foreign_file, prepare
from gangway.trainer.data.shards import ShardedImages, labels_missing

if TYPE_CHECKING:
    from gangway.trainer.distributed.world import World

__all__ = ["SHIPPED", "Sampler", "ShardedImages", "check_data", "open_matching", "open_on_all", "prepare_if_missing"]

SHIPPED: Mapping[str, Callable[[TrainConfig], Recipe]] = MappingProxyType(
    {
        "digits": lambda config: digits_recipe(resolution=config.resolution),
        "photos": lambda config: photos_recipe(resolution=config.resolution, channels=config.channels),
        "day-dusk": lambda config: day_dusk_recipe(resolution=config.resolution, channels=config.channels),
        "clips": lambda config: clips_recipe(
            resolution=config.resolution, frames=config.frames, channels=config.channels
        ),
    }
)
"""Data sets that ship in Python packages and need no source."""


def check_data(config: TrainConfig, folder: Path) -> None:
    """Check a run's data without hashes and writes (TrainerError: as `prepare_if_missing` and `open_matching`)."""
    if (folder / INDEX_FILE).exists():
        open_matching(config, folder, verify=False)
    else:
        _check_preparable(config, folder)


def prepare_if_missing(config: TrainConfig, folder: Path) -> None:
    """Write the shards unless there is an index (TrainerError: not writable, foreign files, or no source)."""
    if (folder / INDEX_FILE).exists():
        return
    _check_preparable(config, folder)
    recipe = SHIPPED[config.dataset](config)
    progress = Progress(recipe.dataset, len(recipe.items), out=sys.stderr)  # stdout may be for JSON alone
    try:
        prepare(recipe, folder, progress=progress)
    except TrainerError as error:
        raise error.at("--data") if error.place == "--out" else error from None
    finally:
        progress.close()


def _check_preparable(config: TrainConfig, folder: Path) -> None:
    if foreign := foreign_file(folder):
        pictures = config.model_copy(update={"dataset": "folder", "frames": 1})
        out = _sibling(folder, pictures)
        raise TrainerError(
            place="--data",
            problem=f"holds no data set but other files, such as {foreign}, and nothing is written among them",
            value=str(folder),
            allowed="a folder of shards, or one that is empty or not there",
            fix=f"for pictures: `{prepare_command(pictures, out, source=str(folder))}`, then "
            f"`{program()} train --preset few-images --data {shlex.quote(str(out))}`; "
            f"for {config.dataset}: name another folder",
        )
    if config.dataset not in SHIPPED:
        raise TrainerError(
            place="--data",
            problem=f"holds no data set, and {config.dataset} does not prepare itself: it needs a source",
            value=str(folder),
            allowed="a folder of shards",
            fix=prepare_command(config, folder),
        )


def open_matching(config: TrainConfig, folder: Path, *, verify: bool = True) -> ShardedImages:
    """Open the shards and compare them with the configuration, and with their hashes if `verify` (TrainerError)."""
    images = ShardedImages.open(folder, verify=verify)
    found, wanted = (images.index.dataset, images.index.shape), (config.dataset, config.image_shape)
    if found != wanted:
        raise TrainerError(
            place=str(folder / INDEX_FILE),
            problem="these shards hold another data set than the configuration names",
            value=f"{found[0]} {found[1]}",
            allowed=f"{wanted[0]} {wanted[1]}",
            fix=f"name another folder with --data; to prepare one: {prepare_command(config, _sibling(folder, config))}",
        )
    if config.translates:
        check_domains(images, str(folder / INDEX_FILE))
    classes = images.index.num_classes
    if config.num_classes and not classes:
        raise labels_missing(str(folder / INDEX_FILE), config.dataset)
    if config.num_classes not in (0, classes):
        raise TrainerError(
            place=str(folder / INDEX_FILE),
            problem="these shards have another number of classes than the configuration",
            value=classes,
            allowed=str(config.num_classes),
            fix=f"--num-classes {classes}, or 0 to train without classes",
        )
    return images


def open_on_all(config: TrainConfig, folder: Path, world: "World") -> ShardedImages:
    """`open_matching` on every worker, with its errors, without hashes: `Verification` compares them later."""
    return world.run_on_all(lambda: open_matching(config, folder, verify=False))


def _sibling(folder: Path, config: TrainConfig) -> Path:
    named = folder if folder.name not in ("", "..") else folder.resolve()
    return named.with_name(f"{named.name}-{config.dataset}-{'x'.join(map(str, config.image_shape))}")
