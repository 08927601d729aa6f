"""From gradients to weights: sums over micro-batches, the optimisers' step."""

from collections.abc import Sequence
from functools import cache
from typing import Any, Self

import torch
from torch import nn

from gangway.trainer.data.loader import MASK, to_device
from gangway.trainer.distributed.world import World
from gangway.trainer.phases.phase import Phase, Terms, Update
from gangway.trainer.phases.phase_clock import PhaseClock
from gangway.trainer.phases.roles import Role


class Accumulator:
    """Sums since the last line, over a step's `phases`.

    `order` is the digest of this worker's order of images (gangway.trainer.data.loader); `clock` times the phases.
    """

    def __init__(self, phases: Sequence[Phase[Any]], device: torch.device, clock: PhaseClock | None = None) -> None:
        self.phases, self.clock = tuple(phases), clock or PhaseClock()
        self._weights = {name: weight for phase in phases for name, weight in phase.penalties.items()}
        self._names = [name for phase in reversed(phases) for name in phase.means]
        self._sums = {phase.key: to_device(torch.zeros(len(phase.means)), device) for phase in reversed(phases)}
        self._steps, self._penalised, self.order = 0, 0, 0

    def add(self, phase: Phase[Any], weight: float, terms: Terms) -> None:
        """Adds a phase's terms for one micro-batch."""
        self._sums[phase.key] += weight / max(1, phase.batches) * terms.means

    def clear(self) -> None:
        """Sets the sums to zero in place."""
        for sums in self._sums.values():
            sums.zero_()

    def add_all(self, other: "Accumulator") -> None:
        """Adds the sums of another one with the same phases."""
        for key, sums in self._sums.items():
            sums += other._sums[key]

    def saw(self, order: int) -> None:
        """Adds a batch's digest of its images' order."""
        self.order = (self.order + order) & MASK

    def close_step(self, *, penalised: bool) -> None:
        """Counts a step, and whether it had penalties."""
        self._steps += 1
        self._penalised += penalised

    def cpu(self) -> Self:
        """Waits for the device and moves the sums to the CPU."""
        self._sums = {key: sums.cpu() for key, sums in self._sums.items()}
        return self

    def tolist(self) -> list[float]:
        """Returns this worker's sums as plain numbers."""
        numbers: list[float] = torch.cat(list(self._sums.values())).tolist()
        return numbers

    def means(self, rows: Sequence[Sequence[float]]) -> dict[str, float | None]:
        """Returns means per step over all workers' `tolist`; a penalty's over its steps, None without any."""
        totals = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
        named = dict(zip(self._names, totals, strict=True))
        counts = {name: self._penalised if weight else 0 for name, weight in self._weights.items()}
        return {
            name: total / count if (count := counts.get(name, self._steps)) else None for name, total in named.items()
        }


def get_update(world: World, loss: nn.Module, roles: Sequence[Role]) -> Update:
    """Returns the update of a phase's learning roles by the last backward's gradients, without idle layers."""
    for role in roles:
        role.network.drop_idle_gradients()

    def update() -> None:
        world.settle(loss)
        roles[0].scale.step(world, *(role.learner for role in roles))

    return cache(update)
