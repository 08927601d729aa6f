"""Checks that the cluster has the namespace and Kueue queue that the user named."""

from collections.abc import Sequence
from typing import Any

from gangway.components.core.findings import InputError, nearest_hint
from gangway.jobs.kubernetes.kubectl import ForbiddenError, Kubectl, MissingError

QUEUES = "localqueues.kueue.x-k8s.io"
_EVERYWHERE = "--all-namespaces"


def local_queue(kubectl: Kubectl, name: str) -> Any:
    """Kueue's object. InputError: no such queue or namespace; lists those that exist."""
    try:
        return kubectl.get(QUEUES, name)
    except MissingError:
        raise _no_place(kubectl, name) from None


def _no_place(kubectl: Kubectl, name: str) -> InputError:
    place, context = f"--on kubernetes:{kubectl.context}@{kubectl.namespace}/{name}", kubectl.context
    if not _has_namespace(kubectl):
        known = _names(kubectl, "namespaces")
        return InputError(
            place, "the cluster has no such namespace", value=kubectl.namespace, allowed=_or_none(known),
            fix=nearest_hint(kubectl.namespace, known or ()),
        )  # fmt: skip
    own = _names(kubectl, QUEUES) or []
    if own:
        return InputError(
            place, "the namespace has no such Kueue queue", value=name, allowed=", ".join(own),
            fix=nearest_hint(name, own),
        )  # fmt: skip
    others = _names(kubectl, QUEUES, _EVERYWHERE)
    return InputError(
        place, "the namespace has no Kueue queue", value=name, allowed=_or_none(others),
        fix=f"--on kubernetes:{context}@{others[0]}" if others else "docs/kubernetes.md has a manifest to apply",
    )  # fmt: skip


def _has_namespace(kubectl: Kubectl) -> bool:
    try:
        kubectl.get("namespace", kubectl.namespace)
    except MissingError:
        return False
    except ForbiddenError:
        return True  # a user without access may still have a queue in it
    return True


def _names(kubectl: Kubectl, kind: str, *words: str) -> Sequence[str] | None:
    """With namespaces if all are asked for; None if this user may not list them."""
    try:
        metas = [each["metadata"] for each in kubectl.get(kind, *words)]
    except ForbiddenError:
        return None
    return [f"{each['namespace']}/{each['name']}" if _EVERYWHERE in words else each["name"] for each in metas]


def _or_none(names: Sequence[str] | None) -> str:
    if names is None:
        return "you may not list them"
    return ", ".join(names) or "there are none"
