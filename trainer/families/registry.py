"""Which family a configuration is of."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from trainer.config.train_config import TrainConfig
from trainer.families import gan
from trainer.networks.base import Network
from trainer.steps.phase import Phase
from trainer.steps.roles import RoleSpec


class Family(NamedTuple):
    """What one declares: its networks by role, and the phases of its step in order, over those networks by name."""

    roles: Callable[[TrainConfig], Sequence[RoleSpec]]
    phases: Callable[[TrainConfig, Mapping[str, Network]], Sequence[Phase[Any]]]


_GAN = Family(gan.roles, gan.phases)


def family_of(config: TrainConfig) -> Family:
    """The family that the configuration's networks play in."""
    return _GAN
