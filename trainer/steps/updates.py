"""A network's update: made once, by whoever needs it first.

On CPUs the averages of its gradients still travel when a backward has returned (trainer.workers.averaging): an update
is a function that the loop hands on, called as late as the numbers allow.
"""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainer.networks.base import Network
from trainer.state import TrainState
from trainer.steps.loss_scale import LossScale
from trainer.steps.losses import Inputs
from trainer.workers.distributed import World

__all__ = ["Update", "make_fakes", "nothing", "update_of"]

Update = Callable[[], None]
"""Does something at its first call alone."""


def nothing() -> None:
    """The update before the first."""


def update_of(
    world: World,
    loss: nn.Module,
    network: Network,
    scale: LossScale,
    optimizer: Optimizer,
    then: Callable[[], None] = nothing,
) -> Update:
    """A network's update on the gradients that the last backward has left; layers that are idle now take no part.
    `loss` is the network's, wrapped; `then` follows the update at once.
    """
    network.drop_idle_gradients()

    def update() -> None:
        world.settle(loss)
        scale.step(world, optimizer)
        then()

    return cache(update)


def make_fakes(state: TrainState, inputs: Inputs, update_g: Update) -> Tensor:
    """The discriminator's fakes, [n, C, H, W] or [n, C, T, H, W], without gradients; `update_g` comes first."""
    update_g()
    with torch.no_grad():
        fakes: Tensor = state.generator(inputs.latents, inputs.labels)
    return fakes
