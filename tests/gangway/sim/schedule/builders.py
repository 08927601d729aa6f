"""Small clusters and jobs for the tests of the simulator."""

import random

from gangway.sim.schedule.cluster import Cluster, Hourly, Rung
from gangway.sim.schedule.jobs import Ask, Job

__all__ = ["job", "plain", "random_jobs"]


def job(
    name: str,
    submit_sec: float,
    gpus: tuple[int, int],
    work_sec: float,
    *,
    asked_sec: float | None = None,
    group: str = "",
    deadline_sec: float | None = None,
) -> Job:
    """A job that scales without loss. `work_sec`: on its fewest GPUs; `asked_sec`: what it says it needs of them."""
    counts = range(gpus[0], gpus[1] + 1)
    rates = tuple(count * 1.0 for count in counts)
    images = work_sec * gpus[0]
    asked = images if asked_sec is None else asked_sec * gpus[0]
    return Job(Ask(name, submit_sec, *gpus, asked, rates, rates, group, deadline_sec), images)


def plain(gpus: int, *, start_sec: float = 0.0, save_sec: float = 0.0, interval_sec: float | None = None) -> Cluster:
    """So many GPUs that are always there; starts and saves take no time unless told."""
    rung = Rung("reserved", gpus, Hourly((2.0,)), always_paid=True)
    return Cluster((rung,), start_sec=start_sec, save_sec=save_sec, interval_sec=interval_sec)


def random_jobs(seed: int, number: int, most_gpus: int) -> list[Job]:
    """A mixture of small and large, of which some end early."""
    draw = random.Random(seed)
    jobs, now = [], 0.0
    for index in range(number):
        now += draw.expovariate(1 / 600)
        fewest = draw.randint(1, most_gpus)
        asked = draw.lognormvariate(7, 1)
        jobs.append(
            job(
                f"job-{index}",
                now,
                (fewest, draw.randint(fewest, most_gpus)),
                asked * draw.choice((1.0, 1.0, 0.3)),
                asked_sec=asked,
                group=draw.choice("abc"),
            )
        )
    return jobs
