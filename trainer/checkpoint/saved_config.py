"""A configuration that an earlier version of the trainer has saved, as this one reads it."""

from typing import Annotated

from pydantic import ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from trainer.config.train_config import RESUMABLE_CHANGES, TrainConfig

_ANY_VALUE = RESUMABLE_CHANGES - {"kimg", "segments"}
"""What a session may have otherwise than the one before it: whoever goes on brings values of their own."""


def _as_saved(value: object, read: ValidatorFunctionWrapHandler) -> TrainConfig:
    """Fields that are missing have their defaults, which compute what the trainer did before it had them. Where rules
    that came later refuse the values of fields that may change in a run, the saved ones do not matter.
    """
    try:
        config: TrainConfig = read(value)
    except ValidationError:
        if not isinstance(value, dict):
            raise
        config = read({name: each for name, each in value.items() if name not in _ANY_VALUE})
    return config


SavedConfig = Annotated[TrainConfig, WrapValidator(_as_saved)]
