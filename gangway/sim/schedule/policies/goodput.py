"""Elastic sharing by goodput, after Pollux (OSDI 21): throughput times statistical efficiency. Instead of Pollux's
genetic search, each GPU goes to the job that gains most; jobs with the least service come first (Tiresias).
"""

import heapq
import math

from gangway.sim.schedule.policy import Grants, JobView, Policy, View

__all__ = ["Goodput"]

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
        """The current GPUs if more do not pay for the restart."""
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
