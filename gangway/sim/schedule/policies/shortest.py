"""Shortest predicted remaining time first, by requests; running jobs yield to much shorter ones."""

from collections.abc import Callable, Sequence

from gangway.sim.schedule.policy import Grants, JobView, Policy, View

__all__ = ["Shortest", "grant_in_order"]

STAYS = 0.5
"""Factor on a running job's time: moving it for less would cost more restarts than it saves."""


class Shortest(Policy):
    """A trainer knows its images, so the remaining time is as reliable as the request. Long jobs may wait forever."""

    name = "shortest"
    says = "shortest remaining time first, as asked for; a running job gives way to one of less than half"

    def decide(self, view: View) -> Grants:
        """GPUs by remaining time."""
        return grant_in_order(view, lambda job: job.images_left / job.ask.rate(job.ask.gpus_min))


def grant_in_order(view: View, key_sec: Callable[[JobView], float], first: Sequence[JobView] = ()) -> Grants:
    """GPUs for `first`, then by ascending key; jobs that do not fit are skipped. `first` is never overtaken."""

    def key(job: JobView) -> float:
        return max(0.0, key_sec(job) - view.pause_sec) * STAYS if job.gpus else key_sec(job)

    grants: Grants = {}
    free, held_up = view.gpus, False
    names = {job.ask.name for job in first}
    rest = sorted(
        (job for job in view.jobs if job.ask.name not in names), key=lambda job: (key(job), job.ask.submit_sec)
    )
    for job in (*first, *rest):
        if held_up and not job.gpus:
            continue
        gpus = job.gpus if 0 < job.gpus <= free else job.ask.best(free)
        if gpus:
            grants[job.ask.name] = gpus
            free -= gpus
        elif job.ask.name in names:
            held_up = True
    return grants
