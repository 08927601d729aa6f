"""Search for the power limit with the most images per joule, from statistics lines; pure.

The limit is lowered step by step. Each step takes the median of samples of at least a second over a window of seconds:
NVML's energy counter updates every 100 ms, some boards sample their power a quarter of the time only, and checkpoints
or sample grids must not decide. Lower limits are only ever slower: the first step beyond the allowed slowdown is the
last. All workers see the same lines and take the same steps.
"""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

LADDER = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
"""Shares of a GPU's original limit."""
WINDOW_SEC = 20.0
_SETTLE_SEC = 3.0
_SAMPLE_SEC = 1.0
_LEAST_SAMPLES = 5


class Measured(NamedTuple):
    """One step of the ladder: medians over the window, of the whole job and all devices with known energy."""

    share: float
    images_per_sec: float
    images_per_joule: float


class Step(NamedTuple):
    """The next limit as a `share` of the original one; `done`: it is the result."""

    share: float
    done: bool
    reason: str


class Search:
    """One search over a falling `ladder` of shares, the first 1; each step takes at least `window_sec`."""

    def __init__(self, ladder: Sequence[float], max_slowdown: float, window_sec: float = WINDOW_SEC) -> None:
        self._ladder, self._max_slowdown, self._window_sec = ladder, max_slowdown, window_sec
        self._restart(resolution=None)

    def _restart(self, resolution: object) -> None:
        self.measured: list[Measured] = []
        self.done = False
        self._resolution = resolution
        self._begin()

    def _begin(self) -> None:
        self._set_at: float | None = None  # measures start some seconds later
        self._last: Mapping[str, Any] | None = None
        self._samples: list[tuple[float, float]] = []
        self._measured_sec = 0.0

    def see(self, line: Mapping[str, Any]) -> Step | None:
        """Process a statistics line (images, wall_sec, energy_joules, resolution); return the change, if any."""
        if line["resolution"] != self._resolution:
            # Progressive networks: a new resolution is a new job. The very first line sets the first one.
            resumes = self._resolution is not None
            self._restart(line["resolution"])
            if resumes:
                return Step(self._ladder[0], False, f"resolution {line['resolution']}: the search starts over")
        if self.done:
            return None
        self._sample(line)
        if self._measured_sec < self._window_sec or len(self._samples) < _LEAST_SAMPLES:
            return None
        return self._conclude()

    def _sample(self, line: Mapping[str, Any]) -> None:
        now: float = line["wall_sec"]
        if self._set_at is None:
            self._set_at = now
        if self._last is None:
            self._last = line if now - self._set_at >= _SETTLE_SEC else None
            return
        sec = now - self._last["wall_sec"]
        joules = line["energy_joules"] - self._last["energy_joules"]
        if sec >= _SAMPLE_SEC and joules > 0:
            images = line["images"] - self._last["images"]
            self._samples.append((images / sec, images / joules))
            self._measured_sec += sec
            self._last = line

    def _conclude(self) -> Step:
        share = self._ladder[len(self.measured)]
        per_sec, per_joule = (median(values) for values in zip(*self._samples, strict=True))
        self.measured.append(Measured(share, per_sec, per_joule))
        slowdown = 1 - per_sec / self.measured[0].images_per_sec
        if slowdown <= self._max_slowdown and len(self.measured) < len(self._ladder):
            self._begin()
            lower = self._ladder[len(self.measured)]
            return Step(lower, False, f"{share:.0%} of the limit makes {per_joule:.3g} images/J; trying {lower:.0%}")
        self.done = True
        return self._choose()

    def _choose(self) -> Step:
        first = self.measured[0]
        fast_enough = (1 - self._max_slowdown) * first.images_per_sec
        best = max(
            (step for step in self.measured if step.images_per_sec >= fast_enough),
            key=lambda step: (step.images_per_joule, step.share),
        )
        more = best.images_per_joule / first.images_per_joule - 1
        slower = 1 - best.images_per_sec / first.images_per_sec
        return Step(
            best.share,
            True,
            f"{best.share:.0%} of the limit makes the most images per joule within {self._max_slowdown:.0%} slowdown: "
            f"{best.images_per_joule:.3g} images/J, {more:+.1%}, and {abs(slower):.1%} "
            f"{'slower' if slower >= 0 else 'faster'}; {len(self.measured)} limits tried, {self._window_sec:g} s each",
        )
