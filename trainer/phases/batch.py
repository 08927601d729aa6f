"""One worker's share of a step, in weighted micro-batches; the global batch is the same for any number of workers."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.data.loader import AS_SUITS, MASK, ImageSource, Loader, Reading, no_draws, numbers_by_domain
from gangway.trainer.distributed.world import World
from gangway.trainer.networks.progressive_schedule import ProgressiveStage, shrink
from gangway.trainer.phases.losses import Inputs
from gangway.trainer.phases.rng import StepRng

_STREAM_OF_G = 1  # The generator's separate real images, in another order
_STREAM_OF_B = 2  # The second domain's images, likewise


class Unpaired(NamedTuple):
    """Real images of two domains, each [n, C, H, W] in -1..1, without correspondence."""

    a: Tensor
    b: Tensor


T = TypeVar("T")
S = TypeVar("S", Inputs, Unpaired)


class Moment(Protocol):
    """The run's state at the start of a step, as far as a batch needs it (gangway.trainer.steps.state)."""

    images: int
    augment_p: Tensor | float
    phase: ProgressiveStage


@dataclass(frozen=True)
class Micro(Generic[T]):
    """One micro-batch. A worker's micro-batches' weights add up to `World.weight`."""

    inputs: T
    weight: float
    images: int
    last: bool


class _Share(NamedTuple):
    images: int  # shown before it
    reals: Tensor  # in -1..1
    labels: Tensor | None
    order: int  # digest of the images' numbers
    drawn: dict[str, Tensor]  # see `Draws`
    others: Tensor | None  # `reals` of the second domain; None without one


