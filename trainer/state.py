"""All that a training run is at one moment: two networks, the averaged generator, two optimisers, images seen.

There is no generator state among it: every random number is a function of seed and images seen (trainer.draws,
trainer.data.sampler). Not here: files (trainer.checkpoint) and the steps (trainer.loop).
"""

import copy
from typing import Any, Self

import torch
from torch import nn

from trainer.config import TrainConfig
from trainer.networks import Discriminator, Generator, build

__all__ = ["TrainState"]


class TrainState:
    """The moving parts of a run. Use `create`.

    Attributes:
        generator: trained.
        discriminator: trained.
        ema: the generator averaged over time; the one that is judged and shown.
        opt_g: Adam of the generator.
        opt_d: Adam of the discriminator.
        images: real images shown so far.
    """

    def __init__(self, config: TrainConfig, generator: Generator, discriminator: Discriminator) -> None:
        self._config = config
        self.generator, self.discriminator = generator, discriminator
        self.ema = copy.deepcopy(generator).eval().requires_grad_(False)
        betas = (config.beta1, config.beta2)
        self.opt_g = torch.optim.Adam(generator.parameters(), config.lr_g, betas, fused=True)
        self.opt_d = torch.optim.Adam(discriminator.parameters(), config.lr_d, betas, fused=True)
        self.images = 0

    @classmethod
    def create(cls, config: TrainConfig, device: torch.device) -> Self:
        """The state before the first step, equal on every worker and every device."""
        generator, discriminator = build(config)
        return cls(config, generator.to(device), discriminator.to(device))

    @property
    def step(self) -> int:
        """Steps made: one shows one global batch."""
        return self.images // self._config.batch_size

    def passed(self, kimg: float) -> bool:
        """Whether the last step reached a further multiple of that many thousand images."""
        every = kimg * 1000
        return self.images // every > (self.images - self._config.batch_size) // every

    @torch.no_grad()
    def update_ema(self) -> None:
        """Moves the averaged generator towards the present one, with a half-life of ema_kimg.

        The half-life grows with the run up to that, as StyleGAN2's does, so that a young run's average is young.
        """
        half_life = min(self._config.ema_kimg * 1000, self.images * 0.05)
        keep = 0.5 ** (self._config.batch_size / half_life) if half_life else 0.0
        for averaged, present in zip(self.ema.parameters(), self.generator.parameters(), strict=True):
            averaged.lerp_(present, 1 - keep)

    def state_dict(self) -> dict[str, Any]:
        """Everything, for a checkpoint."""
        parts: dict[str, nn.Module | torch.optim.Optimizer] = self._parts()
        return {"images": self.images, **{name: part.state_dict() for name, part in parts.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The opposite of `state_dict`."""
        self.images = state["images"]
        for name, part in self._parts().items():
            part.load_state_dict(state[name])

    def _parts(self) -> dict[str, nn.Module | torch.optim.Optimizer]:
        return {
            "g": self.generator,
            "d": self.discriminator,
            "ema": self.ema,
            "opt_g": self.opt_g,
            "opt_d": self.opt_d,
        }
