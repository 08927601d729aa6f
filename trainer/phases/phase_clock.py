"""Times each phase of a step: by the CPU's clock, or by events of some steps on a GPU.

A GPU's events are read with a line of statistics, which waits for the device anyway, so no step waits for them. XLA and
CUDA graphs run a step as one program, without phases to time.
"""

import itertools
import time

import torch

_EVERY = 16
"""On a GPU one step of so many is timed, including the first."""
_MOST = 64
"""Most timed steps of one clock on a GPU, to limit the number of events."""


class PhaseClock:
    """Times phases of steps on a CPU or GPU; without effect on other devices.

    A phase lasts until the next begins, the last until `leave`. It includes waits for images and other workers; an
    update made while the next phase computes counts for that one.
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
        elif self._on_gpu and self._is_sampled():
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

    def _is_sampled(self) -> bool:
        return self._steps % _EVERY == 0 and self._steps < _EVERY * _MOST

    def _close(self, now: float) -> None:
        if self._open:
            self._sec[self._open] = self._sec.get(self._open, 0.0) + now - self._since

    def _mark(self, key: str) -> None:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch leaves it bare
        event.record()
        self._events[-1].append((key, event))
