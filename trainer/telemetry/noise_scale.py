"""The gradient noise scale, from the moments that Adam keeps anyhow: from which batch on more images bring little.

B_simple = tr(Sigma) / |G|^2 (McCandlish et al. 2018, arXiv 1812.06162): G the mean gradient, Sigma one image's
covariance. A batch of B has gradients of mean G and covariance Sigma / B, so that of moments without their bias

    E[sum of v]   = |G|^2 + tr(Sigma) * sum of v's weights / B
    E[sum of m^2] = |G|^2 + tr(Sigma) * sum of m's squared weights / B,  after long (1 - beta1) / (1 + beta1) / B

which are two equations of two unknowns. The weights go by each step's own batch, so a change of batch does not show as
one of noise. What G itself changes within the moments' memory counts as noise, and so does a penalty of every n-th
step: read it as an order of magnitude, and its course. Gradients of games turn from step to step: of
dcgan-digits, with a penalty in every 16th step, |m|^2 is mostly less than noise alone would leave, and nothing is told.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from trainer.distributed.sharded_modules import local
from trainer.run.state import TrainState
from trainer.steps.roles import Role

_KEPT = 0.8
"""Of the means over lines, at each line: a single line's |G|^2 is a small difference of large numbers."""
_LEAST_APART = 1e-6
"""Relative difference of the two weights below which there are no two equations: after the first step."""
_FIRST = "discriminator"


class Moments(NamedTuple):
    """One worker's part of one optimiser's moments, without their bias.

    Attributes:
        mean_square: sum of the squares of first moments.
        square: sum of second moments.
        steps: that are in them.
        beta1: decay of the first.
        beta2: decay of the second.
    """

    mean_square: float
    square: float
    steps: int
    beta1: float
    beta2: float


def watched(state: TrainState) -> Role:
    """The role whose noise is told: the discriminator, or the first that learns."""
    return state.roles[_FIRST] if _FIRST in state.roles else state.learners[0]


def moments_of(optimiser: torch.optim.Optimizer, *, has_whole: bool = True) -> Moments | None:
    """One pass over the moments, which waits for the device. Weights that have learned in fewer steps than others are
    left out. Of split ones it is this worker's part; `has_whole`: this worker counts those that are not split.

    None without moments, without a first decay, on XLA, where it would be another program, and for optimisers that keep
    others than Adam's.
    """
    beta1, beta2 = (float(beta) for beta in optimiser.param_groups[0].get("betas", (0.0, 0.0)))
    entries = [entry for entry in optimiser.state.values() if "exp_avg" in entry and "exp_avg_sq" in entry]
    if not beta1 or not entries or entries[0]["exp_avg"].device.type == "xla":
        return None
    counts = torch.stack([torch.as_tensor(entry["step"]) for entry in entries]).tolist()
    steps = int(max(counts))
    if steps < 1:
        return None
    chosen = [
        (local(entry["exp_avg"]), local(entry["exp_avg_sq"]))
        for entry, count in zip(entries, counts, strict=True)
        if int(count) == steps and (has_whole or hasattr(entry["exp_avg"], "to_local"))
    ]
    norm = torch.nn.utils.get_total_norm
    norms = norm([mean for mean, _ in chosen]), norm([square for _, square in chosen], norm_type=1.0)
    mean, square = (float(each) for each in norms)
    return Moments((mean / (1 - beta1**steps)) ** 2, square / (1 - beta2**steps), steps, beta1, beta2)


class NoiseScale:
    """The noise scale over a session's lines: tr(Sigma) and |G|^2 are exponential means over them, each line a fifth,
    and their quotient is told, as in the paper.
    """

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._steps, self._of_mean, self._of_square = 0, 0.0, 0.0
        self._noise = self._signal = 0.0

    def after(self, parts: Sequence[Moments | None], batch_size: int) -> float | None:
        """In images, of the moments' parts, which count once each, after steps of that batch since the last line. None
        where a part is missing or |G|^2 is lost in the noise.
        """
        known = [part for part in parts if part is not None]
        if not known or len(known) < len(parts):
            return None
        steps = known[0].steps
        if steps < self._steps:  # a new optimiser
            self._forget()
        if steps > self._steps:
            self._add(known, steps - self._steps, batch_size)
        self._steps = steps
        return self._noise / self._signal if self._noise > 0 and self._signal > 0 else None

    def _add(self, parts: Sequence[Moments], new: int, batch_size: int) -> None:
        """Takes a line's moments in, with `new` steps in them."""
        _, _, steps, beta1, beta2 = parts[0]
        here = (1 - beta1) / (1 + beta1) * (1 - beta1 ** (2 * new))
        self._of_mean = self._of_mean * beta1 ** (2 * new) + here / batch_size
        self._of_square = self._of_square * beta2**new + (1 - beta2**new) / batch_size
        of_mean, of_square = self._of_mean / (1 - beta1**steps) ** 2, self._of_square / (1 - beta2**steps)
        apart = of_square - of_mean
        mean_square, square = sum(part.mean_square for part in parts), sum(part.square for part in parts)
        if apart <= _LEAST_APART * of_square or not math.isfinite(mean_square + square):
            return
        noise = (square - mean_square) / apart
        # Both are as far from their means as each other, so their quotient has no bias of the first lines.
        self._noise = _KEPT * self._noise + (1 - _KEPT) * noise
        self._signal = _KEPT * self._signal + (1 - _KEPT) * (square - of_square * noise)
