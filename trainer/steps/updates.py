"""A network's update: made once, by whoever needs it first.

On CPUs the workers' averages of its gradients still travel when a backward has returned (trainer.workers.averaging).
So an update is a function that the loop hands on, and that is called as late as the numbers allow. Not here: when that
is (trainer.loop).
"""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn

from trainer.state import TrainState
from trainer.steps.losses import Inputs
from trainer.workers.distributed import World

__all__ = ["Update", "discriminator_update", "generator_update", "make_fakes", "none_yet"]

Update = Callable[[], None]
"""Does something at its first call alone."""


def none_yet() -> None:
    """The update before the first."""


def discriminator_update(world: World, loss: nn.Module, state: TrainState) -> Update:
    """Its update on the gradients that the last backward through its loss has left.

    Args:
        world: this worker's place.
        loss: of the discriminator, wrapped.
        state: of the run.
    """
    state.discriminator.drop_idle_gradients()

    def update() -> None:
        world.settle(loss)
        state.scale_d.step(world, state.opt_d)

    return cache(update)


def generator_update(world: World, loss: nn.Module, state: TrainState) -> Update:
    """Its update and its average's; the step is counted by `TrainState.advance` before it is called.

    Args:
        world: this worker's place.
        loss: of the generator, wrapped.
        state: of the run.
    """
    state.generator.drop_idle_gradients()

    def update() -> None:
        world.settle(loss)
        state.scale_g.step(world, state.opt_g)
        state.update_ema()

    return cache(update)


def make_fakes(state: TrainState, inputs: Inputs, update_g: Update) -> Tensor:
    """The discriminator's fakes, [n, C, H, W] or [n, C, T, H, W], without gradients of the generator.

    Args:
        state: of the run.
        inputs: of the discriminator's micro-batch.
        update_g: what the generator may still lack.
    """
    update_g()
    with torch.no_grad():
        fakes: Tensor = state.generator(inputs.latents, inputs.labels)
    return fakes
