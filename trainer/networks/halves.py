"""Divides a generator into two networks, one per worker."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gangway.trainer.networks.base import Generator
from gangway.trainer.networks.precision import Precision


def first_units(generator: Generator) -> int:
    """Returns the first half's number of units that balances the halves' weights; each half has at least one."""
    units = generator.units()
    outside = _count(generator) - sum(map(_count, units))
    ending = sum(_count(getattr(generator, name)) for name in generator.finishing)
    before, after = outside - ending, ending + sum(map(_count, units))
    sizes = {}
    for number, unit in enumerate(units[:-1], 1):
        before, after = before + _count(unit), after - _count(unit)
        sizes[number] = max(before, after)
    return min(sizes, key=lambda number: sizes[number])


def parts_of_half(generator: Generator, half: int) -> list[nn.Parameter]:
    """Returns the weights of the first half (0) or the second (1)."""
    units, cut = generator.units(), first_units(generator)
    ending = [getattr(generator, name) for name in generator.finishing]
    second_ids = {id(each) for part in (*units[cut:], *ending) for each in part.parameters()}
    return [each for each in generator.parameters() if (id(each) in second_ids) == bool(half)]


class _Half(Generator):
    """Part of a generator, with its weights and precision.

    Halves exchange float32 rows, whose memory order does not depend on the layout of feature maps and gradients.
    """

    def __init__(self, whole: Generator, half: int) -> None:
        super().__init__()
        self._whole = (whole,)  # in a tuple, so that it is not a submodule: half of its weights are elsewhere
        self.weights = nn.ParameterList(parts_of_half(whole, half))

    def _run(self, *inputs: Tensor | None, twice: bool) -> Tensor:
        self.precision: Precision | None = self._whole[0].precision
        return super()._run(*inputs, twice=twice)


class FirstHalf(_Half):
    """Latents and labels to rows of features, the second half's input."""

    def __init__(self, whole: Generator) -> None:
        super().__init__(whole, 0)
        self._units = (*whole.units()[: first_units(whole)],)

    def forward(self, latents: Tensor, labels: Tensor | None = None) -> Tensor:
        """[N, z_dim] and [N] to [N, C * H * W]."""
        return self.features(latents, labels).flatten(1)

    def features(self, latents: Tensor, labels: Tensor | None = None) -> Tensor:
        """Returns the features as maps."""
        features = self._whole[0].begin(latents, labels)
        for unit in self._units:
            features = unit(features)
        return features


class SecondHalf(_Half):
    """Rows of features of the given shape to images."""

    def __init__(self, whole: Generator, shape: Sequence[int]) -> None:
        super().__init__(whole, 1)
        self._units = (*whole.units()[first_units(whole) :],)
        self._shape = tuple(shape)

    def forward(self, latents: Tensor, labels: Tensor | None = None) -> Tensor:
        """Returns images; `latents` are the rows."""
        features = self._whole[0].arrange(latents.reshape(len(latents), *self._shape))
        for unit in self._units:
            features = unit(features)
        return self._whole[0].finish(features)


def feature_shape(generator: Generator, z_dim: int, num_classes: int) -> tuple[int, ...]:
    """Returns one image's shape between the halves of a generator on meta."""
    labels = torch.zeros(1, dtype=torch.int64, device="meta") if num_classes else None
    return tuple(FirstHalf(generator).features(torch.empty(1, z_dim, device="meta"), labels).shape[1:])


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
