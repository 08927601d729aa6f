"""A team's namespace and its rules: unprivileged pods, jobs only through the queue, the fabric's settings; pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gangway.components.kubernetes.charts import KUEUE
from gangway.components.kubernetes.manifest import OURS, Manifest, manifest
from gangway.components.kubernetes.spec import FABRIC, FABRIC_KEY, ClusterSpec, Team

CLAIM = "gangway-runs"
"""The claim of run folders, as the Kubernetes engine names it."""
MEMBER_GROUP = "gangway:"
"""Prefix of a team's user group."""
_RBAC = "rbac.authorization.k8s.io/v1"
_READ, _MAKE = ["get", "list", "watch"], ["get", "list", "watch", "create", "patch", "delete"]

_NETWORK = "networking.k8s.io/v1"
_NOTHING_IN, _ONLY_OUTSIDE = "nothing-comes-in", "only-pods-and-internet"
CLOSED_RANGES = (
    *("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16"),
    *("169.254.0.0/16", "168.63.129.16/32"),
)
"""Ranges closed to teams' pods except for other pods: private networks with machines, the control plane and
unauthenticated file systems, and metadata services with credentials.
"""

_ADMISSION, RUNS_APART = "admissionregistration.k8s.io/v1", "gangway-runs-apart"
"""The policy that separates the teams' folders in the volume."""
_NETWORK_POLICY = "gangway-network-policies"
_BY_MEMBER = """!authorizer.group("networking.k8s.io").resource("networkpolicies").namespace(request.namespace)
    .check("deletecollection").allowed()"""
"""True for a user with only a member's permissions on policies. Kubernetes' controllers have more."""
_KEEPS_OURS = f'!(request.name in ["{_NOTHING_IN}", "{_ONLY_OUTSIDE}"])'
_INGRESS_ALONE = """request.operation == "DELETE" || (!has(object.spec.egress)
    && object.spec.policyTypes.all(t, t == "Ingress"))"""
_RUNS = f"""!has(object.spec.volumes) ? [] : object.spec.volumes.filter(v, has(v.persistentVolumeClaim)
    && v.persistentVolumeClaim.claimName == "{CLAIM}").map(v, v.name)"""
_ALL = "object.spec.containers + (has(object.spec.initContainers) ? object.spec.initContainers : [])"
_ITS_OWN = """variables.all.all(c, !has(c.volumeMounts) || c.volumeMounts.all(m, !(m.name in variables.runs)
    || (has(m.subPath) && m.subPath.matches(variables.own) && !has(m.subPathExpr))))"""
_NO_DEVICE = "variables.all.all(c, !has(c.volumeDevices) || c.volumeDevices.all(d, !(d.name in variables.runs)))"
_NOT_LATER = """!has(object.spec.ephemeralContainers) || object.spec.ephemeralContainers.all(c,
    (!has(c.volumeMounts) || c.volumeMounts.all(m, !(m.name in variables.runs)))
    && (!has(c.volumeDevices) || c.volumeDevices.all(d, !(d.name in variables.runs))))"""

RunVolume = Mapping[str, Any]
"""The source of a PersistentVolume, such as `{"csi": {...}}`; `volumeHandle` is optional."""


def namespace_manifests(spec: ClusterSpec, volume: RunVolume | None, size_gib: int = 0) -> tuple[Manifest, ...]:
    """Every team's manifests, and what its members may read of the cluster.

    Args:
        spec: of the cluster.
        volume: of run folders, shared by all teams with a folder each; None if the claims are made elsewhere.
        size_gib: required by Kubernetes, not enforced.
    """
    found = [each for team in spec.queues for each in _of_team(spec, team)]
    if volume is not None:
        found += [each for team in spec.queues for each in _claim(team.name, volume, size_gib)]
        found += _separate_folders()
    return (*found, *_guarded_policies(), *_cluster_reader(spec))


