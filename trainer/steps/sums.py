"""What the steps between two lines of statistics add up to, on the device, so that no step waits for a number.

Every value is a worker's mean times its weight (`World.weight`); the plain average is the global batch's mean.
"""

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from trainer.config import TrainConfig
from trainer.steps.losses import MEANS, DTerms
from trainer.steps.order import MASK
from trainer.steps.parcel import sent

__all__ = ["Sums"]


class Sums:
    """Sums since the last line. `order` is the digest of the images' order, of this worker (trainer.steps.order)."""

    def __init__(self, config: TrainConfig, device: torch.device) -> None:
        self._d_steps = config.d_steps
        self._weights = {"r1": config.r1_gamma, "r2": config.r2_gamma, "gp": config.gp_weight}
        self._d, self._g = (sent(torch.zeros(shape), device) for shape in ((len(MEANS),), ()))
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
