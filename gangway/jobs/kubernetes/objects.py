"""Reads a job's objects in a cluster; pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import ValidationError

from gangway.jobs.job_folder import UnreadableError
from gangway.jobs.kubernetes.kubectl import Found
from gangway.jobs.kubernetes.manifests import (
    EXCLUDED_ANNOTATION,
    FILE_ANNOTATION,
    HOURS_ANNOTATION,
    HOURS_LABEL,
    JOB_LABEL,
    START_LABEL,
)
from gangway.stacks.config.job_file import JobFile
from gangway.trainer.core.validation import first_mistake

_ID, _NUMBER = re.compile(r"[a-z][a-z0-9-]*-[0-9]+"), re.compile(r"[1-9][0-9]*")


@dataclass(frozen=True)
class JobObjects:
    """One job's objects.

    Attributes:
        sets: its JobSets, first start first, without expired ones.
        workload: Kueue's, of the last; None if Kueue has made none yet.
        earlier: workloads of the other sets; None if deleted.
    """

    sets: Sequence[Found]
    workload: Found | None
    jobs: Sequence[Found]
    pods: Sequence[Found]
    earlier: Sequence[Found | None] = ()

    @property
    def last(self) -> Found:
        """The current JobSet."""
        return self.sets[-1]

    @property
    def live(self) -> Sequence[Found]:
        """Pods that have not ended: ended ones may stay as long as their JobSet."""
        return [each for each in self.pods if each["status"].get("phase") in ("Pending", "Running")]


def group_by_job(
    sets: Iterable[Found], workloads: Iterable[Found], jobs: Iterable[Found], pods: Iterable[Found]
) -> list[JobObjects]:
    """Groups all objects of a namespace by job, oldest first."""
    groups = dict[str, list[Found]]()
    for each in sorted(sets, key=get_start):
        groups.setdefault(get_job_id(each), []).append(each)
    of_workload = {_owner(each): each for each in workloads}
    known_jobs, known_pods = list(jobs), list(pods)
    found = list[JobObjects]()
    for group in groups.values():
        *before, uid = (each["metadata"]["uid"] for each in group)
        mine = [each for each in known_jobs if _owner(each) == uid]
        uids = {each["metadata"]["uid"] for each in mine}
        own = sorted((each for each in known_pods if _owner(each) in uids), key=_index)
        found.append(JobObjects(group, of_workload.get(uid), mine, own, [of_workload.get(each) for each in before]))
    return sorted(found, key=lambda each: int(get_job_id(each.last).rpartition("-")[2]))


def is_job_set(job_set: Found) -> bool:
    """Whether a job made it: other objects may carry Gangway's label too."""
    labels = job_set["metadata"].get("labels", {})
    return bool(_ID.fullmatch(labels.get(JOB_LABEL, "")) and _NUMBER.fullmatch(labels.get(START_LABEL, "")))


def get_job_id(job_set: Found) -> str:
    """Of the job that a JobSet belongs to."""
    return str(job_set["metadata"]["labels"][JOB_LABEL])


def get_start(job_set: Found) -> int:
    """Its 1-based number within the job."""
    return int(job_set["metadata"]["labels"][START_LABEL])


def get_restarts(job_set: Found) -> int:
    """How often JobSet has restarted it."""
    count: int = job_set.get("status", {}).get("restarts", 0)
    return count


def get_file(job_set: Found) -> JobFile:
    """As submitted, without `env`. UnreadableError: not written by this release."""
    try:
        return JobFile.model_validate_json(get_annotation(job_set, FILE_ANNOTATION))
    except ValidationError as error:
        raise _unreadable(job_set, f"{FILE_ANNOTATION}: {first_mistake(error)}") from None


def get_hours_sec(job_set: Found) -> int:
    """Seconds that its pods may run; earlier releases gave Kueue the same number. UnreadableError: as `get_file`."""
    label = job_set["metadata"]["labels"].get(HOURS_LABEL, "")
    text = get_annotations(job_set).get(HOURS_ANNOTATION, label)
    if not _NUMBER.fullmatch(text):
        raise _unreadable(job_set, f"{HOURS_ANNOTATION} is {text!r}")
    return int(text)


def get_excluded_nodes(job_set: Found) -> tuple[str, ...]:
    """Unfit nodes of earlier starts."""
    text = get_annotations(job_set).get(EXCLUDED_ANNOTATION, "")
    return tuple(text.split(",")) if text else ()


def get_annotation(job_set: Found, name: str) -> str:
    """UnreadableError: as `get_file`."""
    if (text := get_annotations(job_set).get(name)) is None:
        raise _unreadable(job_set, f"annotation {name} is missing")
    return text


def get_annotations(job_set: Found) -> Mapping[str, str]:
    """Empty if it has none."""
    found: Mapping[str, str] = job_set["metadata"].get("annotations", {})
    return found


def _unreadable(job_set: Found, problem: str) -> UnreadableError:
    name = job_set["metadata"]["name"]
    return UnreadableError(
        f"jobset {name}", f"cannot be read: {problem}",
        fix=f"use the release of Gangway that submitted it, or see `kubectl describe jobset {name}`",
    )  # fmt: skip


def condition(found: Found, kind: str, status: str = "True") -> Found | None:
    """The condition if it has this status now."""
    known = any_condition(found, kind)
    return known if known is not None and known["status"] == status else None


def any_condition(found: Found, kind: str) -> Found | None:
    """The condition, whatever its status."""
    return next((each for each in found.get("status", {}).get("conditions", ()) if each["type"] == kind), None)


def find_time(text: str) -> datetime:
    """Parses a time of Kubernetes.

    >>> find_time("2026-01-02T03:04:05Z")
    datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)
    """
    return datetime.fromisoformat(text).astimezone(UTC)


def _owner(found: Found) -> str:
    return next((each["uid"] for each in found["metadata"].get("ownerReferences", ()) if each.get("controller")), "")


def _index(pod: Found) -> int:
    return int(pod["metadata"].get("annotations", {}).get("batch.kubernetes.io/job-completion-index", 0))
