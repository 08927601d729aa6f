"""How long a job was on nodes, by the clock that Kueue ends it by; pure.

A workload is admitted from its `Admitted` condition's last change on; what it had before stands in its status as whole
seconds, without a day. So each JobSet is one stretch here, its earlier seconds just before the last: the sum is right,
and the day of a job that Kueue had put back into the queue is later than it was.
"""

from datetime import datetime, timedelta

from stacks.engines.base import Stretch
from stacks.engines.kubernetes.objects import (
    Found,
    Seen,
    any_condition,
    condition,
    file_of,
    hours_sec_of,
    start_of,
    time_of,
)

OVER_HOURS = "DeactivatedDueToMaximumExecutionTimeExceeded"
"""Why Kueue has evicted a workload."""


def stretches_of(seen: Seen) -> tuple[Stretch, ...] | None:
    """Of all JobSets; None where one of them, or its workload, is gone."""
    if start_of(seen.sets[0]) > 1:
        return None
    nodes, found = file_of(seen.last).nodes.max, list[Stretch]()
    for each, workload in zip(seen.sets, (*seen.earlier, seen.workload), strict=True):
        known = _stretch(each, workload, nodes)
        if known is None:
            return None
        found += known
    return tuple(found)


def left_sec(seen: Seen) -> int:
    """What a JobSet that has failed has not used of its seconds; 0 and less where they are over. Where Kueue's workload
    is gone, all of its life counts.
    """
    last, given = seen.last, hours_sec_of(seen.last)
    ended_at = _ended_at(last)
    assert ended_at is not None, "asked of one that has failed"
    known = _stretch(last, seen.workload, 1)
    if known is None:
        return given - round((ended_at - time_of(last["metadata"]["creationTimestamp"])).total_seconds())
    return given - round(sum(((each.end or ended_at) - each.start).total_seconds() for each in known))


def _stretch(job_set: Found, workload: Found | None, nodes: int) -> list[Stretch] | None:
    """None or one; None instead of a list where nobody knows."""
    ended_at = _ended_at(job_set)
    if workload is None:
        # One that Kueue has not seen has never begun; an administrator may have it forget those that are over.
        return [] if ended_at is None and job_set["spec"].get("suspend") else None
    admitted = any_condition(workload, "Admitted")
    if admitted is None:
        return []
    at, sec = time_of(admitted["lastTransitionTime"]), _earlier_sec(job_set, workload)
    if admitted["status"] == "True":
        return [Stretch(at - sec, None if ended_at is None else max(at, ended_at), nodes)]
    return [Stretch(at - sec, at, nodes)] if sec else []


def _earlier_sec(job_set: Found, workload: Found) -> timedelta:
    """Before the last change of `Admitted`. Of one that is over its hours Kueue counts the last stretch alone."""
    sec = workload["status"].get("accumulatedPastExecutionTimeSeconds", 0)
    evicted = condition(workload, "Evicted")
    if evicted is not None and evicted["reason"] == OVER_HOURS and condition(workload, "Admitted") is None:
        sec = max(sec, hours_sec_of(job_set))
    return timedelta(seconds=sec)


def _ended_at(job_set: Found) -> datetime | None:
    ends = [found for kind in ("Completed", "Failed") if (found := condition(job_set, kind)) is not None]
    return time_of(ends[0]["lastTransitionTime"]) if ends else None
