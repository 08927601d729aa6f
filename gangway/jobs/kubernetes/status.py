"""A job's status from the cluster's objects, and how long its pods ran, as far as Kueue and the cluster record it;
pure. Pods limit themselves by a count that only they can read (images/templates/job/hours.sh).

A workload is admitted since the last change of its `Admitted` condition, and all its pods run since that of
`PodsReady`: between the two it waits for nodes. Earlier periods are in its status as whole seconds, without dates, and
include that wait. So each JobSet is one interval here, with its earlier seconds just before the last period: exact if
the job was neither interrupted nor requeued, else too long by the time nodes took to come.
"""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta

from gangway.jobs.base import JobStatus, Phase, RunInterval, after, restart_limit, restart_limit_reason
from gangway.jobs.kubernetes import objects
from gangway.jobs.kubernetes.kubectl import Found
from gangway.jobs.kubernetes.manifests import CANCELLED_ANNOTATION, USER_ANNOTATION
from gangway.stacks.config.job_file import JobFile
from gangway.trainer.core.errors import EXIT_ENDED_FOR_ALL, EXIT_UNFIT

_CODE = re.compile(r"pod [^ /]*/([^ ]+) failed with exit code ([0-9]+) ")
OVER_HOURS = "DeactivatedDueToMaximumExecutionTimeExceeded"
"""The reason of Kueue's eviction."""
_NOT_BEGUN = "WaitForStart"
"""Why a workload's pods are not ready: not all have started since it was last admitted."""
_AT_ONCE = timedelta(seconds=30)
"""Within this time of a workload's creation Kueue reports that its pods are missing."""


def unfit_nodes(seen: objects.JobObjects) -> list[str]:
    """Nodes that a command reported as unfit."""
    failed = {name for name, code in _pod_exits(seen) if code == EXIT_UNFIT}
    return [each["spec"]["nodeName"] for each in seen.pods if each["metadata"]["name"] in failed]


def cancelled_at(seen: objects.JobObjects) -> datetime | None:
    """When the user cancelled the job; None if not. Checks all sets: the last one may have been made at that moment."""
    notes = [objects.get_annotations(each) for each in seen.sets]
    return min(
        (objects.find_time(each[CANCELLED_ANNOTATION]) for each in notes if CANCELLED_ANNOTATION in each), default=None
    )


def get_status(seen: objects.JobObjects, other_places: int | None) -> JobStatus:
    """`other_places`: pods that fit on nodes other than unfit ones; None if unknown. UnreadableError: as `get_file`."""
    last, job = seen.last, objects.get_file(seen.last)
    phase, code, reason, ended_at = _find_end(seen, job, other_places) or (*_current_phase(seen), None)
    stretches = get_run_intervals(seen)
    return JobStatus(
        id=objects.get_job_id(last),
        name=job.name,
        user=objects.get_annotations(last).get(USER_ANNOTATION, ""),
        team=job.team or "",
        phase=phase,
        nodes=tuple(each["spec"]["nodeName"] for each in seen.pods if each["spec"].get("nodeName")),
        starts=_count_starts(seen),
        exit_code=code,
        reason=reason,
        submitted_at=objects.find_time(seen.sets[0]["metadata"]["creationTimestamp"]),
        started_at=stretches[0].start if stretches else _started_at(seen),
        ended_at=ended_at,
        stretches=stretches,
        most_nodes=job.nodes.max,
        max_hours=job.max_hours,
    )


_End = tuple[Phase, int | None, str, datetime | None]


def _find_end(seen: objects.JobObjects, job: JobFile, other_places: int | None) -> _End | None:
    if (done := objects.condition(seen.last, "Completed")) is not None:
        return Phase.DONE, 0, "", objects.find_time(done["lastTransitionTime"])
    cancelled = cancelled_at(seen)
    has_left = _is_inactive(seen) and not seen.live and not _is_admitted(seen)
    failed = objects.condition(seen.last, "Failed")
    if cancelled is not None and (failed is not None or has_left):
        return Phase.CANCELLED, None, "cancelled", cancelled
    evicted = None if seen.workload is None else objects.condition(seen.workload, "Evicted")
    if evicted is not None and evicted["reason"] == OVER_HOURS and has_left:
        at = objects.find_time(evicted["lastTransitionTime"])
        if get_run_intervals(seen) == ():
            return Phase.FAILED, None, "its pods never ran: nodes did not come in time, or could not pull the image", at
        return Phase.OVER_HOURS, None, "its hours are over", at
    if failed is None:
        return None
    return _failed(seen, job, other_places, failed)


