"""From gradients to weights: sums over micro-batches, the optimisers' step; the time of each phase."""

import itertools
import time
from collections.abc import Sequence
from functools import cache
from typing import Any, Self

import torch
from torch import nn

from gangway.trainer.data.loader import MASK, to_device
from gangway.trainer.distributed.world import World
from gangway.trainer.phases.losses import Terms
from gangway.trainer.phases.phase import Phase, Role, Update

_EVERY = 16  # On a GPU one step of so many is timed, including the first
_MOST = 64  # Most timed steps of one clock on a GPU, to limit the number of events


class PhaseClock:
    """Times phases by the CPU's clock, or by events of some steps on a GPU, read with a line; no effect elsewhere.

    A phase lasts until the next begins, the last until `leave`, with waits for images and other workers.
    """

    def __init__(self, device: torch.device | None = None) -> None:
        kind = device.type if device is not None else ""
        self._on_cpu, self._on_gpu = kind == "cpu", kind == "cuda"
        self._sec: dict[str, float] = {}
        self._open, self._since = "", 0.0
        self._steps = 0
        self._events: list[list[tuple[str, torch.cuda.Event]]] = []

    def enter(self, key: str) -> None:
        """Starts a phase and ends the one before it."""
        if self._on_cpu:
            now = time.perf_counter()
            self._close(now)
            self._open, self._since = key, now
        elif self._on_gpu and self._steps % _EVERY == 0 and self._steps < _EVERY * _MOST:
            if not self._open:
                self._events.append([])
            self._open = key
            self._mark(key)

    def leave(self) -> None:
        """Ends the step's last phase."""
        if self._on_cpu:
            self._close(time.perf_counter())
        elif self._on_gpu and self._open:
            self._mark("")
        self._open = ""
        self._steps += 1

    def means(self) -> dict[str, float]:
        """Returns seconds per step by phase over the timed steps; on a GPU it waits for the last of them."""
        if not self._on_gpu:
            return {key: sec / self._steps for key, sec in self._sec.items()} if self._steps else {}
        whole = [marks for marks in self._events if not marks[-1][0]]
        sums: dict[str, float] = {}
        for marks in whole:
            marks[-1][1].synchronize()
            for (key, begun), (_, ended) in itertools.pairwise(marks):
                sums[key] = sums.get(key, 0.0) + begun.elapsed_time(ended) / 1e3
        return {key: sec / len(whole) for key, sec in sums.items()}

    def _close(self, now: float) -> None:
        if self._open:
            self._sec[self._open] = self._sec.get(self._open, 0.0) + now - self._since

    def _mark(self, key: str) -> None:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch leaves it bare
        event.record()
        self._events[-1].append((key, event))


class Accumulator:
    """Sums over a step's `phases`; `order` digests this worker's order of images; `clock` times the phases."""

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
