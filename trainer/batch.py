"""One worker's share of a step: its slice of the global batch, and what that slice counts for.

The global batch is a function of configuration and images seen alone, on however many workers. Not here: how it is
shared out (trainer.distributed) and in which order the images come (trainer.data.sampler).
"""

import torch
from torch import Tensor

from trainer.config import TrainConfig
from trainer.data import Sampler, ShardedImages
from trainer.distributed import World
from trainer.draws import Purpose, latents, uniforms

__all__ = ["Batch"]


class Batch:
    """This worker's slice of everything a step of the global batch needs, on its device.

    Args:
        config: of the run.
        world: this worker's place.
        data: the shards.

    Attributes:
        weight: of this worker's means, see `World.weight`.
    """

    def __init__(self, config: TrainConfig, world: World, data: ShardedImages) -> None:
        self._config, self._device, self._data = config, world.device, data
        self._sampler = Sampler(len(data), config.seed)
        self._mine = world.slice(config.batch_size)
        self.weight = world.weight(config.batch_size)
        self._layout = torch.channels_last if config.channels_last else torch.contiguous_format

    def reals(self, images: int) -> Tensor:
        """Real images in -1..1, [share, C, H, W]."""
        numbers = self._sampler.indices(images, self._config.batch_size)[self._mine]
        pixels = torch.from_numpy(self._data.take(numbers)).to(self._device)
        return (pixels.float() / 127.5 - 1).contiguous(memory_format=self._layout)

    def latents(self, images: int, purpose: Purpose) -> Tensor:
        """Latents [share, z_dim]."""
        config = self._config
        drawn = latents(config.batch_size, config.z_dim, seed=config.seed, images=images, purpose=purpose)
        return drawn[self._mine].to(self._device)

    def uniforms(self, images: int, purpose: Purpose) -> Tensor:
        """Uniform numbers for the augmentation, [share, UNIFORMS]."""
        drawn = uniforms(self._config.batch_size, seed=self._config.seed, images=images, purpose=purpose)
        return drawn[self._mine].to(self._device)
