"""The command that prepares the shards a configuration trains on, for messages and plans. Imports no torch."""

import shlex
from pathlib import Path

from trainer.config.train_config import SELF_PREPARED, TrainConfig
from trainer.core.program import program


def prepare_command(config: TrainConfig, folder: Path | str, source: str = "PATH_OR_URL") -> str:
    """`gangway data prepare ...` of the configured data set into `folder`; `source` is where the originals are. A shell
    takes it as it is, whatever the names.
    """
    command = [f"{program()} data prepare", config.dataset]
    if config.dataset not in SELF_PREPARED:
        command.append(f"--source {shlex.quote(source)}")
    if config.dataset != "cifar10":
        command.append(f"--resolution {config.resolution}")
    if config.channels == 1 and config.dataset != "digits":
        command.append("--channels 1")
    if config.frames > 1:
        command.append(f"--frames {config.frames}")
    if config.num_classes and config.dataset == "folder":
        command.append("--labels")
    return " ".join([*command, f"--out {shlex.quote(str(folder))}"])
