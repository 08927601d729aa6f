"""The stand-in for Pulumi's Kubernetes plugin: a cluster that takes every object of a known kind, and none twice."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .records import records
from .service import Look, RefusedError, Service
from .shapes import Fault

OWN_GROUPS = ("kueue.x-k8s.io/", "mellanox.com/", "networking.gke.io/", "nfd.k8s-sigs.io/")
"""Of kinds that the cluster has by charts, and the SDK has no class for."""
_NAMESPACE = "kubernetes:core/v1:Namespace"
_KEYS = frozenset({"apiVersion", "kind", "metadata", "spec", "value"})


class Kubernetes(Service):
    """Objects by kind, namespace and name. Inputs are as the SDK has them (v4.34); of other kinds, as an object has."""

    sdk = "pulumi_kubernetes"
    open_enums: frozenset[str] | None = frozenset()
    _cluster: str = ""

    def configure(self, args: Mapping[str, Any]) -> None:
        """See Service. Whoever has no way to log in gets no further."""
        self._cluster = json.loads(args["kubeconfig"])["current-context"]

    def keys_of(self, type_token: str) -> frozenset[str] | None:
        """See Service."""
        group = type_token.partition(":")[2]
        return _KEYS if group.startswith(OWN_GROUPS) else None

    def complete(
        self, type_token: str, name: str, seed: bytes, inputs: dict[str, Any], before: Mapping[str, Any]
    ) -> None:
        """See Service. Every object has a name already."""

    def faults(self, type_token: str, inputs: Mapping[str, Any]) -> Iterator[Fault]:
        """See Service."""
        if "metadata" in inputs and isinstance(inputs["metadata"], dict) and not inputs["metadata"].get("name"):
            yield "metadata.name", "Required value"

    def identify(self, type_token: str, name: str, inputs: Mapping[str, Any]) -> str:
        """See Service."""
        meta = inputs.get("metadata") or inputs
        return f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else str(meta["name"])

    def admit(self, type_token: str, inputs: Mapping[str, Any], look: Look) -> None:
        """See Service. Nothing is made in a namespace that is not there yet; a chart may bring its own."""
        namespace = (inputs.get("metadata") or inputs).get("namespace")
        if namespace in (None, "default", "kube-system") or inputs.get("createNamespace"):
            return
        charts = (record["inputs"] for _, record in records() if record["inputs"].get("createNamespace"))
        if not look(_NAMESPACE, namespace) and namespace not in {chart["namespace"] for chart in charts}:
            raise RefusedError(f'namespaces "{namespace}" not found')

    def release(self, type_token: str, id_: str, others: Iterable[Mapping[str, Any]]) -> None:
        """See Service. A namespace takes along what is in it, which the engine asks nobody to delete then."""
        if type_token != _NAMESPACE:
            return
        for file, record in records():
            if record["type"].startswith("kubernetes:") and record["id"].startswith(f"{id_}/"):
                file.unlink(missing_ok=True)
