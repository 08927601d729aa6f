"""One start of a job put into the cluster: its script, its variables, its policy and its JobSet, or none of them."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

from components.core.findings import InputError
from stacks.config.job_file import JobFile
from stacks.engines.kubernetes.kubectl import Kubectl, MissingError, TakenError
from stacks.engines.kubernetes.manifests import (
    JOB_LABEL,
    JOB_SET_VERSION,
    RUN_ANNOTATION,
    Placing,
    job_set,
    supports,
)
from stacks.engines.kubernetes.objects import time_of

SETS = "jobsets.jobset.x-k8s.io"
SUPPORTS: Mapping[str, str] = MappingProxyType(
    {"NetworkPolicy": "networkpolicies.networking.k8s.io", "Secret": "secrets", "ConfigMap": "configmaps"}
)
"""Kinds of what goes with a JobSet, as kubectl names them, the first made last."""
_RESOURCES: Mapping[str, str] = MappingProxyType({"JobSet": SETS, **SUPPORTS})
_STALE_SEC = 1800
"""After which nobody is still at work on a start: kubectl gives up each of its calls within two minutes."""


def put(kubectl: Kubectl, job: JobFile, placing: Placing, variables: Mapping[str, str]) -> None:
    """All of one start, or nothing. TakenError: there is one of that name. InputError, that says so: what was begun can
    neither be ended nor undone.
    """
    made = list[str]()
    try:
        # The first one's name nobody else can have from then on.
        for each in (*supports(placing, variables), job_set(job, placing)):
            stored = kubectl.create(each)
            made.append(each["kind"])
        meta = stored["metadata"]
        owner = {"apiVersion": JOB_SET_VERSION, "kind": "JobSet", "name": placing.name, "uid": meta["uid"]}
        for kind in made[:-1]:
            kubectl.patch(_RESOURCES[kind], placing.name, {"metadata": {"ownerReferences": [owner]}})
    except BaseException as error:
        if made:
            _undo(kubectl, placing, made, error)
        raise


def _undo(kubectl: Kubectl, placing: Placing, made: Sequence[str], error: BaseException) -> None:
    """Of one that was cut short. What nobody has heard of may be there, too; the JobSet goes first: it would begin."""
    try:
        for kind, resource in _RESOURCES.items():
            if kind in made or (not isinstance(error, TakenError) and _is_mine(kubectl, resource, placing)):
                delete(kubectl, resource, placing.name)
    except InputError as left:
        raise InputError(
            "job", f"it may have been begun all the same, for it could not be undone: {left.problem}",
            value=placing.job_id, fix="list the jobs there, and cancel this one where it is among them",
        ) from error  # fmt: skip


def _is_mine(kubectl: Kubectl, resource: str, placing: Placing) -> bool:
    """Whether there is one of that name, and it is this job's."""
    try:
        meta = kubectl.get(resource, placing.name)["metadata"]
    except MissingError:
        return False
    folder = meta.get("annotations", {}).get(RUN_ANNOTATION, placing.run_folder)
    return (meta.get("labels", {}).get(JOB_LABEL), folder) == (placing.job_id, placing.run_folder)


def clear_stale(kubectl: Kubectl, name: str) -> None:
    """Takes away what a start has left that was cut off before its JobSet: it would hold the name for ever. Nothing, of
    one that somebody may still be at work on.
    """
    with suppress(MissingError):
        kubectl.get(SETS, name)
        return
    with suppress(MissingError):
        if _age(kubectl.get("configmaps", name)) > timedelta(seconds=_STALE_SEC):
            for resource in SUPPORTS.values():
                delete(kubectl, resource, name)


def _age(found: Mapping[str, Any]) -> timedelta:
    return datetime.now(UTC) - time_of(found["metadata"]["creationTimestamp"])


def delete(kubectl: Kubectl, resource: str, name: str) -> None:
    """Without waiting for its end, and whether it is there or not."""
    kubectl.run("delete", resource, name, "--ignore-not-found", "--wait=false")
