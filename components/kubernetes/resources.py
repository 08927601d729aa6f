"""Manifests and charts as Pulumi resources, in order of dependency."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NotRequired, TypedDict

import pulumi
from pulumi_kubernetes.helm.v3 import Release, RepositoryOptsArgs

from gangway.components.core.outputs import register_outputs
from gangway.components.kubernetes.charts import Chart
from gangway.components.kubernetes.manifest import Manifest

_TIERS: Mapping[str, int] = {
    **dict.fromkeys(("ClusterRole", "PersistentVolume", "Topology", "WorkloadPriorityClass"), 0),
    **dict.fromkeys(("DaemonSet", "GKENetworkParamSet", "NicClusterPolicy", "NodeFeatureRule"), 0),
    "ValidatingAdmissionPolicy": 0,
    **dict.fromkeys(("Network", "ResourceFlavor", "ValidatingAdmissionPolicyBinding"), 1),
    **dict.fromkeys(("ClusterRoleBinding", "Cohort"), 2),
    "ClusterQueue": 3,
    "Namespace": 4,
    **dict.fromkeys(("ConfigMap", "NetworkPolicy", "ResourceQuota", "Role", "ServiceAccount"), 5),
    **dict.fromkeys(("LocalQueue", "PersistentVolumeClaim", "RoleBinding"), 6),
}
"""A kind refers only to earlier tiers. Deletion is in reverse order: Kueue keeps a queue while it has jobs, which end
with their namespace, and a flavor in use.
"""
_MADE_BY_KUBERNETES = frozenset({("ServiceAccount", "default")})
"""Existing objects, by kind and name, that are only patched."""
_END_TIMEOUT = "60m"
"""Of a namespace: its jobs have their grace period first."""
INSTALL_TIMEOUT_SEC = 900


def get_token(manifest: Manifest) -> str:
    """The type token of its resource.

    >>> get_token({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "vision"}})
    'kubernetes:core/v1:Namespace'
    """
    version = manifest["apiVersion"]
    group = version if "/" in version else f"core/{version}"
    patch = "Patch" if (manifest["kind"], manifest["metadata"]["name"]) in _MADE_BY_KUBERNETES else ""
    return f"kubernetes:{group}:{manifest['kind']}{patch}"


def get_tier(manifest: Manifest) -> int:
    """The tier of a kind; kinds of one tier are independent."""
    return _TIERS[manifest["kind"]]


class ClusterManifestsArgs(TypedDict):
    """Inputs of ClusterManifests. `after`: dependencies, such as `ClusterCharts.releases`, which has Kueue's kinds."""

    manifests: list[dict[str, Any]]
    after: NotRequired[pulumi.Input[list[str]]]


class ClusterManifests(pulumi.ComponentResource):
    """One resource per manifest."""

    names: pulumi.Output[list[str]]

    def __init__(self, name: str, args: ClusterManifestsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:kubernetes:ClusterManifests", name, None, opts)
        # A waiting value orders its consumers.
        waits = pulumi.Output.from_input(args.get("after", []))
        before: list[pulumi.Resource] = []
        names: list[pulumi.Output[str]] = []
        namespaces = dict[str, pulumi.Resource]()
        for _, tier in groupby(sorted(args["manifests"], key=get_tier), key=get_tier):
            made = list[pulumi.CustomResource]()
            for each in tier:
                # A mounted claim is released when its pod ends, with the namespace.
                inside = namespaces.get(each["metadata"].get("namespace", ""))
                opts = pulumi.ResourceOptions(parent=self, depends_on=list(before), deleted_with=inside)
                made.append(_declare(name, each, waits, opts))
                if each["kind"] == "Namespace":
                    namespaces[each["metadata"]["name"]] = made[-1]
            before = list(made)
            names += [each.urn for each in made]
        self.names = pulumi.Output.all(*names).apply(list)
        register_outputs(self)


def _declare(
    name: str, manifest: Manifest, waits: pulumi.Output[list[str]], opts: pulumi.ResourceOptions
) -> pulumi.CustomResource:
    meta = manifest["metadata"]
    token = get_token(manifest)
    forced = {"annotations": {"pulumi.com/patchForce": "true"}} if token.endswith("Patch") else {}
    body = {**manifest, "metadata": waits.apply(lambda _: {**meta, **forced})}
    if manifest["kind"] == "Namespace":
        ends = pulumi.CustomTimeouts(delete=_END_TIMEOUT)
        opts = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(custom_timeouts=ends))
    words = [name, manifest["kind"].lower(), *([meta["namespace"]] if "namespace" in meta else []), meta["name"]]
    return pulumi.CustomResource(token, "-".join(words), body, opts)


class ClusterChartsArgs(TypedDict):
    """Inputs of ClusterCharts: `gangway.components.kubernetes.charts`; parts of `values` may be outputs."""

    charts: Sequence[Chart]


class ClusterCharts(pulumi.ComponentResource):
    """One Helm release per chart; waits until it runs."""

    releases: pulumi.Output[list[str]]

    def __init__(self, name: str, args: ClusterChartsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:kubernetes:ClusterCharts", name, None, opts)
        made = dict[str, Release]()
        for chart in args["charts"]:
            needed = pulumi.ResourceOptions(parent=self, depends_on=[made[need] for need in chart.needs])
            made[chart.name] = _release(name, chart, needed)
        names: list[pulumi.Output[str]] = [release.urn for release in made.values()]
        self.releases = pulumi.Output.all(*names).apply(list)
        register_outputs(self)


def _release(name: str, chart: Chart, opts: pulumi.ResourceOptions) -> Release:
    return Release(
        f"{name}-{chart.name}",
        name=chart.name,
        chart=chart.chart,
        version=chart.version,
        repository_opts=None if chart.repository is None else RepositoryOptsArgs(repo=chart.repository),
        namespace=chart.namespace,
        create_namespace=chart.namespace != "kube-system",
        values=dict(chart.values),
        # A failed release is removed, so that the next `up` starts from scratch.
        atomic=True,
        timeout=INSTALL_TIMEOUT_SEC,
        opts=opts,
    )
