"""Commands for messages and plans: prepare a configuration's shards, or train on prepared shards. No torch."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

from gangway.trainer.config.parts.fields import RESOLUTIONS, SELF_PREPARED
from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.refusals import misfit
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.metric_names import NONE, parse
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.core.program import program


def prepare_command(config: TrainConfig, folder: Path | str, source: str = "PATH_OR_URL") -> str:
    """The shell command that prepares the configured data set in `folder` from the originals at `source`."""
    command = [f"{program()} data prepare", config.dataset]
    if config.dataset not in SELF_PREPARED:
        command.append(f"--source {shlex.quote(source)}")
    if config.dataset != "cifar10":
        command.append(f"--resolution {config.resolution}")
    if config.channels == 1 and config.dataset != "digits":
        command.append("--channels 1")
    if config.frames > 1:
        command.append(f"--frames {config.frames}")
    if config.num_labels and config.dataset == "folder":
        command.append("--labels")
    return " ".join([*command, f"--out {shlex.quote(str(folder))}"])


def untrainable(shape: Sequence[int]) -> str:
    """Why no network trains on images or clips of that shape, and what to prepare instead; empty if one does."""
    *_, height, width = shape
    if height != width or height not in RESOLUTIONS:
        nearest = min(RESOLUTIONS, key=lambda each: (abs(each - height), -each))
        sizes = ", ".join(map(str, RESOLUTIONS))
        return f"no network here trains on {height}x{width}, but on {sizes}: to train, prepare --resolution {nearest}"
    frames, lengths = shape[1] if len(shape) > 3 else 1, _lengths(height)
    if len(shape) > 3 and frames not in lengths:
        nearest = min(lengths, key=lambda each: (abs(each - frames), -each))
        counts = ", ".join(map(str, lengths))
        return (
            f"no network here trains on clips of {frames} frames at {height}x{width}, but of {counts}: to train, "
            + (f"prepare --frames {nearest}")
        )
    return ""


def _lengths(resolution: int) -> tuple[int, ...]:
    """A clip grows in time as it does in height and width, so it has at most as many frames."""
    annotation = TrainConfig.model_fields["frames"].annotation
    return tuple(frames for frames in get_args(annotation) if 1 < frames <= resolution)


def train_command(dataset: str, shape: Sequence[int], folder: Path | str) -> str:
    """The command of the preset nearest to these shards, with flags for differences; empty if `untrainable`."""
    if untrainable(shape):
        return ""
    channels, *_, size = shape
    wanted = {
        "dataset": dataset,
        "resolution": size,
        "channels": channels,
        "frames": shape[1] if len(shape) > 3 else 1,
    }
    flags = [(name, found) for name, preset in PRESETS.items() if (found := _flags(preset, wanted)) is not None]
    name, changes = min(flags, key=lambda each: ("dataset" in each[1], len(each[1])))
    flag_words = [f"--{field} {value}" for field, value in changes.items()]
    return " ".join([f"{program()} train --preset {name}", *flag_words, f"--data {shlex.quote(str(folder))}"])


def _flags(preset: TrainConfig, wanted: Mapping[str, object]) -> dict[str, object] | None:
    if preset.translates and preset.dataset != wanted["dataset"]:
        return None
    changes = {field: value for field, value in wanted.items() if value != getattr(preset, field)}
    if preset.dataset == wanted["dataset"] == "folder":
        return {} if preset.frames == wanted["frames"] else None  # size and channels are those of the pictures
    try:
        trained = preset.replace(changes)
    except TrainerError:
        return None
    misfits = any(misfit(name, trained) for name in parse(trained.metrics))
    return {**changes, "metrics": NONE} if misfits else changes
