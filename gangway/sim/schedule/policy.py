"""What a policy sees and what it says. A new one is a class with `name` and `decide`; nothing else knows it but the
registry (`gangway.sim.schedule.policies.registry`).

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

__all__ = ["Grants", "JobView", "Policy", "View", "start_in_order"]

Grants = dict[str, int]
"""Name of a job -> the GPUs that it has from now on; a job that is not named has none."""


class JobView(NamedTuple):
    """A job that has come and not ended.

    Attributes:
        gpus: that it has now; 0 while it waits.
        images_done: up to now; what is not in a checkpoint is lost with a node.
        gpu_sec: that it has had, in all.
        waited_sec: in all, without GPUs.
        length_sec: from now to its end on so many GPUs, were it as long as it asked for; starts and saves counted.
    """

    ask: Ask
    gpus: int
    images_done: float
    gpu_sec: float
    waited_sec: float
    length_sec: Callable[[int], float]

    @property
    def images_left(self) -> float:
        """Of what it asked for; it may end earlier."""
        return max(0.0, self.ask.images - self.images_done)


@dataclass(frozen=True)
class View:
    """What is known at one time. `gpus`: that are there, free or not; `jobs`: in the order in which they came;
    `pause_sec`: that a job loses when it is moved.
    """

    now_sec: float
    gpus: int
    jobs: Sequence[JobView]
    pause_sec: float

    def running(self) -> Grants:
        """As it is: every job that has GPUs keeps them."""
        return {job.ask.name: job.gpus for job in self.jobs if job.gpus}

    def waiting(self) -> list[JobView]:
        """The jobs without GPUs, in the order in which they came."""
        return [job for job in self.jobs if not job.gpus]


class Policy(ABC):
    """Decides whenever a job comes or ends, a node goes or comes back, and every `review_sec`. An instance belongs to
    one simulation and may remember; it uses no clock and no chance that it does not seed itself.

    Attributes:
        name: on the command line.
        says: what it does, in a line.
        moves_batch: whether its jobs train with the best batch for their GPUs rather than the submitted one.
        review_sec: how often it looks without an event; None for never.
    """

    name: ClassVar[str]
    says: ClassVar[str]
    moves_batch: ClassVar[bool] = False
    review_sec: ClassVar[float | None] = None

    @abstractmethod
    def decide(self, view: View) -> Grants:
        """All grants from now on, at most `view.gpus` in all and each within its job's bounds. A job whose number
        changes is saved, stopped and started anew; one with the number that it has is left alone.
        """

    def ended(self, ask: Ask, images: float) -> None:
        """A job has ended after so many images: something to learn from."""
        del ask, images


def start_in_order(grants: Grants, view: View, order: Iterable[JobView]) -> JobView | None:
    """Adds jobs to `grants` until one does not fit, which is returned; None where all did."""
    free = view.gpus - sum(grants.values())
    for job in order:
        if not (gpus := job.ask.best(free)):
            return job
        grants[job.ask.name] = gpus
        free -= gpus
    return None
