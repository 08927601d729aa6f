"""Which family a configuration is of."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from trainer.config.train_config import TrainConfig
from trainer.families import cyclegan, gan
from trainer.networks.base import Network
from trainer.phases.batch import Unpaired
from trainer.phases.phase import Phase
from trainer.phases.roles import RoleSpec


class Family(NamedTuple):
    """What one declares: its networks by role, and the phases of its step in order, over those networks by name. Where
    it makes images of images, also what a grid shows: of such images, over the networks by name; without gradients.
    """

    roles: Callable[[TrainConfig], Sequence[RoleSpec]]
    phases: Callable[[TrainConfig, Mapping[str, Network]], Sequence[Phase[Any]]]
    translations: Callable[[Mapping[str, Network], Unpaired], Tensor] | None = None


_GAN = Family(gan.roles, gan.phases)
_CYCLEGAN = Family(cyclegan.roles, cyclegan.phases, cyclegan.translations)


def get_family(config: TrainConfig) -> Family:
    """The family that the configuration's networks play in."""
    return _CYCLEGAN if config.architecture == "cyclegan" else _GAN
