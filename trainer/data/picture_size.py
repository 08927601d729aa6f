"""Take the size of prepared pictures for a run on a folder, unless the user sets another."""

from collections.abc import Collection, Mapping
from pathlib import Path

from gangway.trainer.config.parts.fields import RESOLUTIONS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.metric_names import NONE
from gangway.trainer.data.index import INDEX_FILE, ShardIndex


def picture_size(config: TrainConfig, given: Collection[str], folder: Path) -> Mapping[str, object]:
    """Changes of a preset for the pictures in `folder`: resolution, channels, no colour augmentation for grey ones. No
    field that is `given`. Empty for other data sets, a missing one, and sizes that no network makes, which
    `open_matching` refuses. TrainerError: the index is damaged.
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
