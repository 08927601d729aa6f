"""Families of GANs: the roles of a run's networks and the phases of its step, one file each."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.families import cyclegan, gan
from gangway.trainer.networks.base import Network
from gangway.trainer.phases.batch import Unpaired
from gangway.trainer.phases.phase import Phase, RoleSpec


class Family(NamedTuple):
    """A family's roles, and a step's phases in order; where it translates images, also a grid's images."""

    roles: Callable[[TrainConfig], Sequence[RoleSpec]]
    phases: Callable[[TrainConfig, Mapping[str, Network]], Sequence[Phase[Any]]]
    translations: Callable[[Mapping[str, Network], Unpaired], Tensor] | None = None


_GAN = Family(gan.roles, gan.phases)
_CYCLEGAN = Family(cyclegan.roles, cyclegan.phases, cyclegan.translations)


def get_family(config: TrainConfig) -> Family:
    """Returns the configuration's family."""
    return _CYCLEGAN if config.architecture == "cyclegan" else _GAN
