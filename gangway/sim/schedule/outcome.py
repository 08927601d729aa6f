"""The result of a simulation: job histories, GPU spans, sums, and the figures from them."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gangway.sim.schedule.jobs import Ask

__all__ = ["Ended", "Figures", "Outcome", "Span", "get_figures", "percentile"]


@dataclass(frozen=True)
class Span:
    """A job's GPUs over a period; GPUs are numbered through the nodes."""

    job: str
    slots: tuple[int, ...]
    from_sec: float
    to_sec: float


@dataclass(frozen=True)
class Ended:
    """A finished job. `moves`: stops or changes of GPUs by the policy; `kept_gpu_sec`: of training that counted;
    `lost_gpu_sec`: starts, saves, and repeated training.
    """

    ask: Ask
    first_sec: float
    end_sec: float
    interruptions: int
    moves: int
    kept_gpu_sec: float
    lost_gpu_sec: float


@dataclass(frozen=True)
class Outcome:
    """One policy's simulation, summed until the last job ends. `there`: available GPUs from each second on."""

    policy: str
    num_gpus: int
    jobs: Sequence[Ended]
    spans: Sequence[Span]
    there: Sequence[tuple[float, int]]
    paid_gpu_sec: float
    idle_gpu_sec: float
    usd: float | None
    kwh: float | None
    gco2e: float | None


@dataclass(frozen=True)
class Figures:
    """Times in hours, from submission; shares are of the paid GPU-hours; None without a price or power."""

    makespan_hours: float
    job_hours_mean: float
    job_hours_p95: float
    wait_hours_mean: float
    usd: float | None
    kwh: float | None
    gco2e: float | None
    gpu_hours: float
    used_share: float
    idle_share: float
    lost_share: float
    interruptions: int
    moves: int
    late: int

    def to_json(self) -> dict[str, Any]:
        """As JSON data."""
        return asdict(self)


def get_figures(outcome: Outcome) -> Figures:
    """Compute the figures of at least one job."""
    jobs = outcome.jobs
    hours = sorted((job.end_sec - job.ask.submit_sec) / 3600 for job in jobs)
    waits = [(job.first_sec - job.ask.submit_sec) / 3600 for job in jobs]
    paid = outcome.paid_gpu_sec
    return Figures(
        makespan_hours=(max(job.end_sec for job in jobs) - min(job.ask.submit_sec for job in jobs)) / 3600,
        job_hours_mean=math.fsum(hours) / len(hours),
        job_hours_p95=percentile(hours, 0.95),
        wait_hours_mean=math.fsum(waits) / len(waits),
        usd=outcome.usd,
        kwh=outcome.kwh,
        gco2e=outcome.gco2e,
        gpu_hours=paid / 3600,
        used_share=math.fsum(job.kept_gpu_sec for job in jobs) / paid,
        idle_share=outcome.idle_gpu_sec / paid,
        lost_share=math.fsum(job.lost_gpu_sec for job in jobs) / paid,
        interruptions=sum(job.interruptions for job in jobs),
        moves=sum(job.moves for job in jobs),
        late=sum(job.ask.deadline_sec is not None and job.end_sec > job.ask.deadline_sec for job in jobs),
    )


def percentile(ascending: Sequence[float], share: float) -> float:
    """Linear interpolation, NumPy's default.

    >>> percentile([1.0, 2.0, 3.0], 0.75)
    2.5
    """
    place = share * (len(ascending) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ascending) - 1)
    return ascending[low] + (place - low) * (ascending[high] - ascending[low])
