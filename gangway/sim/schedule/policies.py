"""The interface of scheduling policies, and their registry. A new one is a class with `name` and `decide`, known only
to the registry.

    class LastComeFirst(Policy):
        name = "lcfs"

        def decide(self, view):
            grants = view.running()
            start_in_order(grants, view, sorted(view.waiting(), key=lambda job: -job.ask.submit_sec))
            return grants
"""

import heapq
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar, NamedTuple

from gangway.components.core.findings import InputError
from gangway.sim.schedule.jobs import Ask

Grants = dict[str, int]
"""GPUs by job name; unnamed jobs have none."""


class JobView(NamedTuple):
    """A submitted, unfinished job. `gpus`: 0 while it waits; `length_sec`: to its end, by its request."""

    ask: Ask
    gpus: int
    images_done: float
    gpu_sec: float
    waited_sec: float
    length_sec: Callable[[int], float]

    @property
    def images_left(self) -> float:
        """Of its request; it may end earlier."""
        return max(0.0, self.ask.images - self.images_done)


@dataclass(frozen=True)
class View:
    """The state at one time. `gpus`: present, free or not; `jobs`: by submission; `pause_sec`: lost per move."""

    now_sec: float
    gpus: int
    jobs: Sequence[JobView]
    pause_sec: float

    def running(self) -> Grants:
        """Every job keeps its GPUs."""
        return {job.ask.name: job.gpus for job in self.jobs if job.gpus}

    def waiting(self) -> list[JobView]:
        """Jobs without GPUs by submission."""
        return [job for job in self.jobs if not job.gpus]


class Policy(ABC):
    """Decides whenever a job comes or ends, a node goes or returns, and every `review_sec`. An instance belongs to one
    simulation; it uses no clock and no unseeded randomness. `moves_batch`: jobs train with the best batch.
    """

    name: ClassVar[str]
    says: ClassVar[str]
    moves_batch: ClassVar[bool] = False
    review_sec: ClassVar[float | None] = None

    @abstractmethod
    def decide(self, view: View) -> Grants:
        """All grants, at most `view.gpus` and within each job's bounds; a job whose number changes restarts."""

    def ended(self, ask: Ask, images: float) -> None:
        """Learn from a job that ended after `images`."""
        del ask, images


def start_in_order(grants: Grants, view: View, order: Iterable[JobView]) -> JobView | None:
    """Grant jobs in order until one does not fit, which is returned; None if all fit."""
    free = view.gpus - sum(grants.values())
    for job in order:
        if not (gpus := job.ask.best(free)):
            return job
        grants[job.ask.name] = gpus
        free -= gpus
    return None


# Scheduling policies by their names for `gangway simulate --policy`.


class Fifo(Policy):
    """The control: no overtaking, no moves."""

    name = "fifo"
    says = "first come, first served; the first that does not fit holds up the rest"

    def decide(self, view: View) -> Grants:
        """Start from the front of the queue."""
        grants = view.running()
        start_in_order(grants, view, view.waiting())
        return grants


class Backfill(Policy):
    """FIFO with the gaps filled, by requested lengths: the reservation holds unless jobs run longer or nodes go."""

    name = "backfill"
    says = "EASY: first come, first served; later jobs fill gaps where the first in the queue is not delayed"

    def decide(self, view: View) -> Grants:
        """Start from the front, reserve for the first that does not fit, and fill."""
        grants = view.running()
        waiting = view.waiting()
        first = start_in_order(grants, view, waiting)
        if first is None:
            return grants
        start_sec, spare = _reservation(grants, view, first)
        for job in waiting[waiting.index(first) + 1 :]:
            free = view.gpus - sum(grants.values())
            fitting = dict.fromkeys((job.ask.best(free), job.ask.best(min(free, spare))))
            for gpus in filter(None, fitting):
                ends_in_time = view.now_sec + job.length_sec(gpus) <= start_sec
                if ends_in_time or gpus <= spare:
                    grants[job.ask.name] = gpus
                    spare -= 0 if ends_in_time else gpus
                    break
        return grants


def _reservation(grants: Mapping[str, int], view: View, first: JobView) -> tuple[float, int]:
    """When the first in the queue gets its fewest GPUs, and the spare GPUs then; never if there are too few."""
    free = view.gpus - sum(grants.values())
    having = [job for job in view.jobs if job.ask.name in grants]
    ends = sorted((view.now_sec + job.length_sec(gpus := grants[job.ask.name]), gpus) for job in having)
    for end_sec, gpus in ends:
        free += gpus
        if free >= first.ask.gpus_min:
            return end_sec, free - first.ask.gpus_min
    return math.inf, 0


STAYS = 0.5
"""Factor on a running job's time: moving it for less would cost more restarts than it saves."""


