"""What a team of a shared cluster may do, by each Kubernetes stack's plan: the table, the clouds' IAM, the network."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest

from gangway.components.kubernetes.namespaces import MEMBER_GROUP
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.team_access import TeamAccess, team_access
from gangway.stacks.recording import PlannedResource, Recording

STACKS = Path(__file__).resolve().parents[3] / "stacks"
Resources = Sequence[PlannedResource]
TEAM = "a team of a shared Kubernetes"
READ, MAKE = {"get", "list", "watch"}, {"get", "list", "watch", "create", "patch", "delete"}
MAY = {
    **dict.fromkeys(("configmaps", "secrets", "jobsets.jobset.x-k8s.io", "networkpolicies.networking.k8s.io"), MAKE),
    **dict.fromkeys(("events", "jobs.batch", "localqueues.kueue.x-k8s.io", "persistentvolumeclaims"), READ),
    **{"pods": READ, "pods/log": READ, "workloads.kueue.x-k8s.io": READ | {"patch"}},
}
"""What a member may do with what, in the team's own namespace alone."""
KUEUE = ("clusterqueues", "resourceflavors", "topologies", "workloadpriorityclasses")
SEEN = ("nodes", *(f"{kind}.kueue.x-k8s.io" for kind in KUEUE))
"""What members may read in the whole cluster."""


@pytest.fixture(scope="session", params=["aks-ndv5", "eks-p5-kueue", "gke-a3-jobset", "gke-tpu-v5e"])
def resources(request: pytest.FixtureRequest, recorded: Callable[[StackConfig], Recording]) -> Resources:
    """Everything that a Kubernetes stack declares."""
    return recorded(from_file(STACKS / f"Pulumi.{request.param}.yaml")).resources


@pytest.fixture(scope="session")
def of_eks(recorded: Callable[[StackConfig], Recording]) -> Resources:
    return recorded(from_file(STACKS / "Pulumi.eks-p5-kueue.yaml")).resources


def manifests(resources: Resources, *kinds: str) -> list[dict[str, Any]]:
    return [
        each.inputs for each in resources if each.type.startswith("kubernetes:") and each.inputs.get("kind") in kinds
    ]


def teams_of(resources: Resources) -> list[str]:
    return [each["metadata"]["name"] for each in manifests(resources, "Namespace")]


def excess(resources: Resources) -> list[TeamAccess]:
    """The rows of the table by which a team may do more than it should."""
    found = []
    for row in team_access("demo", resources):
        own, may = row.where == f"namespace {row.team}", set(row.permissions)
        is_member = row.principal == f"group {MEMBER_GROUP}{row.team}" and row.cluster == "demo"
        is_pod = row.principal == f"pods of {row.team}"
        folder = (row.resource, row.where, row.cluster) == ("claim gangway-runs", f"folder {row.team}/", "demo")
        cluster_wide = row.where == "whole cluster" and row.resource in SEEN and may <= READ
        allowed = is_member and ((own and may <= MAY.get(row.resource, set())) or cluster_wide)
        if not (allowed or (is_pod and (folder or not may))):
            found.append(row)
    return found


@pytest.mark.slow
@pytest.mark.attack(TEAM, "another team's pods, logs, secrets and queues")
@pytest.mark.attack(TEAM, "rights that nobody gave it")
@pytest.mark.attack(TEAM, "the cluster's API, from a pod")
@pytest.mark.attack(TEAM, "wants another team's results")
def test_a_team_may_use_its_own_namespace_and_folder_alone(resources: Resources) -> None:
    assert excess(resources) == []
    rows = team_access("demo", resources)
    for team in teams_of(resources):
        own = {row.resource: {*row.permissions} for row in rows if row.where == f"namespace {team}"}
        assert own == MAY


def planted(type_: str, **inputs: Any) -> PlannedResource:
    return PlannedResource("urn:planted", type_, "planted", "", True, inputs, "planted")


