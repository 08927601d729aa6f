"""What a command line means, without running it."""

from collections.abc import Sequence

from gangway.trainer.__main__ import _config, _naming_flags, _parser
from gangway.trainer.config.train_config import TrainConfig


def train_config(argv: Sequence[str]) -> TrainConfig:
    """The configuration that these arguments, the first of which is `train`, train with (TrainerError)."""
    arguments = _parser().parse_args(argv)
    with _naming_flags(arguments):
        return _config(arguments)
