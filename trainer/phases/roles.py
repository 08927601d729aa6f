"""A run's roles: a network, its optimiser, its average and its loss scale under one name.

A family declares its roles (`RoleSpec`); checkpoints, sums, meters and replica checks iterate over them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

import torch

from gangway.trainer.networks.base import Network
from gangway.trainer.networks.precision import LossScale


class RoleSpec(NamedTuple):
    """A family's declaration of a role.

    Attributes:
        name: in messages and configurations, such as generator.
        key: in checkpoints and statistics, such as g.
        network: with its initial weights, on the CPU.
        lr: field of TrainConfig that has its step size; None for a network that does not learn.
        averaged: whether an average over time is kept. Metrics and samples use the first averaged role.
    """

    name: str
    key: str
    network: Network
    lr: Literal["lr_g", "lr_d"] | None
    averaged: bool = False


@dataclass
class Role:
    """One role of a run; see `RoleSpec`. Roles that learn in the same phase use the scale of the first."""

    name: str
    key: str
    network: Network
    lr: Literal["lr_g", "lr_d"] | None
    optimizer: torch.optim.Optimizer | None
    ema: Network | None
    scale: LossScale

    @property
    def learner(self) -> torch.optim.Optimizer:
        """The optimiser of a learning role."""
        assert self.optimizer is not None, f"a phase teaches the {self.name}, which its family says does not learn"
        return self.optimizer


T = TypeVar("T", "Role", RoleSpec)


def ema_keys(averaged: Sequence[T]) -> dict[str, T]:
    """Returns averaged roles by their average's name in a checkpoint: `ema` for the first, for old checkpoints."""
    return {"ema" if number == 0 else f"ema_{role.key}": role for number, role in enumerate(averaged)}


def ema_parts(roles: Iterable[Role]) -> dict[str, Network]:
    """Returns averages by their names in a checkpoint."""
    averaged = ema_keys([role for role in roles if role.ema is not None])
    return {part: role.ema for part, role in averaged.items() if role.ema is not None}
