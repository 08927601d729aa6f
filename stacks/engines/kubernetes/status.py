"""What a job is at, out of the cluster's own objects; pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from stacks.config.job_file import JobFile
from stacks.engines.attempts import after
from stacks.engines.base import JobStatus, Phase, Stretch
from stacks.engines.kubernetes.manifests import (
    CANCELLED_ANNOTATION,
    EXCLUDED_ANNOTATION,
    FILE_ANNOTATION,
    JOB_LABEL,
    START_LABEL,
    USER_ANNOTATION,
)
from trainer.core.errors import EXIT_UNFIT

Found = Mapping[str, Any]
_CODE = re.compile(r"pod [^ /]*/([^ ]+) failed with exit code ([0-9]+) ")
_OVER_HOURS = "DeactivatedDueToMaximumExecutionTimeExceeded"
_INDEX = "batch.kubernetes.io/job-completion-index"


@dataclass(frozen=True)
class Seen:
    """One job's objects.

    Attributes:
        sets: its JobSets, the first start first.
        workload: Kueue's, of the last; None before Kueue has seen it.
        jobs, pods: of the last.
    """

    sets: Sequence[Found]
    workload: Found | None
    jobs: Sequence[Found]
    pods: Sequence[Found]

    @property
    def last(self) -> Found:
        """The JobSet that counts."""
        return self.sets[-1]


def by_job(
    sets: Iterable[Found], workloads: Iterable[Found], jobs: Iterable[Found], pods: Iterable[Found]
) -> list[Seen]:
    """Of all objects in a namespace, the oldest job first."""
    groups = dict[str, list[Found]]()
    for each in sorted(sets, key=lambda each: int(each["metadata"]["labels"][START_LABEL])):
        groups.setdefault(each["metadata"]["labels"][JOB_LABEL], []).append(each)
    of_workload = {_owner(each): each for each in workloads}
    known_jobs, known_pods = list(jobs), list(pods)
    found = list[Seen]()
    for group in groups.values():
        uid = group[-1]["metadata"]["uid"]
        mine = [each for each in known_jobs if _owner(each) == uid]
        uids = {each["metadata"]["uid"] for each in mine}
        own = sorted((each for each in known_pods if _owner(each) in uids), key=_index)
        found.append(Seen(group, of_workload.get(uid), mine, own))
    return sorted(found, key=lambda each: int(job_id_of(each.last).rpartition("-")[2]))


def job_id_of(job_set: Found) -> str:
    """Of the job that a JobSet belongs to."""
    return str(job_set["metadata"]["labels"][JOB_LABEL])


def file_of(job_set: Found) -> JobFile:
    """As it was submitted, without `env`."""
    return JobFile.model_validate_json(job_set["metadata"]["annotations"][FILE_ANNOTATION])


def unfit_nodes(seen: Seen) -> list[str]:
    """On which a command has said that the node is not fit."""
    failed = {name for name, code in _ends(seen) if code == EXIT_UNFIT}
    return [each["spec"]["nodeName"] for each in seen.pods if each["metadata"]["name"] in failed]


def status_of(seen: Seen, other_nodes: int) -> JobStatus:
    """`other_nodes`: how many nodes there are besides those that are excluded already."""
    last, job = seen.last, file_of(seen.last)
    phase, code, reason, ended_at = _end_of(seen, job, other_nodes) or (*_now(seen), None)
    started_at = _started_at(seen)
    return JobStatus(
        id=job_id_of(last),
        name=job.name,
        user=last["metadata"]["annotations"].get(USER_ANNOTATION, ""),
        team=job.team or "",
        phase=phase,
        nodes=tuple(each["spec"]["nodeName"] for each in seen.pods if each["spec"].get("nodeName")),
        starts=_starts(seen),
        exit_code=code,
        reason=reason,
        submitted_at=_time(seen.sets[0]["metadata"]["creationTimestamp"]),
        started_at=started_at,
        ended_at=ended_at,
        stretches=() if started_at is None else (Stretch(started_at, ended_at, job.nodes.max),),
    )


_End = tuple[Phase, int | None, str, datetime | None]


def _end_of(seen: Seen, job: JobFile, other_nodes: int) -> _End | None:
    """None while more may come of it."""
    if (done := _condition(seen.last, "Completed")) is not None:
        return Phase.DONE, 0, "", _time(done["lastTransitionTime"])
    cancelled = seen.last["metadata"]["annotations"].get(CANCELLED_ANNOTATION)
    has_left = _is_inactive(seen) and not seen.pods
    failed = _condition(seen.last, "Failed")
    if cancelled is not None and (failed is not None or has_left):
        return Phase.CANCELLED, None, "cancelled", _time(cancelled)
    evicted = None if seen.workload is None else _condition(seen.workload, "Evicted")
    if evicted is not None and evicted["reason"] == _OVER_HOURS and has_left:
        return Phase.OVER_HOURS, None, "its hours are over", _time(evicted["lastTransitionTime"])
    if failed is None:
        return None
    return _failed(seen, job, other_nodes, failed)


def _failed(seen: Seen, job: JobFile, other_nodes: int, failed: Found) -> _End | None:
    at = _time(failed["lastTransitionTime"])
    codes = [code for _, code in _ends(seen)]
    if not codes:
        return Phase.FAILED, None, failed.get("message", ""), at
    enough = other_nodes - len(unfit_nodes(seen)) >= job.nodes.max
    then = after(codes[0], job.max_restarts, job.max_restarts, other_nodes=enough)
    if then.phase is None:
        assert codes[0] == EXIT_UNFIT, "every other code that begins again is no end of a JobSet"
        return None
    return then.phase, codes[0], then.reason, at


def _now(seen: Seen) -> tuple[Phase, int | None, str]:
    if nodes := unfit_nodes(seen):
        return Phase.WAITING, None, f"{', '.join(nodes)} is not fit; a wait for the job begins it again without"
    workload = seen.workload
    if workload is None:
        return Phase.WAITING, None, "Kueue has not seen it yet"
    if seen.pods or (_is_true(workload, "Admitted") and not _is_inactive(seen)):
        waiting = [each["metadata"]["name"] for each in seen.pods if each["status"].get("phase") == "Pending"]
        return Phase.RUNNING, None, f"not begun yet: {', '.join(waiting)}" if waiting else ""
    if _is_inactive(seen):
        return Phase.WAITING, None, "somebody has deactivated its workload in Kueue"
    condition = _condition(workload, "QuotaReserved", status="False")
    return Phase.WAITING, None, condition.get("message", "") if condition else "in the queue"


def _starts(seen: Seen) -> int:
    """Of all JobSets; one that Kueue has put back into the queue has begun once more."""
    restarts: int = sum(each.get("status", {}).get("restarts", 0) for each in seen.sets)
    evictions = 0
    if seen.workload is not None:
        stats = seen.workload.get("status", {}).get("schedulingStats", {}).get("evictions", ())
        evictions = sum(each["count"] for each in stats if not each["reason"].startswith("Deactivated"))
    began = bool(restarts or any(each["status"].get("startTime") for each in seen.jobs))
    began = began or (seen.workload is not None and _any_condition(seen.workload, "Admitted") is not None)
    return restarts + evictions + len(seen.sets) - (0 if began else 1)


def _started_at(seen: Seen) -> datetime | None:
    times = [
        each["status"]["startTime"] for each in (*seen.jobs, *seen.pods) if each.get("status", {}).get("startTime")
    ]
    return min(map(_time, times), default=None)


def _ends(seen: Seen) -> list[tuple[str, int]]:
    """Pod and exit code that the failed Jobs name, and those of the pods besides; the first named is why."""
    messages = [each.get("message", "") for job in seen.jobs for each in job["status"].get("conditions", ())]
    named = [(found[1], int(found[2])) for message in messages if (found := _CODE.search(message))]
    return list(dict.fromkeys(named))


def _is_inactive(seen: Seen) -> bool:
    return seen.workload is not None and not seen.workload["spec"].get("active", True)


def _is_true(found: Found, kind: str) -> bool:
    return _condition(found, kind) is not None


def _condition(found: Found, kind: str, status: str = "True") -> Found | None:
    condition = _any_condition(found, kind)
    return condition if condition is not None and condition["status"] == status else None


def _any_condition(found: Found, kind: str) -> Found | None:
    return next((each for each in found.get("status", {}).get("conditions", ()) if each["type"] == kind), None)


def _owner(found: Found) -> str:
    return next((each["uid"] for each in found["metadata"].get("ownerReferences", ()) if each.get("controller")), "")


def _index(pod: Found) -> int:
    return int(pod["metadata"].get("annotations", {}).get(_INDEX, 0))


def excluded_of(job_set: Found) -> tuple[str, ...]:
    """Nodes that earlier starts have left."""
    text = job_set["metadata"]["annotations"].get(EXCLUDED_ANNOTATION, "")
    return tuple(text.split(",")) if text else ()


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
