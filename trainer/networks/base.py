"""What a run asks of every family's networks: how they are called, and which of their layers take part."""

from typing import Any

from torch import Tensor, nn

from trainer.steps.phases import Phase
from trainer.steps.precision import Precision

__all__ = ["Discriminator", "Generator", "Network"]


class Network(nn.Module):
    """Either of the two, without buffers; none looks across a batch. `precision` None: that of the inputs, float32."""

    precision: Precision | None = None

    def _run(self, *inputs: Any, twice: bool) -> Tensor:
        """A forward pass in the network's precision, its result in float32."""
        if self.precision is None:
            result: Tensor = super().__call__(*inputs)
            return result
        with self.precision.autocast(twice=twice):
            result = super().__call__(*inputs)
        return result.float()

    def enter(self, phase: Phase) -> None:
        """Goes on in that phase; networks of one size have but one."""

    def idle(self) -> list[nn.Parameter]:
        """Parameters that take no part in the present phase: none, unless the network grows."""
        return []

    def drop_idle_gradients(self) -> None:
        """Keeps the optimiser off idle parameters: at zero gradients its moments would age before their first use."""
        for parameter in self.idle():
            parameter.grad = None


class Generator(Network):
    """Latents to images."""

    def forward(self, latents: Tensor, labels: Tensor | None = None) -> Tensor:
        """Images [N, C, H, W] or [N, C, T, H, W], about -1..1, of normal latents [N, z_dim], labels [N] int64."""
        raise NotImplementedError

    # So that a call has forward's types.
    def __call__(self, latents: Tensor, labels: Tensor | None = None) -> Tensor:
        """See `forward`."""
        return self._run(latents, labels, twice=False)


class Discriminator(Network):
    """Images to logits. High means real."""

    def forward(self, images: Tensor, labels: Tensor | None = None) -> Tensor:
        """Logits [N] of images [N, C, H, W] or [N, C, T, H, W] in -1..1; labels [N] int64, where it knows classes."""
        raise NotImplementedError

    def __call__(self, images: Tensor, labels: Tensor | None = None, *, twice: bool = False) -> Tensor:
        """See `forward`; `twice` where a penalty differentiates the logits once more (trainer.steps.precision)."""
        return self._run(images, labels, twice=twice)