RULE = {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create"]}
ROLE = {"kind": "ClusterRole", "metadata": {"name": "wide"}, "rules": [RULE]}


@pytest.mark.parametrize(
    ("subject", "namespace"),
    [
        ({"kind": "Group", "name": "gangway:{team}"}, "{team}"),
        ({"kind": "Group", "name": "gangway:{team}"}, "kube-system"),
        ({"kind": "Group", "name": "system:serviceaccounts:{team}"}, None),
        ({"kind": "Group", "name": "system:authenticated"}, None),
        ({"kind": "ServiceAccount", "namespace": "{team}", "name": "default"}, "{team}"),
    ],
)
def test_a_binding_that_gives_a_team_more_is_found(
    of_eks: Resources, subject: dict[str, str], namespace: str | None
) -> None:
    team = teams_of(of_eks)[0]
    bound = {
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": {"name": "wide", **({"namespace": namespace.format(team=team)} if namespace else {})},
        "roleRef": {"kind": "ClusterRole", "name": "wide"},
        "subjects": [{key: text.format(team=team) for key, text in subject.items()}],
    }
    more = [planted("kubernetes:yaml:role", **ROLE), planted("kubernetes:yaml:binding", **bound)]
    assert next((row.team, row.resource) for row in excess([*of_eks, *more])) == (team, "pods/exec")


def test_without_the_policy_that_keeps_folders_apart_a_team_has_all_of_the_volume(of_eks: Resources) -> None:
    without = [each for each in of_eks if each.inputs.get("kind") != "ValidatingAdmissionPolicyBinding"]
    assert {(row.team, row.where) for row in excess(without)} == {(team, "all of it") for team in teams_of(of_eks)}


# --- The clouds' IAM: no identity of the cloud is a team's, and one of the system counts in its own cluster alone ---


def wide_grants(resources: Resources) -> Iterator[str]:
    clusters = [each.name for each in resources if each.type == "aws:eks/cluster:Cluster"]
    for each in resources:
        if each.type.startswith("aws:iam/role:"):
            for statement in json.loads(each.inputs["assumeRolePolicy"])["Statement"]:
                conditions = statement.get("Condition", {}).get("StringEquals", {})
                own = {
                    "aws:RequestTag/eks-cluster-arn": [f"${{Cluster.{name}.arn}}" for name in clusters],
                    "aws:RequestTag/kubernetes-namespace": ["kube-system"],
                    "aws:RequestTag/kubernetes-service-account": ["aws-node", "cluster-autoscaler"],
                }
                service = statement["Principal"].get("Service")
                pods = service is None or service == "pods.eks.amazonaws.com"
                if pods and not all(conditions.get(key) in values for key, values in own.items()):
                    yield each.name
        elif each.type.startswith("gcp:") and each.type.lower().endswith(("iammember", "iambinding", "iampolicy")):
            member = each.inputs.get("member", "allUsers")
            if member.startswith(("all", "principal")) or "svc.id.goog" in member:
                yield each.name
        elif each.type.endswith(":FederatedIdentityCredential"):
            yield each.name


@pytest.mark.attack(TEAM, "wants another team's results")
@pytest.mark.attack("a namespace of the same name in another cluster", "a stack's results and rights")
def test_no_pod_of_a_team_or_of_another_cluster_has_an_identity_of_the_cloud(resources: Resources) -> None:
    assert list(wide_grants(resources)) == []


POOL = "iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p.svc.id.goog"
TRUST = {"Effect": "Allow", "Principal": {"Service": "pods.eks.amazonaws.com"}, "Action": "sts:AssumeRole"}
MEMBER = "gcp:storage/bucketIAMMember:BucketIAMMember"
GRANTS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "a namespace on Google": (MEMBER, {"member": f"principalSet://{POOL}/namespace/vision", "role": "objectUser"}),
    "an account on Google": (MEMBER, {"member": "serviceAccount:p.svc.id.goog[vision/default]"}),
    "everybody": (MEMBER, {"member": "allUsers"}),
    "any association": ("aws:iam/role:Role", {"assumeRolePolicy": json.dumps({"Statement": [TRUST]})}),
    "an account on Azure": ("azure-native:managedidentity:FederatedIdentityCredential", {"subject": "x"}),
}


@pytest.mark.parametrize(("type_", "inputs"), GRANTS.values(), ids=GRANTS)
def test_a_planted_grant_is_found(type_: str, inputs: dict[str, Any]) -> None:
    assert list(wide_grants([planted(type_, **inputs)])) == ["planted"]