def _failed(seen: objects.JobObjects, job: JobFile, other_places: int | None, failed: Found) -> _End | None:
    at = objects.find_time(failed["lastTransitionTime"])
    codes = [code for _, code in _pod_exits(seen)]
    if not codes:
        return Phase.FAILED, None, failed.get("message", ""), at
    if codes[0] == EXIT_ENDED_FOR_ALL and objects.get_restarts(seen.last) > restart_limit(job):
        return Phase.FAILED, codes[0], restart_limit_reason(job), at
    enough = other_places is None or other_places >= job.nodes.max
    then = after(codes[0], job.max_restarts, job.max_restarts, other_nodes=enough)
    if then.phase is None:
        assert codes[0] == EXIT_UNFIT, "other codes that restart do not end a JobSet"
        return (Phase.OVER_HOURS, codes[0], "its hours are over", at) if remaining_sec(seen) <= 0 else None
    return then.phase, codes[0], then.reason, at


def _current_phase(seen: objects.JobObjects) -> tuple[Phase, int | None, str]:
    if nodes := unfit_nodes(seen):
        return Phase.WAITING, None, f"{', '.join(nodes)} is unfit; `gangway job wait` restarts the job without it"
    workload = seen.workload
    if workload is None:
        return Phase.WAITING, None, "Kueue has no workload for it yet"
    if _is_at_work(seen):
        waiting = [each["metadata"]["name"] for each in seen.pods if each["status"].get("phase") == "Pending"]
        return Phase.RUNNING, None, f"not started yet: {', '.join(waiting)}" if waiting else ""
    if _is_inactive(seen):
        return Phase.WAITING, None, "its workload in Kueue was deactivated"
    waits = objects.condition(workload, "QuotaReserved", status="False")
    return Phase.WAITING, None, waits.get("message", "") if waits else "in the queue"


def lost_starts(seen: objects.JobObjects) -> tuple[int, int]:
    """How many starts lost their logs with their pods, and of how many. Pods of an earlier JobSet stay with it."""
    over = _ended_at(seen.last) is not None
    last_is_there = any(each["status"].get("containerStatuses") for each in seen.pods)
    kept = len(seen.sets) - 1 + (last_is_there or (not over and _is_at_work(seen)))
    starts = _count_starts(seen)
    return max(0, starts - kept), starts


def _count_starts(seen: objects.JobObjects) -> int:
    """Over all JobSets; each requeue by Kueue counts as another start."""
    restarts = sum(map(objects.get_restarts, seen.sets))
    workloads = [each for each in (*seen.earlier, seen.workload) if each is not None]
    stats = [each.get("status", {}).get("schedulingStats", {}).get("evictions", ()) for each in workloads]
    evictions: int = sum(each["count"] for some in stats for each in some if each["reason"][:11] != "Deactivated")
    began = bool(restarts or any(each["status"].get("startTime") for each in seen.jobs))
    began = began or (seen.workload is not None and objects.any_condition(seen.workload, "Admitted") is not None)
    return restarts + evictions + objects.get_start(seen.last) - (0 if began else 1)


def _started_at(seen: objects.JobObjects) -> datetime | None:
    times = [
        each["status"]["startTime"] for each in (*seen.jobs, *seen.pods) if each.get("status", {}).get("startTime")
    ]
    return min(map(objects.find_time, times), default=None)


def _pod_exits(seen: objects.JobObjects) -> list[tuple[str, int]]:
    messages = [each.get("message", "") for job in seen.jobs for each in job["status"].get("conditions", ())]
    named = [(found[1], int(found[2])) for message in messages if (found := _CODE.search(message))]
    return list(dict.fromkeys(named))


def _is_at_work(seen: objects.JobObjects) -> bool:
    return bool(seen.live) or (_is_admitted(seen) and not _is_inactive(seen))


def _is_inactive(seen: objects.JobObjects) -> bool:
    return seen.workload is not None and not seen.workload["spec"].get("active", True)


def _is_admitted(seen: objects.JobObjects) -> bool:
    return seen.workload is not None and objects.condition(seen.workload, "Admitted") is not None


