"""From gradients to weights: sums over micro-batches, the optimisers' step."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Self

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainer.config.train_config import TrainConfig
from trainer.data.loader import MASK
from trainer.distributed.world import World
from trainer.networks.base import Generator, Network
from trainer.steps.losses import MEANS, DTerms, Inputs
from trainer.steps.pinned_batch import to_device
from trainer.steps.precision import LossScale


class Accumulator:
    """Sums since the last line. `order` is the digest of the images' order, of this worker (trainer.data.loader)."""

    def __init__(self, config: TrainConfig, device: torch.device) -> None:
        self._d_steps = config.d_steps
        self._weights = {"r1": config.r1_gamma, "r2": config.r2_gamma, "gp": config.gp_weight}
        self._d, self._g = (to_device(torch.zeros(shape), device) for shape in ((len(MEANS),), ()))
        self._steps, self._penalised, self.order = 0, 0, 0

    def add_d(self, weight: float, terms: DTerms) -> None:
        """Adds one micro-batch's terms of the discriminator's loss."""
        self._d += weight / self._d_steps * terms.means

    def add_g(self, weight: float, loss: Tensor) -> None:
        """Adds one micro-batch's loss of the generator."""
        self._g += weight * loss.detach()

    def saw(self, order: int) -> None:
        """Adds a batch's digest of the order of its images."""
        self.order = (self.order + order) & MASK

    def close_step(self, *, penalised: bool) -> None:
        """Counts a step, and whether its loss carried the penalties."""
        self._steps += 1
        self._penalised += penalised

    def cpu(self) -> Self:
        """Waits until the device has finished the steps."""
        self._d, self._g = self._d.cpu(), self._g.cpu()
        return self

    def tolist(self) -> list[float]:
        """This worker's sums, as plain numbers."""
        numbers: list[float] = torch.cat([self._g[None], self._d]).tolist()
        return numbers

    def means(self, rows: Sequence[Sequence[float]]) -> dict[str, float | None]:
        """Means per step over every worker's `tolist`; a penalty's over the steps that had it, None without any."""
        totals = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
        named = dict(zip(("loss_g", *MEANS), totals, strict=True))
        counts = {name: self._penalised if weight else 0 for name, weight in self._weights.items()}
        return {
            name: total / count if (count := counts.get(name, self._steps)) else None for name, total in named.items()
        }


Update = Callable[[], None]
"""Does something at its first call alone."""


def update_of(
    world: World,
    loss: nn.Module,
    network: Network,
    scale: LossScale,
    optimizer: Optimizer,
    then: Callable[[], None] | None = None,
) -> Update:
    """A network's update on the gradients that the last backward has left; layers that are idle now take no part.
    `loss` is the network's, wrapped; `then` follows the update at once.
    """
    network.drop_idle_gradients()

    def update() -> None:
        world.settle(loss)
        scale.step(world, optimizer)
        if then is not None:
            then()

    return cache(update)


def make_fakes(generator: Generator, inputs: Inputs) -> Tensor:
    """The discriminator's fakes, [n, C, H, W] or [n, C, T, H, W], without gradients."""
    with torch.no_grad():
        fakes: Tensor = generator(inputs.latents, inputs.labels)
    return fakes
