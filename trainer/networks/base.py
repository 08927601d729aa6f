"""What a run asks of every family's networks, and how a network is conditioned on the class."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from trainer.distributed.gathered_window import GatheredWindow
from trainer.networks.precision import Precision
from trainer.networks.progressive_schedule import ProgressiveStage


class Network(nn.Module):
    """Either of the two, without buffers; none looks across a batch, but for its groups (`TrainConfig.group`).
    `precision` None: that of the inputs, float32.
    """

    precision: Precision | None = None
    frozen: frozenset[str] = frozenset()
    """Names of parameters that keep their values."""
    layout: torch.memory_format = torch.contiguous_format
    """Memory layout of its feature maps: that of its weights (trainer.networks.factory)."""
    gathered: GatheredWindow | None = None
    """Through which a sharded network's weights are seen."""

    def learn(self, *, on: bool) -> None:
        """Has its parameters gather gradients from now on, or rest; those that are frozen always rest."""
        for name, parameter in self.named_parameters():
            parameter.requires_grad_(on and name not in self.frozen)

    def units(self) -> Sequence[nn.Module]:
        """Its larger parts, none inside another, each called once in a pass at most. Sharded, one after the other is
        gathered (trainer.steps.sharding), and for a whole pass what is in none of them. One with an attribute
        `exact` that is True computes in float32 whatever the rest does.
        """
        return []

    def arrange(self, maps: Tensor) -> Tensor:
        """Returns [N, C, H, W] in the network's layout, anything else as it is. Operations keep the layout that they
        are given, and a convolution in the wrong one is slower, so `forward` calls this on every map that it makes out
        of vectors. Inputs are arranged already.
        """
        if maps.dim() != 4 or self.layout == torch.contiguous_format:
            return maps
        if maps.shape[1] == 1:  # both layouts at once: only these strides have a convolution answer in NHWC
            return maps.squeeze(1).unsqueeze(3).movedim(3, 1)
        return maps.contiguous(memory_format=self.layout)

    def _run(self, *inputs: Any, twice: bool) -> Tensor:
        """A forward pass on arranged inputs in the network's precision, its result in float32."""
        inputs = tuple(self.arrange(each) if isinstance(each, Tensor) else each for each in inputs)
        if self.precision is None:
            result: Tensor = super().__call__(*inputs)
            return result
        with self.precision.autocast(twice=twice):
            result = super().__call__(*inputs)
        return result.float()

    def enter(self, phase: ProgressiveStage) -> None:
        """Goes on in that phase; networks of one size have but one."""

    def idle(self) -> list[nn.Parameter]:
        """Parameters that take no part in the present phase: none, unless the network grows."""
        return []

    def drop_idle_gradients(self) -> None:
        """Keeps the optimiser off idle parameters: at zero gradients its moments would age before their first use."""
        for parameter in self.idle():
            parameter.grad = None


class Generator(Network):
    """Latents to images. One that can be divided over workers (trainer.networks.halves) says what comes before its
    units and after: `finish` of its units, one after the other, of `begin`.
    """

    finishing: ClassVar[tuple[str, ...]] = ()
    """Names of the parts that `finish` computes with; what is neither in these nor in a unit is in `begin`."""

    def forward(self, latents: Tensor, labels: Tensor | None = None) -> Tensor:
        """Images [N, C, H, W] or [N, C, T, H, W], about -1..1, of normal latents [N, z_dim], labels [N] int64."""
        raise NotImplementedError

    def begin(self, latents: Tensor, labels: Tensor | None) -> Tensor:
        """What the first unit is given."""
        raise NotImplementedError

    def finish(self, features: Tensor) -> Tensor:
        """Images, of what the last unit has made."""
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
        """See `forward`; `twice` where a penalty differentiates the logits once more (trainer.networks.precision)."""
        return self._run(images, labels, twice=twice)


class ClassEmbedding(nn.Module):
    """Latents with a learnt vector of the same length for the class beside them; as they are without classes. `width`
    is the length of what comes out.
    """

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
    """Logits, plus how well the features agree with a learnt vector of the class; as they are without classes."""

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
