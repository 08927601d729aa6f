"""How long a job's pods ran, of what Kueue and the cluster know of it; pure. Pods end themselves by a count of their
own, which nobody but they can read (images/templates/job/hours.sh).

A workload is admitted from its `Admitted` condition's last change on, and its pods all run from that of `PodsReady` on:
between the two it waits for nodes that have to come. What it had before stands in its status as whole seconds, without
a day, and with that wait. So each JobSet is one stretch here, its earlier seconds just before the last: of the right
length where the job was neither interrupted nor put back into the queue, else longer by what nodes took to come.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from gangway.jobs.base import Stretch
from gangway.jobs.kubernetes.objects import (
    Found,
    Seen,
    any_condition,
    condition,
    find_time,
    get_file,
    get_hours_sec,
    get_restarts,
    get_start,
)

OVER_HOURS = "DeactivatedDueToMaximumExecutionTimeExceeded"
"""Why Kueue has evicted a workload."""
_NOT_BEGUN = "WaitForStart"
"""Why a workload's pods are not ready: they are not all there, since it was admitted last."""
_AT_ONCE = timedelta(seconds=30)
"""Within which of a workload's beginning Kueue says that its pods are not there."""


def get_run_intervals(seen: Seen) -> tuple[Stretch, ...] | None:
    """Of all JobSets; None where one of them, or its workload, is gone."""
    if get_start(seen.sets[0]) > 1:
        return None
    nodes, found = get_file(seen.last).nodes.max, list[Stretch]()
    for each, workload in zip(seen.sets, (*seen.earlier, seen.workload), strict=True):
        known = _stretch(each, workload, nodes, seen.pods if each is seen.last else ())
        if known is None:
            return None
        found += known
    return tuple(found)


def left_sec(seen: Seen) -> int:
    """What a JobSet that has failed has not used of its seconds; 0 and less where they are over. Where Kueue's workload
    is gone, all of its life counts.
    """
    last, given = seen.last, get_hours_sec(seen.last)
    ended_at = _ended_at(last)
    assert ended_at is not None, "asked of one that has failed"
    known = _stretch(last, seen.workload, 1, seen.pods)
    if known is None:
        return given - round((ended_at - find_time(last["metadata"]["creationTimestamp"])).total_seconds())
    return given - round(sum(((each.end or ended_at) - each.start).total_seconds() for each in known))


def _stretch(job_set: Found, workload: Found | None, nodes: int, pods: Sequence[Found] = ()) -> list[Stretch] | None:
    """None or one; None instead of a list where nobody knows."""
    ended_at = _ended_at(job_set)
    if workload is None:
        # One that Kueue has not seen has never begun; an administrator may have it forget those that are over.
        return [] if ended_at is None and job_set["spec"].get("suspend") else None
    admitted = any_condition(workload, "Admitted")
    if admitted is None:
        return []
    at, sec = find_time(admitted["lastTransitionTime"]), _earlier_sec(job_set, workload)
    begun = _begun(job_set, workload, pods, at) if admitted["status"] == "True" else None
    if begun is not None:
        return [Stretch(begun - sec, None if ended_at is None else max(begun, ended_at), nodes)]
    return [Stretch(at - sec, at, nodes)] if sec else []


def _begun(job_set: Found, workload: Found, pods: Sequence[Found], admitted_at: datetime) -> datetime | None:
    """When the pods of one that is admitted began to run; None before that. Once some have ended Kueue does not say it
    any more, but the pods do, unless JobSet has begun it again since: then it is from when it was admitted.
    """
    ready, runs_yet = any_condition(workload, "PodsReady"), _ended_at(job_set) is None
    if ready is not None and ready["reason"] == "Started":
        return max(admitted_at, find_time(ready["lastTransitionTime"]))
    if ready is not None and ready["reason"] == _NOT_BEGUN and runs_yet:
        return None
    if get_restarts(job_set):
        return admitted_at
    times = [find_time(each["status"]["startTime"]) for each in pods if each["status"].get("startTime")]
    if pods and not times and runs_yet:
        return None
    return max(admitted_at, min(times, default=admitted_at))


def _earlier_sec(job_set: Found, workload: Found) -> timedelta:
    """Before the last change of `Admitted`. Of one that is over its hours Kueue counts the last stretch alone."""
    found = timedelta(seconds=workload["status"].get("accumulatedPastExecutionTimeSeconds", 0))
    evicted = condition(workload, "Evicted")
    if evicted is not None and evicted["reason"] == OVER_HOURS and condition(workload, "Admitted") is None:
        found = max(found, timedelta(seconds=get_hours_sec(job_set)))
    ready = any_condition(workload, "PodsReady")
    if ready is None or ready["reason"] != _NOT_BEGUN:
        return found
    # Since then no pod has run, whatever Kueue has counted. Of one that never had any that is from its beginning on.
    since, ended = find_time(ready["lastTransitionTime"]), any_condition(workload, "Evicted")
    until = since - find_time(workload["metadata"]["creationTimestamp"])
    ran = until > _AT_ONCE or (ended is not None and since >= find_time(ended["lastTransitionTime"]))
    return min(found, until) if ran else timedelta()


def _ended_at(job_set: Found) -> datetime | None:
    ends = [found for kind in ("Completed", "Failed") if (found := condition(job_set, kind)) is not None]
    return find_time(ends[0]["lastTransitionTime"]) if ends else None
