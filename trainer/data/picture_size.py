"""A run on a folder of pictures takes the size that they were prepared in, where nobody names another."""

from collections.abc import Collection, Mapping
from pathlib import Path

from trainer.config.parts.fields import RESOLUTIONS
from trainer.config.train_config import TrainConfig
from trainer.config.values.metric_names import NONE
from trainer.data.index import INDEX_FILE, ShardIndex


def picture_size(config: TrainConfig, given: Collection[str], folder: Path) -> Mapping[str, object]:
    """What the pictures prepared in `folder` change of a preset: resolution and channels, and augmentation in colour
    for grey ones; but no field that is `given`. Empty for other data sets, for one that is not there yet, and for a
    size that no network makes, which `open_matching` refuses. TrainerError: the folder's index is damaged.
    """
    if config.dataset != "folder" or not (folder / INDEX_FILE).exists():
        return {}
    index = ShardIndex.read(folder)
    channels, *_, height, width = index.shape
    if index.dataset != "folder" or height != width or height not in RESOLUTIONS:
        return {}
    changes: dict[str, object] = {"resolution": height, "channels": channels}
    if channels == 1:
        changes["augment"] = ",".join(part for part in config.augment.split(",") if part != "color") or NONE
    return {name: value for name, value in changes.items() if name not in given and value != getattr(config, name)}
