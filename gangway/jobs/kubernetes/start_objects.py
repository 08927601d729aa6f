"""One start of a job put into the cluster: its script, its variables, its policy and its JobSet, or none of them."""

import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

from components.core.findings import InputError
from components.core.member_key import new_member_key
from gangway.jobs.kubernetes.kubectl import Kubectl, MissingError, TakenError
from gangway.jobs.kubernetes.manifests import (
    JOB_SET_VERSION,
    MEMBER_KEY,
    Manifest,
    Placing,
    job_set,
    supports,
)
from gangway.jobs.kubernetes.objects import find_time
from gangway.jobs.node_command import needs_member_key
from stacks.config.job_file import JobFile

SETS = "jobsets.jobset.x-k8s.io"
SUPPORTS: Mapping[str, str] = MappingProxyType(
    {"NetworkPolicy": "networkpolicies.networking.k8s.io", "Secret": "secrets", "ConfigMap": "configmaps"}
)
"""Kinds of what goes with a JobSet, as kubectl names them, the first made last."""
_RESOURCES: Mapping[str, str] = MappingProxyType({"JobSet": SETS, **SUPPORTS})
_SUBMIT_ANNOTATION = "gangway.dev/submit"
_STALE_SEC = 1800
"""After which nobody is still at work on a start: kubectl gives up each of its calls within two minutes. A cluster
keeps dates alone; a clock that is so far off costs a start that is at work its name: it is undone, and says so.
"""


def put(kubectl: Kubectl, job: JobFile, placing: Placing, variables: Mapping[str, str]) -> None:
    """All of one start, or nothing. TakenError: there is one of that name. InputError, that says so: what was begun can
    neither be ended nor undone.
    """
    made, tried, token = list[str](), "", secrets.token_hex(8)
    try:
        # The first one's name nobody else can have from then on.
        for each in (*supports(job, placing, {**variables, **_member_key(job, placing)}), job_set(job, placing)):
            tried = each["kind"]
            stored = kubectl.create(_signed(each, token))
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
            if made:  # else nothing is there that could begin
                raise InputError(
                    "job", f"it may have been begun all the same, for it could not be undone: {left.problem}",
                    value=placing.job_id, fix="list the jobs there, and cancel this one where it is among them",
                ) from error  # fmt: skip
        raise


def _member_key(job: JobFile, placing: Placing) -> Mapping[str, str]:
    """Made anew for each start; empty where none is needed."""
    return {MEMBER_KEY: new_member_key(placing.job_id)} if needs_member_key(job) else {}


def _undo(kubectl: Kubectl, name: str, made: Sequence[str], lost: str, token: str) -> None:
    """Of one that was cut short. `lost`: a kind of which nobody has heard whether it was made. The JobSet goes first:
    it would begin.
    """
    for kind, resource in _RESOURCES.items():
        if kind in made or (kind == lost and _has(kubectl, resource, name, token)):
            delete(kubectl, resource, name)


def _signed(manifest: Mapping[str, Any], token: str) -> Manifest:
    """With what tells it from that of another submit, which may ask for the same name."""
    meta = manifest["metadata"]
    return {**manifest, "metadata": {**meta, "annotations": {**meta.get("annotations", {}), _SUBMIT_ANNOTATION: token}}}


def _has(kubectl: Kubectl, resource: str, name: str, token: str) -> bool:
    """Whether there is one of that name, and it is of this submit."""
    try:
        meta = kubectl.get(resource, name)["metadata"]
    except MissingError:
        return False
    return _token(meta) == token


def _token(meta: Mapping[str, Any]) -> str | None:
    """Of the submit that made it; None of what none has."""
    found: str | None = meta.get("annotations", {}).get(_SUBMIT_ANNOTATION)
    return found


def clear_stale(kubectl: Kubectl, name: str) -> None:
    """Takes away what a start has left that was cut off before its JobSet: it would hold the name for ever. Nothing, of
    one that somebody may still be at work on.
    """
    with suppress(MissingError):
        kubectl.get(SETS, name)
        return
    with suppress(MissingError):
        found = kubectl.get("configmaps", name)
        if _age(found) > timedelta(seconds=_STALE_SEC):
            clear_start(kubectl, found)


def clear_start(kubectl: Kubectl, first: Mapping[str, Any]) -> None:
    """Takes away the parts of one start, but for its JobSet; what has its name and is somebody else's stays. `first`:
    its ConfigMap; of one that no start has made nothing goes.
    """
    meta = first["metadata"]
    if (token := _token(meta)) is None:
        return
    for resource in SUPPORTS.values():
        if _has(kubectl, resource, meta["name"], token):
            delete(kubectl, resource, meta["name"])


def _age(found: Mapping[str, Any]) -> timedelta:
    return datetime.now(UTC) - find_time(found["metadata"]["creationTimestamp"])


def delete(kubectl: Kubectl, resource: str, name: str) -> None:
    """Without waiting for its end, and whether it is there or not."""
    kubectl.run("delete", resource, name, "--ignore-not-found", "--wait=false")