def _of_team(spec: ClusterSpec, team: Team) -> tuple[Manifest, ...]:
    return (
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": team.name,
                "labels": {
                    **OURS,
                    **{f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "audit", "warn")},
                },
            },
        },
        # Pods of one job may connect: the engine adds a policy per job.
        _team_manifest(
            team, _NETWORK, "NetworkPolicy", _NOTHING_IN, {"spec": {"podSelector": {}, "policyTypes": ["Ingress"]}}
        ),
        _team_manifest(team, _NETWORK, "NetworkPolicy", _ONLY_OUTSIDE, {"spec": _outgoing()}),
        _team_manifest(team, "v1", "ServiceAccount", "default", {"automountServiceAccountToken": False}),
        _team_manifest(team, "v1", "ResourceQuota", "gangway", {"spec": {"hard": _limits(spec)}}),
        _team_manifest(team, "v1", "ResourceQuota", "no-system-pods", {"spec": _no_system_pods()}),
        *_members(team),
    )


def _limits(spec: ClusterSpec) -> dict[str, str]:
    """Limits on what Kueue does not count: devices of pods that bypass it, and ways into the cluster."""
    devices = {f"requests.{name}": str(count * spec.max_nodes) for name, count in spec.node.devices.items()}
    return {
        "services.loadbalancers": "0",
        "services.nodeports": "0",
        **devices,
    }


def _outgoing() -> dict[str, Any]:
    """Allow other pods, the internet, and port 53: the resolver may be on a node, or at the metadata service."""
    dns = [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]
    return {
        "podSelector": {},
        "policyTypes": ["Egress"],
        "egress": [
            {"to": [{"namespaceSelector": {}}]},
            {"ports": dns},
            {"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": list(CLOSED_RANGES)}}]},
        ],
    }


def _no_system_pods() -> dict[str, Any]:
    """Forbid priority classes whose pods would evict those of other teams."""
    classes = ["system-cluster-critical", "system-node-critical"]
    matched = {"scopeName": "PriorityClass", "operator": "In", "values": classes}
    return {"hard": {"pods": "0"}, "scopeSelector": {"matchExpressions": [matched]}}


def _members(team: Team) -> tuple[Manifest, ...]:
    """What `gangway job` needs: members create JobSets, which are queued, and no pods, which are not."""
    rules = [
        {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": _MAKE},
        {"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": _MAKE},
        {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": _MAKE},
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": [*_READ, "patch"]},
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["localqueues"], "verbs": _READ},
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": _READ},
        {
            "apiGroups": [""],
            "resources": ["events", "persistentvolumeclaims", "pods", "pods/log"],
            "verbs": _READ,
        },
    ]
    return (
        _team_manifest(team, _RBAC, "Role", "gangway-member", {"rules": rules}),
        _team_manifest(
            team,
            _RBAC,
            "RoleBinding",
            "gangway-member",
            {
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "gangway-member"},
                "subjects": [_get_group(team)],
            },
        ),
    )


def _cluster_reader(spec: ClusterSpec) -> tuple[Manifest, ...]:
    """Quotas, priorities, network blocks and node names, readable by every member."""
    name = "gangway-member"
    rules = [
        {
            "apiGroups": [KUEUE.partition("/")[0]],
            "resources": ["clusterqueues", "resourceflavors", "topologies", "workloadpriorityclasses"],
            "verbs": _READ,
        },
        {"apiGroups": [""], "resources": ["nodes"], "verbs": _READ},
    ]
    bound = {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [_get_group(team) for team in spec.queues],
    }
    return (
        manifest(_RBAC, "ClusterRole", name, {"rules": rules}),
        manifest(_RBAC, "ClusterRoleBinding", name, bound),
    )


def _get_group(team: Team) -> dict[str, str]:
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": f"{MEMBER_GROUP}{team.name}"}


