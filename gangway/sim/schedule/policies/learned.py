"""Shortest remaining time by learned lengths: many jobs end long before their request, and their group predicts which.
Bounded: no job waits forever, and predictions stay within the request.
"""

import math
from dataclasses import dataclass, field

from gangway.sim.schedule.jobs import Ask
from gangway.sim.schedule.policies.shortest import grant_in_order
from gangway.sim.schedule.policy import Grants, JobView, Policy, View

__all__ = ["Learned", "LengthModel"]

PATIENCE = 10.0
"""A job that waited this many times its request goes first,"""
LEAST_PATIENCE_SEC = 24 * 3600.0
"""but not before a day."""


@dataclass
class LengthModel:
    """Share of the requested images after which a job ends: its logarithm by ridge regression on the logarithms of
    length and GPUs (recursive least squares), plus the group's mean residual, shrunk to 0 for few jobs. `ridge`: of the
    weights, which start at 0: full length; `shrink`: prior jobs with residual 0 in a group's mean.
    """

    ridge: float = 1.0
    shrink: float = 3.0
    _weights: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    _inverse: list[list[float]] = field(default_factory=list)
    _groups: dict[str, tuple[int, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._inverse = [[float(row == column) / self.ridge for column in range(3)] for row in range(3)]

    def share(self, ask: Ask) -> float:
        """Predict the share, above 0 and at most 1."""
        count, total = self._groups.get(ask.group, (0, 0.0))
        guess = _dot(self._weights, _features(ask)) + total / (count + self.shrink)
        return math.exp(min(0.0, max(math.log(0.001), guess)))

    def learn(self, ask: Ask, images: float) -> None:
        """Update from a job that ended after `images`."""
        x, y = _features(ask), math.log(max(images / ask.images, 0.001))
        projected = [_dot(row, x) for row in self._inverse]
        scale = 1 + _dot(x, projected)
        error = y - _dot(self._weights, x)
        self._weights = [weight + error * move / scale for weight, move in zip(self._weights, projected, strict=True)]
        self._inverse = [
            [value - factor * right / scale for value, right in zip(row, projected, strict=True)]
            for row, factor in zip(self._inverse, projected, strict=True)
        ]
        count, total = self._groups.get(ask.group, (0, 0.0))
        self._groups[ask.group] = (count + 1, total + error)


def _features(ask: Ask) -> tuple[float, float, float]:
    hours = ask.images / ask.rate(ask.gpus_min) / 3600
    return 1.0, math.log1p(hours), math.log(ask.gpus_min)


def _dot(left: list[float] | tuple[float, ...], right: list[float] | tuple[float, ...]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))


class Learned(Policy):
    """The order of `shortest`, by predicted lengths."""

    name = "learned"
    says = "shortest remaining time first, by lengths learned online from the jobs that ended; nobody waits for ever"

    def __init__(self) -> None:
        self._model = LengthModel()

    def decide(self, view: View) -> Grants:
        """GPUs by predicted remaining time; jobs that waited too long go first."""
        overdue = [job for job in view.jobs if _overdue(job)]
        running = [job for job in overdue if job.gpus]
        return grant_in_order(view, self._remaining_sec, running + [job for job in overdue if not job.gpus][:1])

    def ended(self, ask: Ask, images: float) -> None:
        """Learn its length."""
        self._model.learn(ask, images)

    def _remaining_sec(self, job: JobView) -> float:
        """A job beyond its prediction is expected to double its time."""
        predicted = self._model.share(job.ask) * job.ask.images - job.images_done
        images_left = predicted if predicted > 0 else min(job.images_left, job.images_done)
        return images_left / job.ask.rate(job.ask.gpus_min)


def _overdue(job: JobView) -> bool:
    asked_sec = job.ask.images / job.ask.rate(job.ask.gpus_min)
    return job.waited_sec > max(LEAST_PATIENCE_SEC, PATIENCE * asked_sec)
