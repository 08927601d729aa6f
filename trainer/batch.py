"""One worker's share of a step: its slice of the global batch in micro-batches, and what each counts for.

The global batch is a function of configuration and images seen alone, on however many workers and in however many
pieces. Not here: how it is shared out (trainer.distributed) and in which order the images come (trainer.data.sampler).
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from trainer.augment import GATES
from trainer.config import TrainConfig
from trainer.data import ShardedImages
from trainer.data.loader import Loader
from trainer.distributed import World
from trainer.draws import Purpose, latents, uniforms
from trainer.losses import Inputs
from trainer.phases import shrink
from trainer.state import TrainState

__all__ = ["Batch", "Micro"]


class Micro(NamedTuple):
    """One micro-batch.

    Attributes:
        inputs: for a loss.
        weight: of its means, see `World.weight`; the weights of a worker's micro-batches add up to that.
        last: whether it is the last of its step.
    """

    inputs: Inputs
    weight: float
    last: bool


class Batch:
    """This worker's slice of everything a step of the global batch needs, on its device.

    Args:
        config: of the run.
        world: this worker's place.
        data: the shards.
    """

    def __init__(self, config: TrainConfig, world: World, data: ShardedImages) -> None:
        self._config, self._world = config, world
        self._mine = world.slice(config.batch_size)
        on_gpu = world.device.type == "cuda"
        self._loader = Loader(data, config.seed, config.batch_size, self._mine, pin=on_gpu)
        share = self._mine.stop - self._mine.start
        size = config.batch_gpu or share
        self._parts = [slice(start, min(start + size, share)) for start in range(0, share, size)]
        self._shown: tuple[int, Tensor, Tensor | None, int] | None = None
        self._layout = torch.channels_last if config.channels_last and config.frames == 1 else torch.contiguous_format

    def for_discriminator(self, state: TrainState, images: int) -> Iterator[Micro]:
        """Micro-batches of one of the discriminator's steps.

        Args:
            state: of the run, for the augmentation's p and the networks' phase.
            images: seen before this very step: the discriminator may make several in one of the run's.
        """
        yield from self._micros(
            Inputs(
                latents=self._latents(images, Purpose.D_LATENTS),
                fake_uniforms=self._uniforms(images, Purpose.FAKE_AUGMENT, Purpose.FAKE_GATE, state.augment_p),
                real=shrink(self.reals(images), state.phase),
                real_uniforms=self._uniforms(images, Purpose.REAL_AUGMENT, Purpose.REAL_GATE, state.augment_p),
                labels=self.labels(images),
                mix=self._mix(images) if self._config.gp_weight else None,
            )
        )

    def for_generator(self, state: TrainState) -> Iterator[Micro]:
        """Micro-batches of the generator's step; with real images where its loss looks at them."""
        images, augment_p, pairs = state.images, state.augment_p, self._config.loss == "relativistic"
        shown = images + self._config.step_images - self._config.batch_size  # what the discriminator saw last
        real_uniforms = self._uniforms(shown, Purpose.REAL_AUGMENT, Purpose.REAL_GATE, augment_p) if pairs else None
        yield from self._micros(
            Inputs(
                latents=self._latents(images, Purpose.G_LATENTS),
                fake_uniforms=self._uniforms(images, Purpose.G_AUGMENT, Purpose.G_GATE, augment_p),
                real=shrink(self.reals(shown), state.phase) if pairs else None,
                real_uniforms=real_uniforms,
                labels=self.labels(shown),
            )
        )

    @property
    def stall_sec(self) -> float:
        """Seconds that steps have waited for images so far."""
        return self._loader.stall_sec

    def order(self, images: int) -> int:
        """Digest of which images this worker has in the batch after `images` (trainer.order)."""
        return self._show(images)[2]

    def reals(self, images: int) -> Tensor:
        """Real images in -1..1, [share, C, H, W] or [share, C, T, H, W]."""
        return self._show(images)[0]

    def labels(self, images: int) -> Tensor | None:
        """Classes of `reals`, [share] int64, which the fakes take over; None for a run without classes."""
        return self._show(images)[1]

    def _show(self, images: int) -> tuple[Tensor, Tensor | None, int]:
        if self._shown is None or self._shown[0] != images:  # both networks may ask for the same
            taken, device = self._loader.take(images), self._world.device
            pixels = taken.pixels.to(device, non_blocking=True)
            labels = None
            if self._config.num_classes:
                assert taken.labels is not None, "open_matching has asked for them"
                labels = taken.labels.to(device, non_blocking=True)
            reals = (pixels.float() / 127.5 - 1).contiguous(memory_format=self._layout)
            self._shown = images, reals, labels, taken.order
        return self._shown[1:]

    def _micros(self, share: Inputs) -> Iterator[Micro]:
        batch_size, world_size = self._config.batch_size, self._world.world_size
        for part in self._parts:
            here = {name: tensor[part] for name, tensor in share._asdict().items() if tensor is not None}
            yield Micro(Inputs(**here), (part.stop - part.start) * world_size / batch_size, part is self._parts[-1])

    def _latents(self, images: int, purpose: Purpose) -> Tensor:
        config = self._config
        drawn = latents(config.batch_size, config.z_dim, seed=config.seed, images=images, purpose=purpose)
        return drawn[self._mine].to(self._world.device)

    def _uniforms(self, images: int, purpose: Purpose, gate: Purpose, augment_p: float) -> Tensor:
        """For `diffaugment`; with gates where the augmentation adapts."""
        config = self._config
        drawn = uniforms(config.batch_size, seed=config.seed, images=images, purpose=purpose)[self._mine]
        if config.ada_target:
            gates = uniforms(config.batch_size, seed=config.seed, images=images, purpose=gate, columns=GATES)
            # Decided here: p as a number in the networks' program would be a new constant at each adjustment.
            drawn = torch.cat([drawn, (gates[self._mine] < augment_p).float()], dim=1)
        return drawn.to(self._world.device)

    def _mix(self, images: int) -> Tensor:
        config = self._config
        drawn = uniforms(config.batch_size, seed=config.seed, images=images, purpose=Purpose.MIX, columns=1)
        return drawn[self._mine].to(self._world.device)
