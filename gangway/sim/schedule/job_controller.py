"""Jobs with wrong settings, unchanged or fixed by the trainer's controller, whose gain is a stated assumption."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gangway.components.estimate.scaling import Network
from gangway.sim.schedule.jobs import Ask, Curve, Job

__all__ = ["Gain", "Misfit", "Run", "controlled_job", "drawn", "submitted_job"]


@dataclass(frozen=True)
class Misfit:
    """Which jobs are off. `data_bound_share`: of jobs limited by data to `data_bound_speed` of their speed;
    `off_batch_share`: of jobs that train with `off_batch_size`, far from their noise scale.
    """

    data_bound_share: float = 0.0
    data_bound_speed: float = 1.0
    off_batch_share: float = 0.0
    off_batch_size: int = 1


@dataclass(frozen=True)
class Gain:
    """A controller's effect. `regained`: share of the loss, 0..1; `settle_sec`: training at the old speed until then;
    `overhead`: share of all training, also of jobs that were right from the start.
    """

    regained: float
    settle_sec: float
    overhead: float


@dataclass(frozen=True)
class Run:
    """A job and its settings. `speed`: of its data, 0..1 of its GPUs' speed; `batch_size`: None if right."""

    job: Job
    curve: Curve
    speed: float = 1.0
    batch_size: int | None = None

    def rate(self, gpus: int, network: Network) -> float:
        """Images per second, weighted by their worth at the curve's batch."""
        batch = self.batch_size or self.curve.batch_size
        return self.curve.speed(gpus, network, batch) * self.curve.efficiency(batch) * self.speed

    def best(self, gpus: int, network: Network) -> float:
        """The rate with right settings: of the best or the submitted batch (small batches may win on few GPUs)."""
        undisturbed = self.rate(gpus, network) / self.speed
        return undisturbed if self.batch_size is None else max(undisturbed, self.curve.goodput(gpus, network))


def drawn(jobs: Sequence[Job], curves: Sequence[Curve], misfit: Misfit, seed: int) -> Sequence[Run]:
    """Draw which jobs are off by seed and position only: the same ones for every policy."""
    draw, runs = random.Random(f"misfit {seed}"), []
    for job, curve in zip(jobs, curves, strict=True):
        slow, off = draw.random() < misfit.data_bound_share, draw.random() < misfit.off_batch_share
        speed = misfit.data_bound_speed if slow else 1.0
        runs.append(Run(job, curve, speed, misfit.off_batch_size if off else None))
    return runs


def submitted_job(run: Run, network: Network) -> Job:
    """The job as submitted. A batch-moving scheduler fixes the batch but not the data."""
    counts = _counts(run.job.ask)
    speeds = tuple(run.rate(gpus, network) for gpus in counts)
    goodputs = tuple(run.curve.goodput(gpus, network) * run.speed for gpus in counts)
    return replace(run.job, ask=replace(run.job.ask, speeds=speeds, goodputs=goodputs))


def controlled_job(run: Run, network: Network, gain: Gain) -> Job:
    """The job with its controller. Images lost on its fewest GPUs before the controller settles are added to its work
    once, since the settings survive restarts.
    """
    before, counts = submitted_job(run, network), _counts(run.job.ask)

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
