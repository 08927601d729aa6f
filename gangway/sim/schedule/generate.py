"""Jobs drawn from published statistics of a shared cluster, not a trace. Assumed: Poisson arrivals without days and
weeks; early ends depend on the user, so that there is something to learn.
"""

import math
import random
from collections.abc import Sequence

from gangway.components.catalog.reliability import TraceStatistics
from gangway.components.estimate.scaling import Network
from gangway.sim.schedule.jobs import Ask, Curve, Job

__all__ = ["USERS", "generate"]

USERS = 12
"""Jobs of every third user end early three times as often as the others'."""
LEAST_SHARE = 0.05
"""Minimum share of the requested work that a job does."""


def generate(
    statistics: TraceStatistics,
    curve: Curve,
    network: Network,
    *,
    number: int,
    num_gpus: int,
    load: float,
    elastic: int,
    seed: int,
) -> Sequence[Job]:
    """Draw `number` jobs for a cluster of `num_gpus`.

    Args:
        statistics: of lengths, widths and ends.
        curve: of every job.
        network: they train over.
        number: of jobs.
        num_gpus: of the cluster; wider jobs are cut to it.
        load: GPU-seconds of all jobs on their fewest GPUs, over those of the cluster during arrivals; above 0.
        elastic: most over fewest GPUs of a job; 1 for fixed.
        seed: of all draws.
    """
    draw = random.Random(f"jobs {seed}")
    sigma, mean_sec = statistics.log_spread.value, statistics.mean_sec.value
    widths, shares = zip(*statistics.gpus.value.items(), strict=True)
    chances = _chances(statistics.ended_early.value)
    drawn = []
    for _ in range(number):
        fewest, user = min(draw.choices(widths, shares)[0], num_gpus), draw.randrange(USERS)
        works_sec = draw.lognormvariate(math.log(mean_sec) - sigma**2 / 2, sigma)
        done = draw.uniform(LEAST_SHARE, 1) if draw.random() < chances[user] else 1.0
        drawn.append((fewest, user, works_sec, done))
    # Given their number, Poisson arrivals are uniform in time.
    until_sec = sum(fewest * works_sec for fewest, _, works_sec, _ in drawn) / (load * num_gpus)
    arrivals = sorted(draw.uniform(0, until_sec) for _ in drawn)
    jobs = []
    for index, (submit_sec, (fewest, user, works_sec, done)) in enumerate(zip(arrivals, drawn, strict=True)):
        images = works_sec * curve.speed(fewest, network)
        ask = Ask.on(
            network,
            curve,
            name=f"job-{index}",
            submit_sec=submit_sec,
            gpus=(fewest, min(fewest * elastic, num_gpus)),
            images=images / done,
            group=f"user-{user}",
        )
        jobs.append(Job(ask, images))
    return jobs


def _chances(mean: float) -> list[float]:
    """Each user's chance of early ends: a third of them three times the others', with the published mean."""
    often = min(1.0, 3 * mean / (1 + 2 / 3))
    rarely = (mean - often / 3) * 3 / 2
    return [often if user % 3 == 0 else rarely for user in range(USERS)]