def get_run_intervals(seen: objects.JobObjects) -> tuple[RunInterval, ...] | None:
    """Of all JobSets; None if one of them, or its workload, was deleted."""
    if objects.get_start(seen.sets[0]) > 1:
        return None
    nodes, found = objects.get_file(seen.last).nodes.max, list[RunInterval]()
    for each, workload in zip(seen.sets, (*seen.earlier, seen.workload), strict=True):
        known = _set_intervals(each, workload, nodes, seen.pods if each is seen.last else ())
        if known is None:
            return None
        found += known
    return tuple(found)


def remaining_sec(seen: objects.JobObjects) -> int:
    """Unused seconds of a failed JobSet, 0 or less if used up; without a workload the whole lifetime counts."""
    last, given = seen.last, objects.get_hours_sec(seen.last)
    ended_at = _ended_at(last)
    assert ended_at is not None, "asked of one that has failed"
    known = _set_intervals(last, seen.workload, 1, seen.pods)
    if known is None:
        return given - round((ended_at - objects.find_time(last["metadata"]["creationTimestamp"])).total_seconds())
    return given - round(sum(((each.end or ended_at) - each.start).total_seconds() for each in known))


def _set_intervals(
    job_set: Found, workload: Found | None, nodes: int, pods: Sequence[Found] = ()
) -> list[RunInterval] | None:
    ended_at = _ended_at(job_set)
    if workload is None:
        # Suspended: Kueue has not seen it yet. Else an administrator may have Kueue delete ended workloads.
        return [] if ended_at is None and job_set["spec"].get("suspend") else None
    admitted = objects.any_condition(workload, "Admitted")
    if admitted is None:
        return []
    at, sec = objects.find_time(admitted["lastTransitionTime"]), _earlier_sec(job_set, workload)
    begun = _pods_began_at(job_set, workload, pods, at) if admitted["status"] == "True" else None
    if begun is not None:
        return [RunInterval(begun - sec, None if ended_at is None else max(begun, ended_at), nodes)]
    return [RunInterval(at - sec, at, nodes)] if sec else []


def _pods_began_at(job_set: Found, workload: Found, pods: Sequence[Found], admitted_at: datetime) -> datetime | None:
    """When the pods of an admitted workload started; None before that. Once some have ended Kueue does not say it any
    more, but the pods do, unless JobSet has restarted them: then it is the time of admission.
    """
    ready, runs_yet = objects.any_condition(workload, "PodsReady"), _ended_at(job_set) is None
    if ready is not None and ready["reason"] == "Started":
        return max(admitted_at, objects.find_time(ready["lastTransitionTime"]))
    if ready is not None and ready["reason"] == _NOT_BEGUN and runs_yet:
        return None
    if objects.get_restarts(job_set):
        return admitted_at
    times = [objects.find_time(each["status"]["startTime"]) for each in pods if each["status"].get("startTime")]
    if pods and not times and runs_yet:
        return None
    return max(admitted_at, min(times, default=admitted_at))


def _earlier_sec(job_set: Found, workload: Found) -> timedelta:
    """Before the last change of `Admitted`. After the hours are over Kueue counts only the last period."""
    found = timedelta(seconds=workload["status"].get("accumulatedPastExecutionTimeSeconds", 0))
    evicted = objects.condition(workload, "Evicted")
    if evicted is not None and evicted["reason"] == OVER_HOURS and objects.condition(workload, "Admitted") is None:
        found = max(found, timedelta(seconds=objects.get_hours_sec(job_set)))
    ready = objects.any_condition(workload, "PodsReady")
    if ready is None or ready["reason"] != _NOT_BEGUN:
        return found
    # No pod has run since then, whatever Kueue counted; without any pods ever, since its creation.
    since, ended = objects.find_time(ready["lastTransitionTime"]), objects.any_condition(workload, "Evicted")
    until = since - objects.find_time(workload["metadata"]["creationTimestamp"])
    ran = until > _AT_ONCE or (ended is not None and since >= objects.find_time(ended["lastTransitionTime"]))
    return min(found, until) if ran else timedelta()


def _ended_at(job_set: Found) -> datetime | None:
    ends = [found for kind in ("Completed", "Failed") if (found := objects.condition(job_set, kind)) is not None]
    return objects.find_time(ends[0]["lastTransitionTime"]) if ends else None
