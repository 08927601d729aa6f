"""Jobs: what the scheduler knows (`Ask`), what happens (`Job`), and speed by GPUs
(`gangway.components.estimate.scaling`)."""

from collections.abc import Sequence
from dataclasses import dataclass

from gangway.components.estimate.scaling import Network, StepModel, step_sec

__all__ = ["Ask", "Curve", "Job", "perfect"]


@dataclass(frozen=True)
class Curve:
    """How fast a job trains.

    Attributes:
        images_per_sec: of one GPU.
        batch_size: global, as submitted.
        batch_max: limit for policies that move batches.
        noise_batch: the gradient-noise scale (critical batch), above which images are worth less; None if not measured:
            the batch stays.
        gradient_bytes: averaged by all workers per step.
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
    """What the scheduler knows of a job.

    Attributes:
        submit_sec: from the trace's start.
        images: requested; it never trains on more.
        speeds: images per second on gpus_min, gpus_min + 1, ... gpus_max GPUs.
        goodputs: the same at the best batch, in images of the submitted one.
        group: its user or kind, for learning across jobs.
        deadline_sec: from the trace's start; None for none.
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


def perfect(rates: Sequence[int], images_per_sec: float) -> tuple[float, ...]:
    """Speeds under perfect scaling, per number of GPUs."""
    return tuple(count * images_per_sec for count in rates)
