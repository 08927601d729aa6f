"""A job's objects in a cluster: their content (pure), and those of a start, which are created all or none."""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from secrets import token_hex
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from gangway.components.core.findings import InputError
from gangway.components.core.keys import new_member_key
from gangway.jobs.base import JobStatus
from gangway.jobs.job_folder import UnreadableError
from gangway.jobs.kubernetes.kubectl import Found, Kubectl, MissingError, TakenError
from gangway.jobs.kubernetes.manifests import (
    EXCLUDED_ANNOTATION,
    FILE_ANNOTATION,
    HOURS_ANNOTATION,
    HOURS_LABEL,
    JOB_LABEL,
    JOB_SET_VERSION,
    KEPT_SEC,
    MEMBER_KEY,
    OURS,
    START_LABEL,
    Placing,
    job_set,
    support_manifests,
)
from gangway.jobs.node_command import needs_member_key
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


# Creates the objects of one start of a job: its script, variables, policy and JobSet; all or none. Removes old ones:
# JobSet itself removes only what it considers ended; to it a job that was cancelled or used up its hours is suspended.

SETS = "jobsets.jobset.x-k8s.io"
SUPPORTS: Mapping[str, str] = MappingProxyType(
    {"NetworkPolicy": "networkpolicies.networking.k8s.io", "Secret": "secrets", "ConfigMap": "configmaps"}
)
"""Kinds of the objects besides the JobSet, as kubectl names them, in reverse order of creation."""
_RESOURCES: Mapping[str, str] = MappingProxyType({"JobSet": SETS, **SUPPORTS})
_SUBMIT_ANNOTATION = "gangway.dev/submit"
_STALE_SEC = 1800
"""After which no process works on a start any more: kubectl gives up each call within two minutes. Objects have only
the cluster's time; if clocks differ by this much, a start in progress loses its name, is undone and reports it.
"""


def create_start(kubectl: Kubectl, job: JobFile, placing: Placing, variables: Mapping[str, str]) -> None:
    """Creates all objects or none. TakenError: the name exists. InputError: neither completed nor undone."""
    key = {MEMBER_KEY: new_member_key(placing.job_id)} if needs_member_key(job) else {}
    made, tried, token = list[str](), "", token_hex(8)
    try:
        # The first object reserves the name.
        for each in (*support_manifests(job, placing, {**variables, **key}), job_set(job, placing)):
            tried = each["kind"]
            meta = each["metadata"]
            signed = {**meta.get("annotations", {}), _SUBMIT_ANNOTATION: token}  # another submit may use the same name
            stored = kubectl.create({**each, "metadata": {**meta, "annotations": signed}})
            made.append(tried)
        meta = stored["metadata"]
        owner = {"apiVersion": JOB_SET_VERSION, "kind": "JobSet", "name": placing.name, "uid": meta["uid"]}
        for kind in made[:-1]:
            kubectl.patch(_RESOURCES[kind], placing.name, {"metadata": {"ownerReferences": [owner]}})
    except BaseException as error:
        lost = "" if isinstance(error, TakenError) or tried in made else tried
        try:
            _undo(kubectl, placing.name, made, lost, token)
        except InputError as left:
            if made:  # else nothing exists that could start
                raise InputError(
                    "job", f"it may still start, since undoing it failed: {left.problem}",
                    value=placing.job_id, fix="list the jobs there, and cancel this one if it is among them",
                ) from error  # fmt: skip
        raise


def _undo(kubectl: Kubectl, name: str, made: Sequence[str], lost: str, token: str) -> None:
    """Removes an interrupted start, the JobSet first, since it would start. `lost`: a kind that may exist."""
    for kind, resource in _RESOURCES.items():
        if kind in made or (kind == lost and _is_from_submit(kubectl, resource, name, token)):
            delete(kubectl, resource, name)


def _is_from_submit(kubectl: Kubectl, resource: str, name: str, token: str) -> bool:
    try:
        meta = kubectl.get(resource, name)["metadata"]
    except MissingError:
        return False
    return _get_token(meta) == token


def _get_token(meta: Mapping[str, Any]) -> str | None:
    found: str | None = meta.get("annotations", {}).get(_SUBMIT_ANNOTATION)
    return found


def clear_stale(kubectl: Kubectl, name: str) -> None:
    """Removes an old interrupted start without a JobSet, which would block its name forever."""
    with suppress(MissingError):
        kubectl.get(SETS, name)
        return
    with suppress(MissingError):
        found = kubectl.get("configmaps", name)
        if _is_older(found["metadata"]["creationTimestamp"], _STALE_SEC, datetime.now(UTC)):
            clear_start(kubectl, found)


def clear_start(kubectl: Kubectl, first: Mapping[str, Any]) -> None:
    """Removes the parts of one start, except its JobSet, and nothing that others made. `first`: its ConfigMap."""
    meta = first["metadata"]
    if (token := _get_token(meta)) is None:
        return
    for resource in SUPPORTS.values():
        if _is_from_submit(kubectl, resource, meta["name"], token):
            delete(kubectl, resource, meta["name"])


def delete(kubectl: Kubectl, resource: str, name: str) -> None:
    """Does not wait, and ignores missing objects."""
    kubectl.run("delete", resource, name, "--ignore-not-found", "--wait=false")


def may_be_old(job_set: Found, now: datetime) -> bool:
    """Whether the job's status is worth checking."""
    return bool(job_set["spec"].get("suspend")) and _is_older(job_set["metadata"]["creationTimestamp"], KEPT_SEC, now)


def clear_old(kubectl: Kubectl, seen: JobObjects, status: JobStatus, now: datetime) -> None:
    """Removes the objects of a job that ended long ago."""
    if status.ended_at is not None and now - status.ended_at > timedelta(seconds=KEPT_SEC):
        for each in seen.sets:
            delete(kubectl, SETS, each["metadata"]["name"])


def clear_orphans(kubectl: Kubectl, sets: Sequence[Found], now: datetime) -> None:
    """Removes objects of interrupted submits that belong to no JobSet, but no others with Gangway's label."""
    names = {each["metadata"]["name"] for each in sets}
    for each in kubectl.get("configmaps", OURS):
        meta = each["metadata"]
        if (
            meta["name"] not in names
            and not meta.get("ownerReferences")
            and _is_older(meta["creationTimestamp"], KEPT_SEC, now)
        ):
            clear_start(kubectl, each)


def _is_older(created: str, sec: float, now: datetime) -> bool:
    return now - find_time(created) > timedelta(seconds=sec)
