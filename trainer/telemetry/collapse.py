"""Detects a run's collapse from lines and grids while numbers are finite, and hints at what to change."""

from collections import deque
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gangway.trainer.checkpoint.samples import IMAGES_PER_CYCLE
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.metric_names import NONE

D_WINS, CONSTANT_OUTPUT = "d-wins", "constant-output"
EVENT = "hint"

_SURE_LOSS = 0.1
"""Loss of D below which it is right at more than 19 in 20 of both kinds, on average: log(20/19) for each. Also of the
relativistic loss, of which it is the logits' distance. Runs that learnt had 0.16 or more in their surest line."""
_SURE_STEPS = 500
"""So long D has to be that sure: it often is for the first tens of steps, until G has found the pictures' colours."""
_FALLEN = 0.9  # G catches up where its loss in the second half of that time is below so much of the first half's
_SAME = 0.05
"""Spread of the samples, as a share of the real images', below which they look alike. Runs that learn had 0.15 or more
in their first grids and 0.5 later."""
_SAME_GRIDS = 2  # So many grids in a row: an average that is still young may be grey for one
_UNPENALISED = ("wgan-gp", "lsgan")  # Losses that have no R1, and of which no value says how often D is right


class Hint(NamedTuple):
    """A sign of collapse: its `cause`, `figure`, and a `sentence` with what to change."""

    cause: str
    figure: float
    sentence: str


class CollapseWatch:
    """One session's watch, on the worker that writes; `told` are causes that earlier sessions reported."""

    def __init__(self, config: TrainConfig, reals: Tensor, told: Collection[str] = ()) -> None:
        self._config, self._reported = config, set(told)
        self._real_spread = spread(reals)
        self._sure: deque[tuple[int, float]] = deque()  # step and G's loss of the last lines, all of a D that is sure
        self._same, self._seen = 0, -1

    def line(self, line: Mapping[str, Any]) -> Hint | None:
        """Checks a line of statistics; losses that do not show a discriminator's certainty are ignored."""
        if D_WINS in self._reported or self._config.loss in _UNPENALISED:
            return None
        if line["loss_d"] >= _SURE_LOSS:
            self._sure.clear()
            return None
        self._sure.append((line["step"], line["loss_g"]))
        while len(self._sure) > 2 and self._sure[-1][0] - self._sure[1][0] >= _SURE_STEPS:
            self._sure.popleft()
        steps = self._sure[-1][0] - self._sure[0][0]
        losses = [loss for _, loss in self._sure]
        half = len(losses) // 2
        if steps < _SURE_STEPS or half == 0 or _mean(losses[half:]) < _FALLEN * _mean(losses[:half]):
            return None
        self._reported.add(D_WINS)
        return Hint(
            D_WINS,
            line["loss_d"],
            f"the discriminator wins: its loss was below {_SURE_LOSS:g} for {steps} steps ({line['loss_d']:.3g} now), "
            f"and the generator's does not fall ({line['loss_g']:.3g} now), so it learns no more. "
            f"{_restart(_weaker_discriminator(self._config, line['augment_p']))}",
        )

    def grid(self, samples: Tensor, images: int) -> Hint | None:
        """Checks uint8 samples of the fixed latents after `images`, of trained generators, and each state once."""
        if images in (0, self._seen):
            return None
        self._seen = images
        made = samples[1::IMAGES_PER_CYCLE] if self._config.translates else samples
        ratio = spread(made) / self._real_spread if self._real_spread else 1.0
        self._same = self._same + 1 if ratio < _SAME else 0
        if self._same < _SAME_GRIDS or CONSTANT_OUTPUT in self._reported:
            return None
        self._reported.add(CONSTANT_OUTPUT)
        config = self._config
        flags = [*_constant(config), f"--lr-g {config.lr_g / 2:g} --lr-d {config.lr_d / 2:g}"]
        flags += [] if config.loss in _UNPENALISED else [_heavier_penalty(config)]
        return Hint(
            CONSTANT_OUTPUT,
            ratio,
            f"the samples are all alike: in {_SAME_GRIDS} grids in a row they differ by {ratio:.1%} of what the real "
            f"images differ by. {_restart(' '.join(flags))}",
        )


def spread(images: Tensor) -> float:
    """Returns a pixel's standard deviation over uint8 images [N, ...], averaged over pixels."""
    return float(images.to(torch.float32).std(dim=0).mean())


def _weaker_discriminator(config: TrainConfig, augment_p: float) -> str:
    changes = []
    if config.augment == NONE:
        parts = "translation,cutout" if config.channels == 1 else "color,translation,cutout"
        changes.append(f"--augment {parts}")
    elif config.ada_target and augment_p < 1:
        changes.append(f"--ada-kimg {config.ada_kimg / 4:g}")
    if config.augment == NONE and config.loss == "nonsaturating":
        changes.append("--ada-target 0.6")
    return " ".join([*changes, *_constant(config), f"--lr-d {config.lr_d / 2:g}", _heavier_penalty(config)])


def _constant(config: TrainConfig) -> list[str]:
    return ["--schedules {}"] if config.schedules.given else []


def _heavier_penalty(config: TrainConfig) -> str:
    return f"--r1-gamma {max(4 * config.r1_gamma, 0.1):g}"


def _restart(flags: str) -> str:
    return f"Begin again in another --run-dir with {flags}; or with more pictures"


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
