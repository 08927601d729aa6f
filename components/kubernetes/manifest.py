"""Kubernetes manifests, labelled as Gangway's; pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

Manifest = dict[str, Any]
OURS: Mapping[str, str] = {"app.kubernetes.io/managed-by": "gangway"}


def manifest(version: str, kind: str, name: str, body: Mapping[str, Any], namespace: str | None = None) -> Manifest:
    """A manifest. `body`: everything besides kind and metadata, such as `{"spec": {...}}`."""
    place = {} if namespace is None else {"namespace": namespace}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **place, "labels": dict(OURS)}, **body}


def kubeconfig_text(name: str, clusters: Sequence[Any], login: Mapping[str, Any]) -> str:
    """A kubeconfig as JSON without secrets. `login`: the program that logs a user in, besides its API version."""
    command = {"apiVersion": "client.authentication.k8s.io/v1beta1", **login, "interactiveMode": "IfAvailable"}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": clusters,
            "users": [{"name": name, "user": {"exec": command}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        }
    )


def daemon_set(name: str, namespace: str, pod: Mapping[str, Any]) -> Manifest:
    """A DaemonSet on the selected nodes, with priority over jobs and without rights in the API."""
    labels = {"app.kubernetes.io/name": name}
    own = {"priorityClassName": "system-node-critical", "automountServiceAccountToken": False, **pod}
    spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": own}}
    return manifest("apps/v1", "DaemonSet", name, {"spec": spec}, namespace)


def node_daemon(
    name: str,
    namespace: str,
    image: str,
    script: str,
    *,
    node_selector: Mapping[str, str],
    tolerations: Sequence[Mapping[str, str]],
) -> Manifest:
    """A DaemonSet whose privileged pods run `script` for ever, to set their node's limits."""
    container = {
        "name": "node",
        "image": image,
        "command": ["/bin/sh", "-c", script],
        "securityContext": {"privileged": True},
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}},
    }
    pod = {
        "nodeSelector": dict(node_selector),
        "tolerations": list(tolerations),
        "hostPID": True,
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
    }
    return daemon_set(name, namespace, pod)
