"""Jobs whose settings are off from the start, left as they are or mended while they train by a controller of their own:
a model of what the trainer's controller gains, by which two clusters of such jobs are compared. Simulated: what it
regains is assumed, and said with every result.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from components.estimate.scaling import Network
from gangway.sim.schedule.jobs import Ask, Curve, Job

__all__ = ["Gain", "Misfit", "Run", "as_controlled", "as_fixed", "drawn"]


@dataclass(frozen=True)
class Misfit:
    """Which jobs are off. `data_bound_share`: of jobs that wait for their data, and so run at `data_bound_speed` of
    their speed; `off_batch_share`: of jobs that train with `off_batch_size`, far from their noise scale.
    """

    data_bound_share: float = 0.0
    data_bound_speed: float = 1.0
    off_batch_share: float = 0.0
    off_batch_size: int = 1


@dataclass(frozen=True)
class Gain:
    """What a controller makes of it. `regained`: of what is lost, 0..1; `settle_sec`: of training until it has found
    that, at the speed before; `overhead`: of all training, also of jobs that were right from the start.
    """

    regained: float
    settle_sec: float
    overhead: float


@dataclass(frozen=True)
class Run:
    """A job and how it trains. `speed`: of its data, 0..1 of what its GPUs could do; `batch_size`: None where it is
    right.
    """

    job: Job
    curve: Curve
    speed: float = 1.0
    batch_size: int | None = None

    def rate(self, gpus: int, network: Network) -> float:
        """Images a second, each counted as what it is worth at the curve's batch."""
        batch = self.batch_size or self.curve.batch_size
        return self.curve.speed(gpus, network, batch) * self.curve.efficiency(batch) * self.speed

    def best(self, gpus: int, network: Network) -> float:
        """The same with nothing off: the best batch where it was another, which a small one may be on few GPUs, and as
        submitted where not.
        """
        undisturbed = self.rate(gpus, network) / self.speed
        return undisturbed if self.batch_size is None else max(undisturbed, self.curve.goodput(gpus, network))


def drawn(jobs: Sequence[Job], curves: Sequence[Curve], misfit: Misfit, seed: int) -> Sequence[Run]:
    """Which of the jobs are off, by seed and place in the list alone: whoever runs them, the same ones are."""
    draw, runs = random.Random(f"misfit {seed}"), []
    for job, curve in zip(jobs, curves, strict=True):
        slow, off = draw.random() < misfit.data_bound_share, draw.random() < misfit.off_batch_share
        speed = misfit.data_bound_speed if slow else 1.0
        runs.append(Run(job, curve, speed, misfit.off_batch_size if off else None))
    return runs


def as_fixed(run: Run, network: Network) -> Job:
    """As it was submitted. A scheduler that moves batches mends the batch, and not the data."""
    counts = _counts(run.job.ask)
    speeds = tuple(run.rate(gpus, network) for gpus in counts)
    goodputs = tuple(run.curve.goodput(gpus, network) * run.speed for gpus in counts)
    return replace(run.job, ask=replace(run.job.ask, speeds=speeds, goodputs=goodputs))


def as_controlled(run: Run, network: Network, gain: Gain) -> Job:
    """With its controller. Until that has settled the job is as fast as before: the images that this loses, on its
    fewest GPUs, are added to its work, once, since what was found survives a restart.
    """
    before, counts = as_fixed(run, network), _counts(run.job.ask)

    def mended(was: float, best: float) -> float:
        return (was + gain.regained * max(0.0, best - was)) * (1 - gain.overhead)

    speeds = tuple(
        mended(was, run.best(gpus, network)) for gpus, was in zip(counts, before.ask.speeds, strict=True)
    )  # fmt: skip
    goodputs = tuple(mended(was, was / run.speed) for was in before.ask.goodputs)
    was, now = before.ask.speeds[0], speeds[0]

    def work(images: float) -> float:
        return images + max(0.0, min(gain.settle_sec * (now - was), images * (now / was - 1)))

    ask = replace(run.job.ask, images=work(run.job.ask.images), speeds=speeds, goodputs=goodputs)
    return Job(ask, work(run.job.images))


def _counts(ask: Ask) -> range:
    return range(ask.gpus_min, ask.gpus_max + 1)
