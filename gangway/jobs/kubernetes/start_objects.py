"""Creates the objects of one start of a job: its script, variables, policy and JobSet; all or none. Removes old
ones: JobSet itself removes only what it considers ended; to it a job that was cancelled or used up its hours is
suspended.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from secrets import token_hex
from types import MappingProxyType
from typing import Any

from gangway.components.core.findings import InputError
from gangway.components.core.member_key import new_member_key
from gangway.jobs.base import JobStatus
from gangway.jobs.kubernetes.kubectl import Found, Kubectl, MissingError, TakenError
from gangway.jobs.kubernetes.manifests import (
    JOB_SET_VERSION,
    KEPT_SEC,
    MEMBER_KEY,
    OURS,
    Placing,
    job_set,
    support_manifests,
)
from gangway.jobs.kubernetes.objects import JobObjects, find_time
from gangway.jobs.node_command import needs_member_key
from gangway.stacks.config.job_file import JobFile

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