def test_a_grant_of_the_clouds_has_a_row_without_a_cluster(of_eks: Resources) -> None:
    team = teams_of(of_eks)[0]
    grant = planted(MEMBER, member=f"principalSet://{POOL}/namespace/{team}", role="objectUser")
    (row,) = excess([*of_eks, grant])
    assert (row.team, row.cluster, row.resource, row.permissions) == (
        *(team, "", "BucketIAMMember planted", ("objectUser",)),
    )


# --- The network ---


def lets_out(resources: Resources, team: str, address: str, port: int) -> bool:
    """Whether a pod of the team may connect to an address that is no pod's: by some rule of some policy."""
    policies = [each["spec"] for each in manifests(resources, "NetworkPolicy") if each["metadata"]["namespace"] == team]
    closing = [each for each in policies if "Egress" in each["policyTypes"] and not each["podSelector"]]
    assert closing, "without a policy everything goes out"

    def block(to: Mapping[str, Any]) -> bool:
        found = to.get("ipBlock", {"cidr": "0.0.0.0/32"})
        excepted = [ip_network(left) for left in found.get("except", ())]
        return ip_address(address) in ip_network(found["cidr"]) and not any(ip_address(address) in e for e in excepted)

    return any(
        (not rule.get("to") or any(map(block, rule["to"])))
        and (not rule.get("ports") or port in [each["port"] for each in rule["ports"]])
        for policy in policies
        for rule in policy.get("egress", ())
    )


CLOSED = [
    *(("169.254.169.254", 80), ("169.254.169.252", 988), ("169.254.170.23", 80)),  # metadata; of Google's nodes; EKS's
    *(("168.63.129.16", 80), ("168.63.129.16", 32526)),  # Azure's wire server, and its settings of extensions
    *(("10.42.0.9", 988), ("10.143.7.2", 2049), ("172.20.1.2", 2049), ("192.168.9.2", 111)),  # file systems
    *(("10.42.0.17", 10250), ("100.64.3.1", 22)),  # a kubelet; a machine in the pods' range
]


@pytest.mark.attack(TEAM, "its machine's credentials, or the file system without the mount")
def test_a_pod_connects_to_the_internet_names_and_its_peers_alone(resources: Resources) -> None:
    for team in teams_of(resources):
        assert [place for place in CLOSED if lets_out(resources, team, *place)] == []
        assert lets_out(resources, team, "93.184.216.34", 443)
        assert lets_out(resources, team, "169.254.20.10", 53)


@pytest.mark.attack(TEAM, "its machine's credentials, or the file system without the mount")
def test_machines_give_pods_no_credentials_of_theirs_where_the_cloud_can_refuse(resources: Resources) -> None:
    """A second wall; Azure has none that is no preview."""
    for each in resources:
        if each.type.endswith(":LaunchTemplate"):
            assert each.inputs["metadataOptions"]["httpPutResponseHopLimit"] == 1
        if each.type.endswith("/nodePool:NodePool"):
            assert each.inputs["nodeConfig"]["workloadMetadataConfig"] == {"mode": "GKE_METADATA"}


@pytest.mark.attack(TEAM, "its machine's credentials, or the file system without the mount")
def test_a_policy_of_a_members_own_is_judged_in_every_teams_namespace(resources: Resources) -> None:
    """Policies add up. The expressions are judged by a real API server (engines/kubernetes/test_own_cluster.py)."""
    found = list(manifests(resources, "ValidatingAdmissionPolicy"))
    [policy] = [each["spec"] for each in found if each["metadata"]["name"] == "gangway-network-policies"]
    [rule] = policy["matchConstraints"]["resourceRules"]
    assert (rule["resources"], set(rule["operations"])) == (["networkpolicies"], {"CREATE", "UPDATE", "DELETE"})
    [binding] = [
        each["spec"]
        for each in manifests(resources, "ValidatingAdmissionPolicyBinding")
        if each["spec"]["policyName"] == "gangway-network-policies"
    ]
    selected = binding["matchResources"]["namespaceSelector"]["matchLabels"]
    for space in manifests(resources, "Namespace"):
        assert selected.items() <= space["metadata"]["labels"].items()
