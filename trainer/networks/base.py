"""The base classes of all networks, and conditioning on the class."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gangway.trainer.distributed.sharded_modules import GatheredWindow
from gangway.trainer.networks.precision import Precision
from gangway.trainer.networks.progressive_schedule import ProgressiveStage


class Network(nn.Module):
    """A network without buffers that treats images apart, except in groups (`TrainConfig.group`)."""

    precision: Precision | None = None
    frozen: frozenset[str] = frozenset()  # Names of parameters that keep their values
    layout: torch.memory_format = torch.contiguous_format
    """Memory layout of its feature maps: that of its weights (gangway.trainer.networks.factory)."""
    gathered: GatheredWindow | None = None  # A sharded network's access to its whole weights

    def learn(self, *, on: bool) -> None:
        """Turns its parameters' gradients on or off; frozen ones never have any."""
        for name, parameter in self.named_parameters():
            parameter.requires_grad_(on and name not in self.frozen)

    def units(self) -> Sequence[nn.Module]:
        """Returns its larger parts, none inside another, each called at most once in a pass.

        Sharding gathers them one by one (gangway.trainer.steps.sharding), and the rest for a whole pass. A unit with a
        True attribute `exact` always computes in float32.
        """
        return []

    def arrange(self, maps: Tensor) -> Tensor:
        """Returns [N, C, H, W] in the network's layout, in which convolutions are fastest; others unchanged."""
        if maps.dim() != 4 or self.layout == torch.contiguous_format:
            return maps
        if maps.shape[1] == 1:  # both layouts at once: only with these strides does a convolution return NHWC
            return maps.squeeze(1).unsqueeze(3).movedim(3, 1)
        return maps.contiguous(memory_format=self.layout)

    def _run(self, *inputs: Any, twice: bool) -> Tensor:
        inputs = tuple(self.arrange(each) if isinstance(each, Tensor) else each for each in inputs)
        if self.precision is None:
            result: Tensor = super().__call__(*inputs)
            return result
        with self.precision.autocast(twice=twice):
            result = super().__call__(*inputs)
        return result.float()

    def enter(self, phase: ProgressiveStage) -> None:
        """Enters a phase; networks of one size have only one."""

    def idle(self) -> list[nn.Parameter]:
        """Returns parameters without a part in this phase: none, unless the network grows."""
        return []

    def drop_idle_gradients(self) -> None:
        """Hides idle parameters from the optimiser: zero gradients would age its moments before first use."""
        for parameter in self.idle():
            parameter.grad = None


class Generator(Network):
    """Latents to images. One that can be divided (gangway.trainer.steps.pipeline) is `begin`, units, `finish`."""

    finishing: ClassVar[tuple[str, ...]] = ()
    """Names of `finish`'s parts; parts outside of these and of units belong to `begin`."""

    def forward(self, latents: Tensor, labels: Tensor | None = None) -> Tensor:
        """Images [N, C, H, W] or [N, C, T, H, W], about -1..1, of normal latents [N, z_dim], labels [N] int64."""
        features = self.begin(latents, labels)
        for unit in self.units():
            features = unit(features)
        return self.finish(features)

    def begin(self, latents: Tensor, labels: Tensor | None) -> Tensor:
        """Returns the first unit's input."""
        raise NotImplementedError

    def finish(self, features: Tensor) -> Tensor:
        """Returns images from the last unit's output."""
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
        """See `forward`; `twice` where a penalty differentiates the logits once more (see `Precision`)."""
        return self._run(images, labels, twice=twice)


class ClassEmbedding(nn.Module):
    """Appends a learnt vector of the class to the latents; without classes returns them. `width` is the result's."""

    def __init__(self, z_dim: int, num_classes: int) -> None:
        super().__init__()
        self.width = 2 * z_dim if num_classes else z_dim
        self.embedding = nn.Embedding(num_classes, z_dim) if num_classes else None

    def forward(self, latents: Tensor, labels: Tensor | None) -> Tensor:
        """[N, z_dim] and [N] to [N, width]."""
        if self.embedding is None:
            return latents
        assert labels is not None, "a network that knows classes is called with labels"
        return torch.cat([latents, self.embedding(labels)], dim=1)


class ProjectionHead(nn.Module):
    """Adds the features' agreement with a learnt vector of the class to the logits, if there are classes."""

    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_classes, num_features) if num_classes else None
        self._scale = 1 / math.sqrt(num_features)

    def forward(self, logits: Tensor, features: Tensor, labels: Tensor | None) -> Tensor:
        """Logits [N], features [N, num_features] or feature maps [N, num_features, ...], and labels [N] to [N]."""
        if self.embedding is None:
            return logits
        assert labels is not None, "a network that knows classes is called with labels"
        pooled = features.flatten(2).mean(dim=2) if features.dim() > 2 else features
        class_score = (self.embedding(labels) * pooled).sum(dim=1)
        combined: Tensor = logits + self._scale * class_score
        return combined


def recompute(network: Network) -> None:
    """Makes units keep only their inputs, and recompute themselves in the backward (activation checkpointing)."""
    for unit in network.units():
        unit.forward = partial(_run_checkpointed, unit.forward)


def _run_checkpointed(forward: Callable[..., Any], *inputs: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*inputs)
    # Networks draw nothing, so no random state is restored; reentrant checkpoints have no double backward.
    return checkpoint(forward, *inputs, use_reentrant=False, preserve_rng_state=False)
