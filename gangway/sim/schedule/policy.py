"""The interface of policies. A new one is a class with `name` and `decide`, known only to the registry
(`gangway.sim.schedule.policies`).

    class LastComeFirst(Policy):
        name = "lcfs"

        def decide(self, view):
            grants = view.running()
            start_in_order(grants, view, sorted(view.waiting(), key=lambda job: -job.ask.submit_sec))
            return grants
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

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