class Batch:
    """This worker's slice of a step's inputs, on its device. Steps begin after `first` images, `step_images` apart."""

    def __init__(
        self, config: TrainConfig, world: World, data: ImageSource, first: int = 0, reading: Reading = AS_SUITS
    ) -> None:
        self._config, self._world, self._slice = config, world, world.slice(config.batch_size, config.group)
        self._begin = first
        on_gpu = world.device.type == "cuda"
        shown: ImageSource = data.mirrored() if config.mirror else data
        loader = partial(Loader, shown, config.seed, config.batch_size, self._slice, pin=on_gpu, reading=reading)
        self._second: Loader | None = None
        own_numbers = None
        if config.translates:
            own_numbers, others = numbers_by_domain(shown)
            self._second = loader(stream=_STREAM_OF_B, among=others)
        draw_step = no_draws if config.translates else StepRng(config, self._slice, first)
        self._loader = loader(draw=draw_step, among=own_numbers)
        self._fresh: Loader | None = None
        if config.g_reals == "fresh":
            self._fresh = loader(draw=StepRng(config, self._slice).for_fresh, stream=_STREAM_OF_G)
        share = self._slice.stop - self._slice.start
        size = config.batch_gpu or share
        self._parts = [slice(start, min(start + size, share)) for start in range(0, share, size)]
        self._num_repeats = 0
        if config.shard != "ddp" and config.batch_gpu:  # each pass gathers weights, which all workers do together
            largest = -(-config.batch_size // (config.group * world.dp_size)) * config.group
            self._num_repeats = -(-largest // size) - len(self._parts)
        self._shown: _Share | None = None
        self._first: tuple[int, dict[str, Tensor]] | None = None
        self._layout = torch.channels_last if config.channels_last and config.frames == 1 else torch.contiguous_format

    def for_discriminator(self, state: Moment, images: int) -> Iterator[Micro[Inputs]]:
        """Yields micro-batches of the discriminator's update after `images`; a step may have several."""
        drawn = self._show(images).drawn
        yield from self._micros(
            Inputs(
                latents=drawn["latents"],
                fake_uniforms=self._uniforms(drawn, "fake", state.augment_p),
                real=shrink(self.reals(images), state.phase),
                real_uniforms=self._uniforms(drawn, "real", state.augment_p),
                labels=self.labels(images),
                mix=drawn.get("mix"),
            )
        )

    def for_generator(self, state: Moment) -> Iterator[Micro[Inputs]]:
        """Yields micro-batches of the generator's update, with real images where its loss needs them."""
        seen = state.images + self._config.step_images - self._config.batch_size  # what the discriminator saw last
        if self._first is None or self._first[0] != state.images:
            self._show(state.images)
        assert self._first is not None, "a step begins at a multiple of its images"
        pairs, drawn = self._config.loss == "relativistic", self._first[1]
        if self._fresh is None:
            reals, labels, last = self.reals(seen), self.labels(seen), self._show(seen).drawn
        else:
            taken = self._fresh.take(state.images, state.images + self._config.step_images)
            last = taken.pinned.to(self._world.device)
            reals, labels = self._scaled(last), last.get("labels") if self._config.num_classes else None
        yield from self._micros(
            Inputs(
                latents=drawn["g_latents"],
                fake_uniforms=self._uniforms(drawn, "g", state.augment_p),
                real=shrink(reals, state.phase) if pairs else None,
                real_uniforms=self._uniforms(last, "real", state.augment_p) if pairs else None,
                labels=labels,
            )
        )

    def for_translation(self, images: int) -> Iterator[Micro[Unpaired]]:
        """Yields micro-batches of both domains' images, of the batch after `images`."""
        shown = self._show(images)
        assert shown.others is not None, "a run of two domains"
        yield from self._micros(Unpaired(shown.reals, shown.others))

    @contextmanager
    def in_parts(self, parts: Sequence[slice]) -> Iterator[None]:
        """A block in which the micro-batches are these parts of the share; their weights are meaningless."""
        before = self._parts, self._num_repeats
        self._parts, self._num_repeats = list(parts), 0
        try:
            yield
        finally:
            self._parts, self._num_repeats = before

    @property
    def stall_sec(self) -> float:
        """Seconds that steps have waited for images so far."""
        return sum(loader.stall_sec for loader in self._loaders)

    @property
    def device(self) -> torch.device:
        """The device of its tensors."""
        return self._world.device

    def read_with(self, reading: Reading) -> None:
        """Changes how its loaders read."""
        for loader in self._loaders:
            loader.read_with(reading)

    def close(self) -> None:
        """Ends the threads that read ahead."""
        for loader in self._loaders:
            loader.close()

    @property
    def _loaders(self) -> list[Loader]:
        return [loader for loader in (self._loader, self._second, self._fresh) if loader is not None]

    def order(self, images: int) -> int:
        """Returns a digest of this worker's images in the batch after `images` (gangway.trainer.data.loader)."""
        return self._show(images).order

    def reals(self, images: int) -> Tensor:
        """Returns real images in -1..1, [share, C, H, W] or [share, C, T, H, W]."""
        return self._show(images).reals

    def labels(self, images: int) -> Tensor | None:
        """Returns the classes of `reals`, [share] int64, also used for fakes; None without classes."""
        return self._show(images).labels

    def _show(self, images: int) -> _Share:
        if self._shown is None or self._shown.images != images:  # both networks may need the same
            taken = self._loader.take(images)
            here = taken.pinned.to(self._world.device)
            assert not self._config.num_classes or "labels" in here, "open_matching has asked for them"
            labels = here["labels"] if self._config.num_classes else None
            order, others = taken.order, None
            if self._second is not None:
                second = self._second.take(images)
                order = (order + second.order) & MASK
                others = self._scaled(second.pinned.to(self._world.device))
            self._shown = _Share(images, self._scaled(here), labels, order, here, others)
            if (images - self._begin) % self._config.step_images == 0:
                self._first = images, here
        return self._shown

    def _scaled(self, here: dict[str, Tensor]) -> Tensor:
        return to_floats(here["pixels"], here.get("noise")).contiguous(memory_format=self._layout)

    def _micros(self, share: S) -> Iterator[Micro[S]]:
        """Yields micro-batches; repeats the last one with weight 0 where another worker has more."""
        batch_size, dp_size = self._config.batch_size, self._world.dp_size
        passes = len(self._parts) + self._num_repeats
        for number in range(passes):
            part = self._parts[min(number, len(self._parts) - 1)]
            here = {name: tensor[part] for name, tensor in share._asdict().items() if tensor is not None}
            images = part.stop - part.start if number < len(self._parts) else 0
            yield Micro(type(share)(**here), images * dp_size / batch_size, images, number == passes - 1)

    def _uniforms(self, drawn: dict[str, Tensor], name: str, augment_p: Tensor | float) -> Tensor | None:
        if not self._config.is_gated:
            return drawn.get(name)
        # Outside the networks' program, where p as a number would be a new constant at each adjustment.
        limit = torch.tensor(float(augment_p)).to(self._world.device) if self._world.on_xla else augment_p
        return torch.cat([drawn[name], (drawn[f"{name}_gates"] < limit).float()], dim=1)


def to_floats(pixels: Tensor, noise: Tensor | None = None) -> Tensor:
    """Converts uint8 to -1..1; `noise` in 0..1 spreads each value over its 256th, as WGAN-GP's code does."""
    if noise is None:
        return pixels.float() / 127.5 - 1
    return (pixels.float() + noise.reshape(pixels.shape)) / 128 - 1
