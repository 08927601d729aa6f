"""Removes the objects of old jobs. JobSet removes only what it considers ended; to it a job that was cancelled or used
up its hours is suspended.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from gangway.jobs.base import JobStatus
from gangway.jobs.kubernetes.kubectl import Kubectl
from gangway.jobs.kubernetes.manifests import KEPT_SEC, OURS
from gangway.jobs.kubernetes.objects import Found, JobObjects, find_time
from gangway.jobs.kubernetes.start_objects import SETS, clear_start, delete


def may_be_old(job_set: Found, now: datetime) -> bool:
    """Whether the job's status is worth checking."""
    return bool(job_set["spec"].get("suspend")) and _is_old(job_set["metadata"]["creationTimestamp"], now)


def clear_old(kubectl: Kubectl, seen: JobObjects, status: JobStatus, now: datetime) -> None:
    """Removes the objects of a job that ended long ago."""
    if status.ended_at is not None and now - status.ended_at > timedelta(seconds=KEPT_SEC):
        for each in seen.sets:
            delete(kubectl, SETS, each["metadata"]["name"])


def clear_orphans(kubectl: Kubectl, sets: Sequence[Found], now: datetime) -> None:
    """Removes objects of interrupted submits that belong to no JobSet. Other objects with Gangway's label, such as the
    ConfigMap of the nodes' network, stay.
    """
    names = {each["metadata"]["name"] for each in sets}
    for each in kubectl.get("configmaps", OURS):
        meta = each["metadata"]
        if meta["name"] not in names and not meta.get("ownerReferences") and _is_old(meta["creationTimestamp"], now):
            clear_start(kubectl, each)


def _is_old(created: str, now: datetime) -> bool:
    return now - find_time(created) > timedelta(seconds=KEPT_SEC)
