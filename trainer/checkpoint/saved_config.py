"""Reads a configuration that an earlier version of the trainer saved."""

from typing import Annotated

from pydantic import ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from gangway.trainer.config.train_config import RESUMABLE_CHANGES, TrainConfig

_ANY_VALUE = RESUMABLE_CHANGES - {"kimg", "segments"}
"""Fields that each session sets again."""


def _as_saved(value: object, read: ValidatorFunctionWrapHandler) -> TrainConfig:
    """Validates a saved configuration; missing fields get defaults that compute what older trainers did.

    Where newer rules refuse fields that each session sets again, the saved values are dropped.
    """
    try:
        config: TrainConfig = read(value)
    except ValidationError:
        if not isinstance(value, dict):
            raise
        config = read({name: each for name, each in value.items() if name not in _ANY_VALUE})
    return config


SavedConfig = Annotated[TrainConfig, WrapValidator(_as_saved)]