class Shortest(Policy):
    """A trainer knows its images, so the remaining time is as reliable as the request. Long jobs may wait forever."""

    name = "shortest"
    says = "shortest remaining time first, as asked for; a running job gives way to one of less than half"

    def decide(self, view: View) -> Grants:
        """GPUs by remaining time."""
        return grant_in_order(view, lambda job: job.images_left / job.ask.rate(job.ask.gpus_min))


def grant_in_order(view: View, key_sec: Callable[[JobView], float], first: Sequence[JobView] = ()) -> Grants:
    """GPUs for `first`, then by ascending key; jobs that do not fit are skipped. `first` is never overtaken."""

    def key(job: JobView) -> float:
        return max(0.0, key_sec(job) - view.pause_sec) * STAYS if job.gpus else key_sec(job)

    grants: Grants = {}
    free, held_up = view.gpus, False
    names = {job.ask.name for job in first}
    rest = sorted(
        (job for job in view.jobs if job.ask.name not in names), key=lambda job: (key(job), job.ask.submit_sec)
    )
    for job in (*first, *rest):
        if held_up and not job.gpus:
            continue
        gpus = job.gpus if 0 < job.gpus <= free else job.ask.best(free)
        if gpus:
            grants[job.ask.name] = gpus
            free -= gpus
        elif job.ask.name in names:
            held_up = True
    return grants


PATIENCE = 10.0
"""A job that waited this many times its request goes first,"""
LEAST_PATIENCE_SEC = 24 * 3600.0
"""but not before a day."""


@dataclass
class LengthModel:
    """Share of the requested images after which a job ends: ridge regression of its logarithm (recursive least squares)
    on those of length and GPUs, plus the group's mean residual, shrunk to 0.
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


GAIN = 1.05
"""Minimum progress ratio until the next review, restart included, to give a running job more."""


class Goodput(Policy):
    """Jobs shrink and grow within their bounds, and their batches with them."""

    name = "goodput"
    says = "elastic: each next GPU to whom it adds most (throughput x statistical efficiency), least served first"
    moves_batch = True
    review_sec = 1800.0

    def decide(self, view: View) -> Grants:
        """The fewest GPUs for as many as fit, the rest where they add most, without unprofitable moves."""
        grants: Grants = {}
        free = view.gpus
        for job in sorted(view.jobs, key=_service_rank):
            if job.ask.gpus_min <= free:
                grants[job.ask.name] = job.ask.gpus_min
                free -= job.ask.gpus_min
        jobs = {job.ask.name: job for job in view.jobs if job.ask.name in grants}
        steps = [step for job in jobs.values() if (step := _next_size(job, job.ask.gpus_min))]
        heapq.heapify(steps)
        while steps:
            _, _, name, gpus = heapq.heappop(steps)
            if gpus - grants[name] > free:
                continue
            free -= gpus - grants[name]
            grants[name] = gpus
            if step := _next_size(jobs[name], gpus):
                heapq.heappush(steps, step)
        return {name: self._profitable_gpus(jobs[name], gpus, view) for name, gpus in grants.items()}

    def _profitable_gpus(self, job: JobView, gpus: int, view: View) -> int:
        if not job.gpus or gpus <= job.gpus:
            return gpus
        now, then = (job.ask.rate(count, moves_batch=True) for count in (job.gpus, gpus))
        ahead_sec = min(self.review_sec or math.inf, job.images_left / now)
        return gpus if then * (ahead_sec - view.pause_sec) > GAIN * now * ahead_sec else job.gpus


def _service_rank(job: JobView) -> tuple[int, bool, float]:
    """Doublings of past GPU-hours; within one, running jobs stay."""
    return int(math.log2(1 + job.gpu_sec / 3600)), not job.gpus, job.ask.submit_sec


def _next_size(job: JobView, gpus: int) -> tuple[float, float, str, int] | None:
    """The next faster number of GPUs: (negative log gain per GPU; ...; name, GPUs)."""
    now = job.ask.rate(gpus, moves_batch=True)
    for more in range(gpus + 1, job.ask.gpus_max + 1):
        if (then := job.ask.rate(more, moves_batch=True)) > now:
            return -math.log(then / now) / (more - gpus), job.ask.submit_sec, job.ask.name, more
    return None


POLICIES: Mapping[str, type[Policy]] = MappingProxyType(
    {policy.name: policy for policy in (Fifo, Backfill, Shortest, Goodput, Learned)}
)


def policy_named(name: str) -> type[Policy]:
    """Find a policy. InputError: unknown."""
    if name not in POLICIES:
        raise InputError.not_among("--policy", "no such policy", name, POLICIES)
    return POLICIES[name]
