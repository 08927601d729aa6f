"""Kubernetes manifests, labelled as Gangway's; pure."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

__all__ = ["OURS", "Manifest", "daemon_set", "manifest"]

Manifest = dict[str, Any]
OURS: Mapping[str, str] = MappingProxyType({"app.kubernetes.io/managed-by": "gangway"})


def manifest(version: str, kind: str, name: str, body: Mapping[str, Any], namespace: str | None = None) -> Manifest:
    """A manifest. `body`: everything besides kind and metadata, such as `{"spec": {...}}`."""
    place = {} if namespace is None else {"namespace": namespace}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **place, "labels": dict(OURS)}, **body}


def daemon_set(name: str, namespace: str, pod: Mapping[str, Any]) -> Manifest:
    """A DaemonSet on the selected nodes, with priority over jobs and without rights in the API."""
    labels = {"app.kubernetes.io/name": name}
    own = {"priorityClassName": "system-node-critical", "automountServiceAccountToken": False, **pod}
    spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": own}}
    return manifest("apps/v1", "DaemonSet", name, {"spec": spec}, namespace)
