"""fp16's range is small: losses are scaled up before their backward, and a step whose gradients overflow is skipped.

One scale for each network, in the state, so that a resumed run takes the same steps. All workers see the same averaged
gradients, so they skip alike. Without fp16 nothing is scaled or saved.
"""

from typing import Any

import torch
from torch import Tensor

from trainer.workers.distributed import World

__all__ = ["LossScale"]

_FIRST_SCALE = 2.0**12
"""Torch's 65536 would overflow in the first steps of most runs; growth finds the way up."""


class LossScale:
    """The scale of one network's loss; `device_type` is cpu or cuda."""

    def __init__(self, device_type: str, *, enabled: bool) -> None:
        self._scaler = torch.amp.GradScaler(device_type, init_scale=_FIRST_SCALE) if enabled else None

    @property
    def enabled(self) -> bool:
        """Whether losses are scaled."""
        return self._scaler is not None

    def backward(self, loss: Tensor) -> None:
        """Adds the gradients of the loss, scaled up until `step`."""
        torch.autograd.backward(loss if self._scaler is None else self._scaler.scale(loss))

    def step(self, world: World, optimizer: torch.optim.Optimizer) -> None:
        """The optimiser's step on gradients that are scaled back; a skipped step leaves no gradients behind."""
        if self._scaler is None:
            world.step(optimizer)
            return
        self._scaler.unscale_(optimizer)
        before = self._scaler.get_scale()
        self._scaler.step(optimizer)
        self._scaler.update()
        if self._scaler.get_scale() < before:
            optimizer.zero_grad()

    def state_dict(self) -> dict[str, Any]:
        """Scale, and steps since it last changed."""
        return {} if self._scaler is None else self._scaler.state_dict()

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """The opposite of `state_dict`."""
        if self._scaler is not None and saved:
            self._scaler.load_state_dict(saved)
