"""The gradient noise scale: the batch size above which more images help little.

B_simple = tr(Sigma) / |G|^2 (McCandlish et al. 2018, arXiv 1812.06162): G the mean gradient, Sigma one image's
covariance. Gradients g of parts of b images each, of one batch and at the same weights, have

    E[g_i . g_j] = |G|^2        E[|g_i|^2] = |G|^2 + tr(Sigma) / b

Gradients of successive steps do not: a discriminator's turn from step to step (with dcgan-digits successive ones point
against each other), which looks like noise, or hides it. So before some steps their own images are measured in a few
parts. That does not change a bit of the run.
"""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.data.loader import to_device
from gangway.trainer.distributed.world import World
from gangway.trainer.phases.batch import Batch
from gangway.trainer.phases.phase import Phase
from gangway.trainer.steps.state import TrainState

_PARTS = 4
_MOST_IMAGES = 16  # Of a part
_EVERY = 256  # Images trained per image measured, which is half a step's work at most: some 0.3 %
_SHARE = 0.005
"""Share of the time for measurements: where kernel launches are the bottleneck, one takes as long as several steps (a
quarter of the time, with DCGAN at 32x32 on an H200).
"""
_KEPT = 0.8  # Decay of the means at each measurement: one |G|^2 is a small difference of large numbers


class Looks(NamedTuple):
    """One worker's measurements since its last line."""

    signal: float = 0.0  # mean of the products of two parts' gradients; its expectation is |G|^2
    noise: float = 0.0  # mean of tr(Sigma), squared gradient units times images
    number: int = 0  # of measurements
    sec: float = 0.0  # host time, at least for starting their kernels


NO_LOOKS = Looks()


class NoiseProbe:
    """Measures the first phase's gradients, at the same steps on all workers; not with split networks, fp16 or XLA."""

    def __init__(self, config: TrainConfig, world: World, phases: Sequence[Phase[Any]]) -> None:
        self._phase = next(phase for phase in phases if phase.batches)
        groups = config.batch_size // config.group // world.dp_size
        self._size = max(1, min(_MOST_IMAGES // config.group, groups // _PARTS)) * config.group
        self._number = min(_PARTS, groups * config.group // self._size)
        self._can = self._number > 1 and config.shard == "ddp" and not world.is_pipelined and not world.on_xla
        self._every = self._least = max(1, _EVERY * self._number * self._size // (groups * config.group))
        self._sums, self._looks, self._sec = to_device(torch.zeros(2), world.device), 0, 0.0
        self._is_warm, self._last_looks = False, 0
        self._last: Mapping[str, Any] | None = None

    def is_due(self, state: TrainState) -> bool:
        """Whether to measure at the next step; never a run's first, whose weights have learned nothing."""
        is_scaled = state.roles[self._phase.roles[0]].scale.enabled
        return self._can and not is_scaled and state.step > 0 and state.step % self._every == 0

    def look(self, state: TrainState, batch: Batch) -> None:
        """Measures the next step's batch; weights, gradients, buffers and random numbers stay the same."""
        began, phase = time.perf_counter(), self._phase
        weights = (weight for name in phase.roles for weight in state.roles[name].network.parameters())
        learn = [weight for weight in weights if weight.requires_grad]
        saved = [(buffer, buffer.clone()) for role in state.roles.values() for buffer in role.network.buffers()]
        total, squares = [torch.zeros_like(weight) for weight in learn], torch.zeros_like(self._sums[0])
        parts = [slice(at * self._size, (at + 1) * self._size) for at in range(self._number)]
        with batch.in_parts(parts):
            for micro in phase.inputs(batch, state, phase.positions(state.config, state.images)[0]):
                # Not the module's call, which may be compiled and would recompile for these shapes.
                terms = phase.run(phase.loss.forward, micro.inputs, penalised=False, settle=None)
                found = torch.autograd.grad(terms.total, learn, allow_unused=True, materialize_grads=True)
                for summed, each in zip(total, found, strict=True):
                    summed += each
                squares += _square(found)
        with torch.no_grad():
            for buffer, before in saved:
                buffer.copy_(before)
        # |sum of g|^2 = sum of |g|^2 + the products of each with each other, both ways.
        signal = (_square(total) - squares) / (self._number * (self._number - 1))
        self._sums += torch.stack([signal, (squares / self._number - signal) * self._size])
        self._looks += 1
        self._sec += time.perf_counter() - began

    def read(self) -> Looks:
        """Returns the measurements since the last read; waits for the device."""
        number, sec = self._looks, self._sec
        self._looks, self._sec, self._last_looks = 0, 0.0, number
        if not number:
            return NO_LOOKS
        signal, noise = (self._sums / number).tolist()
        self._sums.zero_()
        return Looks(signal, noise, number, sec)

    def after(self, line: Mapping[str, Any]) -> None:
        """Adapts the interval to `_SHARE` by a line, equal on all workers; not by the first, which chooses kernels."""
        last, self._last = self._last, line
        if not self._last_looks:
            return
        if self._is_warm and last is not None:
            wall, metrics, looks = (line[key] - last[key] for key in ("wall_sec", "metrics_sec", "noise_scale_sec"))
            step_sec = (wall - metrics - looks) / (line["step"] - last["step"])
            self._every = max(self._least, math.ceil(looks / self._last_looks / (_SHARE * step_sec)))
        self._is_warm = True


class NoiseScale:
    """The noise scale over a session's lines: the quotient of exponential means of tr(Sigma) and |G|^2."""

    def __init__(self) -> None:
        self._noise = self._signal = 0.0

    def after(self, workers: Sequence[Looks]) -> float | None:
        """Returns it in images; None before a measurement, and where |G|^2 is lost in the noise."""
        number = workers[0].number
        signal, noise = (
            math.fsum(values) / len(workers) for values in zip(*(each[:2] for each in workers), strict=True)
        )
        if number and math.isfinite(signal + noise):
            saved = _KEPT**number
            # Both have the same bias from the first measurements, so their quotient has none.
            self._signal = saved * self._signal + (1 - saved) * signal
            self._noise = saved * self._noise + (1 - saved) * noise
        return self._noise / self._signal if self._noise > 0 and self._signal > 0 else None


def _square(gradients: Sequence[Tensor]) -> Tensor:
    return torch.nn.utils.get_total_norm(list(gradients)).square()