def _claim(team: str, volume: RunVolume, size_gib: int) -> tuple[Manifest, ...]:
    """An existing volume and the team's claim on it; deleting either keeps the data."""
    name, size = f"{CLAIM}-{team}", f"{size_gib}Gi"
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": "", "volumeMode": "Filesystem"}
    source = dict(volume)
    if "csi" in source:
        # Kubernetes treats volumes with one handle as one volume.
        source["csi"] = {**source["csi"], "volumeHandle": name}
    held = {
        **common,
        **source,
        "capacity": {"storage": size},
        "persistentVolumeReclaimPolicy": "Retain",
        "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": CLAIM, "namespace": team},
    }
    claimed = {**common, "resources": {"requests": {"storage": size}}, "volumeName": name}
    return (
        manifest("v1", "PersistentVolume", name, {"spec": held}),
        manifest("v1", "PersistentVolumeClaim", CLAIM, {"spec": claimed}, team),
    )


def _separate_folders() -> tuple[Manifest, ...]:
    """Keep pods out of other teams' folders in the shared volume.

    A run's folder is directly below its team's and mounted whole: the kubelet follows links in a `subPath`, and no pod
    can create one in these two folders.
    """
    names = {"runs": _RUNS, "all": _ALL, "own": "'^' + request.namespace + '/[^./][^/]*$'"}
    rules = [
        {"operations": [verb], "apiGroups": [""], "apiVersions": ["v1"], "resources": [resource]}
        for verb, resource in (("CREATE", "pods"), ("UPDATE", "pods/ephemeralcontainers"))
    ]
    validations = [
        {
            "expression": _ITS_OWN,
            "messageExpression": f"""'all teams share the volume of {CLAIM}: mount it with a subPath such as '
    + request.namespace + '/NAME, right below the folder of the namespace, and without subPathExpr'""",
        },
        {"expression": _NO_DEVICE, "message": f"{CLAIM} is no device: mount it in volumeMounts, with a subPath"},
        {"expression": _NOT_LATER, "message": f"a container that comes later has no subPath: leave {CLAIM} out"},
    ]
    variables = [{"name": name, "expression": expression} for name, expression in names.items()]
    return _admission(RUNS_APART, rules, validations, variables=variables)


def _guarded_policies() -> tuple[Manifest, ...]:
    """Members create a NetworkPolicy per job. Policies add up, so one with egress would undo `_outgoing`."""
    verbs, group = ["CREATE", "UPDATE", "DELETE"], _NETWORK.partition("/")[0]
    rule = {"operations": verbs, "apiGroups": [group], "apiVersions": ["v1"], "resources": ["networkpolicies"]}
    validations = [
        {"expression": _KEEPS_OURS, "message": "this policy keeps pods of all teams apart, and is not a member's"},
        {"expression": _INGRESS_ALONE, "message": "a member's policy is for ingress alone: write no egress"},
    ]
    conditions = [{"name": "by-member", "expression": _BY_MEMBER}]
    return _admission(_NETWORK_POLICY, [rule], validations, matchConditions=conditions)


def _admission(
    name: str, rules: list[dict[str, Any]], validations: list[dict[str, str]], **more: Any
) -> tuple[Manifest, ...]:
    matched = {"matchConstraints": {"resourceRules": rules}, "validations": validations}
    bound = {
        "policyName": name,
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": {"matchLabels": dict(OURS)}},
    }
    return (
        manifest(_ADMISSION, "ValidatingAdmissionPolicy", name, {"spec": {"failurePolicy": "Fail", **matched, **more}}),
        manifest(_ADMISSION, "ValidatingAdmissionPolicyBinding", name, {"spec": bound}),
    )


def _team_manifest(team: Team, version: str, kind: str, name: str, body: Mapping[str, Any]) -> Manifest:
    return manifest(version, kind, name, body, team.name)


def fabric_config(team: str, gpus: int, env: Mapping[str, str], *, needs: Sequence[str] = (), **more: Any) -> Manifest:
    """The ConfigMap, as `gangway.jobs.kubernetes.fabric.Fabric` reads it. `gpus`: per node; `env`: `fabric_variables`;
    `needs`: resources that pods must request to get the network; `more`: further keys of `Fabric`.
    """
    config = {"gpus": gpus, "needs": list(needs), "env": dict(env), **more}
    return manifest("v1", "ConfigMap", FABRIC, {"data": {FABRIC_KEY: json.dumps(config, indent=2)}}, team)
