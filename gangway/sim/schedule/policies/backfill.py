"""EASY backfill (Lifka, JSSPP 1995): the first in the queue has a reservation; others may overtake it if that holds."""

import math
from collections.abc import Mapping

from gangway.sim.schedule.policy import Grants, JobView, Policy, View, start_in_order

__all__ = ["Backfill"]


class Backfill(Policy):
    """FIFO with the gaps filled, by requested lengths: the reservation holds unless jobs run longer or nodes go."""

    name = "backfill"
    says = "EASY: first come, first served; later jobs fill gaps where the first in the queue is not delayed"

    def decide(self, view: View) -> Grants:
        """Start from the front, reserve for the first that does not fit, and fill."""
        grants = view.running()
        waiting = view.waiting()
        first = start_in_order(grants, view, waiting)
        if first is None:
            return grants
        start_sec, spare = _reservation(grants, view, first)
        for job in waiting[waiting.index(first) + 1 :]:
            free = view.gpus - sum(grants.values())
            fitting = dict.fromkeys((job.ask.best(free), job.ask.best(min(free, spare))))
            for gpus in filter(None, fitting):
                ends_in_time = view.now_sec + job.length_sec(gpus) <= start_sec
                if ends_in_time or gpus <= spare:
                    grants[job.ask.name] = gpus
                    spare -= 0 if ends_in_time else gpus
                    break
        return grants


def _reservation(grants: Mapping[str, int], view: View, first: JobView) -> tuple[float, int]:
    """When the first in the queue gets its fewest GPUs, and the spare GPUs then; never if there are too few."""
    free = view.gpus - sum(grants.values())
    having = [job for job in view.jobs if job.ask.name in grants]
    ends = sorted((view.now_sec + job.length_sec(gpus := grants[job.ask.name]), gpus) for job in having)
    for end_sec, gpus in ends:
        free += gpus
        if free >= first.ask.gpus_min:
            return end_sec, free - first.ask.gpus_min
    return math.inf, 0
