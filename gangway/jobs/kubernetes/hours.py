"""How long a job's pods ran, as far as Kueue and the cluster record it; pure. Pods limit themselves by a count that
only they can read (images/templates/job/hours.sh).

A workload is admitted since the last change of its `Admitted` condition, and all its pods run since that of
`PodsReady`: between the two it waits for nodes. Earlier periods are in its status as whole seconds, without dates, and
include that wait. So each JobSet is one interval here, with its earlier seconds just before the last period: exact if
the job was neither interrupted nor requeued, else too long by the time nodes took to come.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from gangway.jobs.base import RunInterval
from gangway.jobs.kubernetes.objects import (
    Found,
    JobObjects,
    any_condition,
    condition,
    find_time,
    get_file,
    get_hours_sec,
    get_restarts,
    get_start,
)

OVER_HOURS = "DeactivatedDueToMaximumExecutionTimeExceeded"
"""The reason of Kueue's eviction."""
_NOT_BEGUN = "WaitForStart"
"""Why a workload's pods are not ready: not all have started since it was last admitted."""
_AT_ONCE = timedelta(seconds=30)
"""Within this time of a workload's creation Kueue reports that its pods are missing."""


def get_run_intervals(seen: JobObjects) -> tuple[RunInterval, ...] | None:
    """Of all JobSets; None if one of them, or its workload, was deleted."""
    if get_start(seen.sets[0]) > 1:
        return None
    nodes, found = get_file(seen.last).nodes.max, list[RunInterval]()
    for each, workload in zip(seen.sets, (*seen.earlier, seen.workload), strict=True):
        known = _set_intervals(each, workload, nodes, seen.pods if each is seen.last else ())
        if known is None:
            return None
        found += known
    return tuple(found)


def remaining_sec(seen: JobObjects) -> int:
    """Unused seconds of a failed JobSet; 0 or less if they are used up. If Kueue's workload was deleted, the whole
    lifetime counts.
    """
    last, given = seen.last, get_hours_sec(seen.last)
    ended_at = _ended_at(last)
    assert ended_at is not None, "asked of one that has failed"
    known = _set_intervals(last, seen.workload, 1, seen.pods)
    if known is None:
        return given - round((ended_at - find_time(last["metadata"]["creationTimestamp"])).total_seconds())
    return given - round(sum(((each.end or ended_at) - each.start).total_seconds() for each in known))


def _set_intervals(
    job_set: Found, workload: Found | None, nodes: int, pods: Sequence[Found] = ()
) -> list[RunInterval] | None:
    """An empty list or one interval; None if unknown."""
    ended_at = _ended_at(job_set)
    if workload is None:
        # Suspended: Kueue has not seen it yet. Else an administrator may have Kueue delete ended workloads.
        return [] if ended_at is None and job_set["spec"].get("suspend") else None
    admitted = any_condition(workload, "Admitted")
    if admitted is None:
        return []
    at, sec = find_time(admitted["lastTransitionTime"]), _earlier_sec(job_set, workload)
    begun = _pods_began_at(job_set, workload, pods, at) if admitted["status"] == "True" else None
    if begun is not None:
        return [RunInterval(begun - sec, None if ended_at is None else max(begun, ended_at), nodes)]
    return [RunInterval(at - sec, at, nodes)] if sec else []


def _pods_began_at(job_set: Found, workload: Found, pods: Sequence[Found], admitted_at: datetime) -> datetime | None:
    """When the pods of an admitted workload started; None before that. Once some have ended Kueue does not say it any
    more, but the pods do, unless JobSet has restarted them: then it is the time of admission.
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
    """Before the last change of `Admitted`. After the hours are over Kueue counts only the last period."""
    found = timedelta(seconds=workload["status"].get("accumulatedPastExecutionTimeSeconds", 0))
    evicted = condition(workload, "Evicted")
    if evicted is not None and evicted["reason"] == OVER_HOURS and condition(workload, "Admitted") is None:
        found = max(found, timedelta(seconds=get_hours_sec(job_set)))
    ready = any_condition(workload, "PodsReady")
    if ready is None or ready["reason"] != _NOT_BEGUN:
        return found
    # No pod has run since then, whatever Kueue counted; without any pods ever, since its creation.
    since, ended = find_time(ready["lastTransitionTime"]), any_condition(workload, "Evicted")
    until = since - find_time(workload["metadata"]["creationTimestamp"])
    ran = until > _AT_ONCE or (ended is not None and since >= find_time(ended["lastTransitionTime"]))
    return min(found, until) if ran else timedelta()


def _ended_at(job_set: Found) -> datetime | None:
    ends = [found for kind in ("Completed", "Failed") if (found := condition(job_set, kind)) is not None]
    return find_time(ends[0]["lastTransitionTime"]) if ends else None
