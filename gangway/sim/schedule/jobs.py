"""Jobs of a simulation: given or drawn from published statistics, with right or wrong settings."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from gangway.components.catalog.machine_facts import TraceStatistics
from gangway.components.core.fields import Amount, PositiveNumber, PositiveWhole
from gangway.components.estimate.scaling import Network, StepModel, step_sec
from gangway.stacks.config.section import Section


@dataclass(frozen=True)
class Curve:
    """How fast a job trains.

    Attributes:
        batch_max: limit for policies that move batches.
        noise_batch: the gradient-noise scale (critical batch), above which images are worth less; None if not measured:
            the batch stays.
        serial_share: of a step's compute that more workers do not shorten, 0..1.
    """

    images_per_sec: float
    batch_size: int = 64
    batch_max: int = 64
    noise_batch: float | None = None
    gradient_bytes: float = 0.0
    serial_share: float = 0.0

    def speed(self, gpus: int, network: Network, batch_size: int | None = None) -> float:
        """Images per second on so many GPUs at that batch; the submitted one by default."""
        batch = batch_size or self.batch_size
        step = StepModel(batch / self.images_per_sec, self.gradient_bytes, self.serial_share)
        return batch / step_sec(step, network, gpus, "strong")

    def efficiency(self, batch_size: int) -> float:
        """Worth of an image at that batch relative to the submitted batch: Pollux (OSDI 21), equation 6."""
        if self.noise_batch is None:
            return self.batch_size / batch_size
        return (self.noise_batch + self.batch_size) / (self.noise_batch + batch_size)

    def goodput(self, gpus: int, network: Network) -> float:
        """Images per second at the best batch, weighted by worth; batches double from the first."""
        batches = [self.batch_size]
        while batches[-1] * 2 <= self.batch_max:
            batches.append(batches[-1] * 2)
        return max(self.speed(gpus, network, batch) * self.efficiency(batch) for batch in batches)


@dataclass(frozen=True)
class Ask:
    """What the scheduler knows of a job. `images`: requested, never exceeded; `speeds`: images per second on gpus_min,
    ... gpus_max GPUs; `goodputs`: at the best batch, in images of the submitted one.
    """

    name: str
    submit_sec: float
    gpus_min: int
    gpus_max: int
    images: float
    speeds: tuple[float, ...]
    goodputs: tuple[float, ...]
    group: str = ""
    deadline_sec: float | None = None

    @classmethod
    def on(
        cls,
        network: Network,
        curve: Curve,
        *,
        name: str,
        submit_sec: float,
        gpus: tuple[int, int],
        images: float,
        group: str = "",
        deadline_sec: float | None = None,
    ) -> "Ask":
        """A job of that curve on that network; `gpus`: fewest and most."""
        counts = range(gpus[0], gpus[1] + 1)
        return cls(
            name,
            submit_sec,
            *gpus,
            images,
            tuple(curve.speed(count, network) for count in counts),
            tuple(curve.goodput(count, network) for count in counts),
            group,
            deadline_sec,
        )

    def rate(self, gpus: int, *, moves_batch: bool = False) -> float:
        """Images per second on so many GPUs, with the submitted batch or the best one."""
        return (self.goodputs if moves_batch else self.speeds)[gpus - self.gpus_min]

    def best(self, free: int) -> int:
        """The fastest allowed number of free GPUs, the fewest if equal; 0 if it cannot run."""
        maximum = min(self.gpus_max, free)
        if maximum < self.gpus_min:
            return 0
        return max(range(self.gpus_min, maximum + 1), key=lambda count: (self.rate(count), -count))


@dataclass(frozen=True)
class Job:
    """A job as it turns out. `images`: when it ends, fails or is stopped; above 0 and at most what it requested."""

    ask: Ask
    images: float


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
    """Draw `number` jobs. `load`: GPU-seconds of all jobs over the cluster's during arrivals; `elastic`: most over
    fewest.
    """
    draw = random.Random(f"jobs {seed}")
    sigma, mean_sec = statistics.log_spread.value, statistics.mean_sec.value
    widths, shares = zip(*statistics.gpus.value.items(), strict=True)
    # Each user's chance of early ends: a third of them three times the others', with the published mean.
    mean = statistics.ended_early.value
    often = min(1.0, 3 * mean / (1 + 2 / 3))
    rarely = (mean - often / 3) * 3 / 2
    drawn = []
    for _ in range(number):
        fewest, user = min(draw.choices(widths, shares)[0], num_gpus), draw.randrange(USERS)
        works_sec = draw.lognormvariate(math.log(mean_sec) - sigma**2 / 2, sigma)
        done = draw.uniform(LEAST_SHARE, 1) if draw.random() < (often if user % 3 == 0 else rarely) else 1.0
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


class ControllerConfig(Section):
    """Jobs with poor settings, with and without a controller.

    Attributes:
        data_bound_share: share of jobs limited by data loading.
        data_bound_speed: their share of the full speed.
        off_batch_share: share of jobs with a poor batch size.
        off_batch_size: that batch size.
        regained: share of the loss that a controller regains.
        settle_sec: time before it has an effect.
        overhead: share by which a controller slows every job.
    """

    data_bound_share: Annotated[Amount, Field(le=1)] = 0.0
    data_bound_speed: Annotated[PositiveNumber, Field(le=1)] = 0.5
    off_batch_share: Annotated[Amount, Field(le=1)] = 0.0
    off_batch_size: PositiveWhole = 4096
    regained: Annotated[Amount, Field(le=1)] = 0.8
    settle_sec: Amount = 600.0
    overhead: Annotated[Amount, Field(lt=1)] = 0.01

    def in_words(self) -> str:
        """The assumptions as text."""
        return (
            f"assumed: {self.data_bound_share:.0%} of the jobs run at {self.data_bound_speed:.0%} of their speed for "
            f"want of data, {self.off_batch_share:.0%} with a batch of {self.off_batch_size}; fixed leaves that, "
            f"resource aware regains {self.regained:.0%} of what is lost, {self.settle_sec:g} s of training after the "
            f"start and for good, and slows every job by {self.overhead:.1%}"
        )


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


def drawn(jobs: Sequence[Job], curves: Sequence[Curve], controller: ControllerConfig, seed: int) -> Sequence[Run]:
    """Draw which jobs are off by seed and position only: the same ones for every policy."""
    draw, runs = random.Random(f"misfit {seed}"), []
    for job, curve in zip(jobs, curves, strict=True):
        slow, off = draw.random() < controller.data_bound_share, draw.random() < controller.off_batch_share
        speed = controller.data_bound_speed if slow else 1.0
        runs.append(Run(job, curve, speed, controller.off_batch_size if off else None))
    return runs


def submitted_job(run: Run, network: Network) -> Job:
    """The job as submitted. A batch-moving scheduler fixes the batch but not the data."""
    counts = _counts(run.job.ask)
    speeds = tuple(run.rate(gpus, network) for gpus in counts)
    goodputs = tuple(run.curve.goodput(gpus, network) * run.speed for gpus in counts)
    return replace(run.job, ask=replace(run.job.ask, speeds=speeds, goodputs=goodputs))


def controlled_job(run: Run, network: Network, controller: ControllerConfig) -> Job:
    """The job with its controller; images lost before it settles are added to its work once."""
    before, counts = submitted_job(run, network), _counts(run.job.ask)

    def mended(was: float, best: float) -> float:
        return (was + controller.regained * max(0.0, best - was)) * (1 - controller.overhead)

    speeds = tuple(
        mended(was, run.best(gpus, network)) for gpus, was in zip(counts, before.ask.speeds, strict=True)
    )  # fmt: skip
    goodputs = tuple(mended(was, was / run.speed) for was in before.ask.goodputs)
    was, now = before.ask.speeds[0], speeds[0]

    def work(images: float) -> float:
        return images + max(0.0, min(controller.settle_sec * (now - was), images * (now / was - 1)))

    ask = replace(run.job.ask, images=work(run.job.ask.images), speeds=speeds, goodputs=goodputs)
    return Job(ask, work(run.job.images))


def _counts(ask: Ask) -> range:
    return range(ask.gpus_min, ask.gpus_max + 1)
