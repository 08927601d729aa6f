"""An object of Kubernetes' as it is applied, marked as Gangway's; pure."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

__all__ = ["OURS", "Manifest", "manifest"]

Manifest = dict[str, Any]
OURS: Mapping[str, str] = MappingProxyType({"app.kubernetes.io/managed-by": "gangway"})
"""Labels."""


def manifest(version: str, kind: str, name: str, body: Mapping[str, Any], namespace: str | None = None) -> Manifest:
    """`body`: what it has beside its kind and name, such as `{"spec": {...}}`."""
    place = {} if namespace is None else {"namespace": namespace}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **place, "labels": dict(OURS)}, **body}
