"""Roles and phases of a step, as a family declares them: networks with optimiser and average; losses, data, updates."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.distributed.world import World
from gangway.trainer.networks.base import Network
from gangway.trainer.networks.precision import LossScale
from gangway.trainer.phases.batch import Batch, Micro, Moment
from gangway.trainer.phases.losses import Terms


class RoleSpec(NamedTuple):
    """A family's declaration of a role."""

    name: str  # in messages and configurations, such as generator
    key: str  # in checkpoints and statistics, such as g
    network: Network  # with its initial weights, on the CPU
    # field of TrainConfig that has its step size; None for a network that does not learn
    lr: Literal["lr_g", "lr_d"] | None
    averaged: bool = False  # whether an average over time is kept. Metrics and samples use the first averaged role


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


R = TypeVar("R", "Role", RoleSpec)


def ema_keys(averaged: Sequence[R]) -> dict[str, R]:
    """Returns averaged roles by their average's name in a checkpoint: `ema` for the first, for old checkpoints."""
    return {"ema" if number == 0 else f"ema_{role.key}": role for number, role in enumerate(averaged)}


def ema_parts(roles: Iterable[Role]) -> dict[str, Network]:
    """Returns averages by their names in a checkpoint."""
    averaged = ema_keys([role for role in roles if role.ema is not None])
    return {part: role.ema for part, role in averaged.items() if role.ema is not None}


T = TypeVar("T")
Update = Callable[[], None]  # Acts only at its first call


@dataclass(frozen=True)
class BatchPass(Generic[T]):
    """One worker's pass over one batch; `loss` is the wrapped module, `settle` makes deferred updates."""

    world: World
    loss: nn.Module
    micros: Iterable[Micro[T]]
    backward: Callable[[Tensor], None]
    penalised: bool
    settle: Update | None


class Phase(ABC, Generic[T]):
    """One phase; T is the type of a micro-batch's inputs."""

    key: ClassVar[str]  # in statistics, such as d
    label: ClassVar[str]  # of its loss, in sentences
    roles: ClassVar[tuple[str, ...]]  # names of those that learn in it
    resting: ClassVar[tuple[str, ...]] = ()  # names of those that are used without gradients
    means: ClassVar[tuple[str, ...]]  # names of `Terms.means`, the loss first; ADA uses `real_sign`
    # whether `run` may start before the previous phase's updates; it then calls `settle` for them
    overlaps: ClassVar[bool] = False
    # possible values of `penalised`, with words for each
    variants: ClassVar[Mapping[bool, str]] = MappingProxyType({False: ""})
    loss: nn.Module  # a module with exactly the learning parameters, wrapped for data parallelism
    batches: int = 0  # updates in a step, each on its own batch of real images; 0 for one update on the last batch
    # weights of the means that are computed only in penalised steps
    penalties: Mapping[str, float] = MappingProxyType({})

    def positions(self, config: TrainConfig, images: int) -> Sequence[int]:
        """Returns the images shown before each of its batches, in the step that begins after `images`."""
        if not self.batches:
            return (images + config.step_images - config.batch_size,)
        return range(images, images + self.batches * config.batch_size, config.batch_size)

    @abstractmethod
    def inputs(self, batch: Batch, moment: Moment, images: int) -> Iterator[Micro[T]]:
        """Yields this worker's micro-batches of the batch at one of `positions`; `moment` is the step's start."""

    @abstractmethod
    def run(self, loss: Callable[..., Any], inputs: T, *, penalised: bool, settle: Update | None) -> Terms:
        """Returns the loss of one micro-batch; `loss` is the wrapped module, `settle` makes deferred updates."""

    def passes(self, batch: BatchPass[T]) -> Iterator[tuple[Micro[T], Terms]]:
        """Runs forward and backward for each micro-batch of one batch, and yields its terms."""
        for micro in batch.micros:
            with batch.world.accumulating(batch.loss, last=micro.last):
                terms = self.run(batch.loss, micro.inputs, penalised=batch.penalised, settle=batch.settle)
                batch.backward(micro.weight * terms.total)
            yield micro, terms

    def differentiate_inside(self, *, on: bool) -> None:
        """Makes the loss differentiate its penalties inside a compiled graph, or not."""
