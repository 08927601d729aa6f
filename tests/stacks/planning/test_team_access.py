"""What a team of a shared cluster reaches: RBAC, IAM and network policies of each Kubernetes stack's plan, judged as
the cluster and the cloud would judge them (simulated); and the table that is made of them.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest

from components.kubernetes.namespaces import MEMBER_GROUP
from stacks.config.loader import from_file
from stacks.config.stack_config import StackConfig
from stacks.planning.recording import PlannedResource, Recording
from stacks.planning.team_access import team_access

STACKS = Path(__file__).resolve().parents[3] / "stacks"
NAMES = ("aks-ndv5", "eks-p5-kueue", "gke-a3-jobset", "gke-tpu-v5e")
Resources = Sequence[PlannedResource]
TEAM = "a team of a shared Kubernetes"
CLUSTERS = ("aws:eks/cluster:Cluster", "gcp:container/cluster:Cluster", "azure-native:containerservice:ManagedCluster")


@pytest.fixture(scope="session", params=NAMES)
def resources(request: pytest.FixtureRequest, recorded: Callable[[StackConfig], Recording]) -> Resources:
    """Everything that a Kubernetes stack declares."""
    return recorded(from_file(STACKS / f"Pulumi.{request.param}.yaml")).resources


def inside(resources: Resources, *kinds: str) -> list[dict[str, Any]]:
    return [
        each.inputs for each in resources if each.type.startswith("kubernetes:") and each.inputs.get("kind") in kinds
    ]


def teams_of(resources: Resources) -> list[str]:
    return [each["metadata"]["name"] for each in inside(resources, "Namespace")]


def permits(resources: Resources, user: str, groups: set[str], verb: str, kind: str, namespace: str | None) -> bool:
    """As RBAC decides; `kind` is `resource.group` or `resource` of the core, `namespace` None for the whole cluster."""
    resource, _, group = kind.partition(".")

    def named(subject: Mapping[str, str]) -> bool:
        if subject["kind"] == "ServiceAccount":
            return user == f"system:serviceaccount:{subject['namespace']}:{subject['name']}"
        return subject["name"] in (groups if subject["kind"] == "Group" else {user})

    for binding in inside(resources, "RoleBinding", "ClusterRoleBinding"):
        place = binding["metadata"].get("namespace")
        if place not in (None, namespace) or not any(map(named, binding["subjects"])):
            continue
        for role in inside(resources, binding["roleRef"]["kind"]):
            meta = role["metadata"]
            if meta["name"] != binding["roleRef"]["name"] or meta.get("namespace") not in (None, place):
                continue
            assert "aggregationRule" not in role
            for rule in role["rules"]:
                if all(
                    word in rule[key] or "*" in rule[key]
                    for key, word in (("apiGroups", group), ("resources", resource), ("verbs", verb))
                ):
                    return True
    return False


def member(team: str) -> tuple[str, set[str]]:
    return "ada", {f"{MEMBER_GROUP}{team}", "system:authenticated"}


def pod(team: str, account: str = "default") -> tuple[str, set[str]]:
    groups = {"system:serviceaccounts", f"system:serviceaccounts:{team}", "system:authenticated"}
    return f"system:serviceaccount:{team}:{account}", groups


VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "bind", "escalate",
         "impersonate")  # fmt: skip
OWN = ("configmaps", "secrets", "jobsets.jobset.x-k8s.io", "networkpolicies.networking.k8s.io")
SEEN = ("events", "jobs.batch", "localqueues.kueue.x-k8s.io", "persistentvolumeclaims", "pods", "pods/log",
        "workloads.kueue.x-k8s.io")  # fmt: skip
NEVER = ("pods/exec", "pods/attach", "pods/portforward", "pods/ephemeralcontainers", "serviceaccounts",
         "serviceaccounts/token", "resourcequotas", "services", "namespaces", "nodes/proxy", "persistentvolumes",
         "roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io",
         "clusterrolebindings.rbac.authorization.k8s.io", "workloads/status.kueue.x-k8s.io",
         "validatingadmissionpolicies.admissionregistration.k8s.io", "users", "groups")  # fmt: skip


@pytest.mark.attack(TEAM, "another team's pods, logs, secrets and queues")
def test_a_member_has_no_verb_in_another_namespace(resources: Resources) -> None:
    teams = teams_of(resources)
    for team in teams:
        for place in {*teams, "kube-system", "default", "kueue-system"} - {team}:
            for kind in (*OWN, *SEEN, *NEVER):
                assert not [verb for verb in VERBS if permits(resources, *member(team), verb, kind, place)], (
                    kind,
                    place,
                )


@pytest.mark.attack(TEAM, "rights that nobody gave it")
def test_a_member_makes_jobs_in_its_own_namespace_and_takes_no_further_rights(resources: Resources) -> None:
    for team in teams_of(resources):
        may = {
            kind: {verb for verb in VERBS if permits(resources, *member(team), verb, kind, team)}
            for kind in (*OWN, *SEEN, *NEVER)
        }
        read = {"get", "list", "watch"}
        assert all(may[kind] == read | {"create", "patch", "delete"} for kind in OWN)
        assert all(may[kind] == (read | {"patch"} if "workloads" in kind else read) for kind in SEEN)
        assert not [kind for kind in NEVER if may[kind]]
        everywhere = {kind for kind in (*OWN, *SEEN, *NEVER) if permits(resources, *member(team), "get", kind, None)}
        assert not everywhere


@pytest.mark.attack(TEAM, "the cluster's API, from a pod")
def test_a_pods_service_account_has_no_right(resources: Resources) -> None:
    for team in teams_of(resources):
        for kind in (*OWN, *SEEN, *NEVER):
            for place in (None, *teams_of(resources)):
                assert not [verb for verb in VERBS if permits(resources, *pod(team), verb, kind, place)]


@pytest.mark.attack(TEAM, "its machine, by a pod with more rights")
def test_every_teams_pods_are_restricted_by_pod_security(resources: Resources) -> None:
    assert teams_of(resources)
    for space in inside(resources, "Namespace"):
        assert space["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
        team = space["metadata"]["name"]
        assert not [verb for verb in VERBS if permits(resources, *member(team), verb, "namespaces", team)]


# --- The clouds' IAM ---


def assumed(resources: Resources, cluster: str, namespace: str, account: str) -> list[str]:
    """Names of the cloud's grants that a pod gets. `cluster`: the id by which the cloud knows the pod's cluster. Where
    an association has to name the role first, the cluster's owner has made one.
    """
    return [*_of_aws(resources, cluster, namespace, account), *_of_google(resources, cluster, namespace, account),
            *_of_azure(resources, cluster, namespace, account)]  # fmt: skip


def _of_aws(resources: Resources, cluster: str, namespace: str, account: str) -> Iterator[str]:
    tags = {"eks-cluster-arn": cluster, "kubernetes-namespace": namespace, "kubernetes-service-account": account}
    known = {f"aws:RequestTag/{tag}": value for tag, value in tags.items()}
    for role in resources:
        if not role.type.startswith("aws:iam/role:"):
            continue
        for statement in json.loads(role.inputs["assumeRolePolicy"])["Statement"]:
            service = statement["Principal"].get("Service")
            assert service, f"{role.name}: {statement['Principal']} is no service: judge it here"
            conditions = statement.get("Condition", {})
            if service == "pods.eks.amazonaws.com":
                assert set(conditions) <= {"StringEquals"}
                if all(known[key] == value for key, value in conditions.get("StringEquals", {}).items()):
                    yield role.name


def _of_google(resources: Resources, cluster: str, namespace: str, account: str) -> Iterator[str]:
    """Workload identity knows a pod by its project, namespace and account; in one form of a member by its cluster."""
    for grant in resources:
        if not re.search(r"^gcp:.*(IAM|Iam)(Member|Binding|Policy)$", grant.type):
            continue
        assert "member" in grant.inputs, f"{grant.name} is no single member: judge it here"
        who = grant.inputs["member"]
        by_id = re.fullmatch(
            r"principal(?:Set)?://iam\.googleapis\.com/.*?/workloadIdentityPools/[^/]+\.svc\.id\.goog/(.+)", who
        )
        if who in ("allUsers", "allAuthenticatedUsers") or who.endswith(f".svc.id.goog[{namespace}/{account}]"):
            yield grant.name
        elif by_id:
            own = (
                f"namespace/{namespace}",
                f"subject/ns/{namespace}/sa/{account}",
                f"kubernetes.cluster/{cluster}",
                "*",
            )
            if by_id[1] in own:
                yield grant.name
        else:
            assert re.match(r"serviceAccount:[^\[]+$|\$\{\w+\.[\w.-]+\.member\}$", who), (
                f"{grant.name}: judge {who} here"
            )


def _of_azure(resources: Resources, cluster: str, namespace: str, account: str) -> Iterator[str]:
    for found in resources:
        if found.type.endswith(":FederatedIdentityCredential"):
            subject = f"system:serviceaccount:{namespace}:{account}"
            if (found.inputs["issuer"], found.inputs["subject"]) == (f"${{{cluster}.issuer}}", subject):
                yield found.name


def own_cluster(resources: Resources) -> str:
    (cluster,) = (each for each in resources if each.type in CLUSTERS)
    kind = cluster.type.rpartition(":")[2]
    return f"${{{kind}.{cluster.name}.arn}}" if cluster.type.startswith("aws:") else f"{kind}.{cluster.name}"


@pytest.mark.attack(TEAM, "wants another team's results")
def test_a_teams_pods_get_nothing_of_the_clouds(resources: Resources) -> None:
    for team in teams_of(resources):
        for account in ("default", "jobs", "cluster-autoscaler", "aws-node"):
            assert assumed(resources, own_cluster(resources), team, account) == []


@pytest.mark.attack("a namespace of the same name in another cluster", "a stack's results and rights")
def test_no_namespace_of_another_cluster_gets_anything(resources: Resources) -> None:
    for namespace in (*teams_of(resources), "kube-system"):
        for account in ("default", "cluster-autoscaler", "aws-node"):
            assert assumed(resources, "arn:aws:eks:us-east-2:1:cluster/another", namespace, account) == []


def planted(kind: str, name: str, **inputs: Any) -> PlannedResource:
    return PlannedResource(f"urn:{name}", kind, name, "", True, inputs, name)


POOL = "iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p.svc.id.goog"
TRUST = {"Effect": "Allow", "Principal": {"Service": "pods.eks.amazonaws.com"}, "Action": "sts:AssumeRole"}
MEMBER = "gcp:storage/bucketIAMMember:BucketIAMMember"
GRANTS = {
    "a namespace on Google": (MEMBER, {"member": f"principalSet://{POOL}/namespace/vision", "role": "objectUser"}),
    "an account on Google": (MEMBER, {"member": "serviceAccount:p.svc.id.goog[vision/default]", "role": "r"}),
    "everybody": (MEMBER, {"member": "allUsers", "role": "r"}),
    "any association": ("aws:iam/role:Role", {"assumeRolePolicy": json.dumps({"Statement": [TRUST]})}),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "inputs"), GRANTS.values(), ids=GRANTS)
def test_a_grant_that_names_no_cluster_is_found(kind: str, inputs: dict[str, Any]) -> None:
    """The judge itself: what counted in every cluster of the project or account."""
    assert assumed([planted(kind, "wide", **inputs)], "another", "vision", "default") == ["wide"]


def test_a_grant_that_names_its_cluster_counts_there_alone() -> None:
    tags = {"eks-cluster-arn": "own", "kubernetes-namespace": "vision", "kubernetes-service-account": "default"}
    wanted = {"StringEquals": {f"aws:RequestTag/{tag}": value for tag, value in tags.items()}}
    role = {"assumeRolePolicy": json.dumps({"Statement": [{**TRUST, "Condition": wanted}]})}
    trusted = {"issuer": "${own.issuer}", "subject": "system:serviceaccount:vision:default"}
    grants = [
        planted("aws:iam/role:Role", "role", **role),
        planted("azure-native:managedidentity:FederatedIdentityCredential", "federated", **trusted),
        planted(MEMBER, "google", member=f"principalSet://{POOL}/kubernetes.cluster/own"),
    ]
    assert assumed(grants, "own", "vision", "default") == ["role", "google", "federated"]
    assert assumed(grants, "another", "vision", "default") == []
    assert assumed(grants, "own", "speech", "default") == ["google"], "a whole cluster is no one team's"


def test_a_grant_of_the_clouds_has_a_row_without_a_cluster(resources: Resources) -> None:
    """The table tells what the plan holds, whatever it holds."""
    if "vision" not in teams_of(resources):
        pytest.skip("has one team")
    kind, inputs = GRANTS["a namespace on Google"]
    rows = team_access("demo", [*resources, planted(kind, "wide", **inputs)])
    [row] = [each for each in rows if each.cluster == "" and each.permissions]
    assert (row.team, row.resource, row.permissions) == (
        "vision", "BucketIAMMember wide", ("objectUser",)
    )  # fmt: skip


# --- The network ---


def lets_out(resources: Resources, team: str, address: str, port: int) -> bool:
    """Whether a pod of the team may connect to an address that is no pod's: by some rule of some policy."""
    policies = [each["spec"] for each in inside(resources, "NetworkPolicy") if each["metadata"]["namespace"] == team]
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


CLOSED = {
    "metadata": ("169.254.169.254", 80),
    "Google's metadata server of nodes": ("169.254.169.252", 988),
    "EKS's agent of pod identity": ("169.254.170.23", 80),
    "Azure's wire server": ("168.63.129.16", 80),
    "Azure's settings of extensions": ("168.63.129.16", 32526),
    "a file system of the stack, by Lustre": ("10.42.0.9", 988),
    "a share of Filestore": ("10.143.7.2", 2049),
    "the same in other ranges": ("172.20.1.2", 2049),
    "and in the last": ("192.168.9.2", 111),
    "a kubelet": ("10.42.0.17", 10250),
    "a machine in the pods' range": ("100.64.3.1", 22),
}


@pytest.mark.attack(TEAM, "its machine's credentials, or the file system without the mount")
@pytest.mark.parametrize(("address", "port"), CLOSED.values(), ids=CLOSED)
def test_a_pod_connects_to_no_machine(resources: Resources, address: str, port: int) -> None:
    assert not [team for team in teams_of(resources) if lets_out(resources, team, address, port)]


def test_a_pod_reaches_the_internet_names_and_its_peers(resources: Resources) -> None:
    for team in teams_of(resources):
        assert lets_out(resources, team, "93.184.216.34", 443)
        assert lets_out(resources, team, "169.254.20.10", 53)
        rules = [
            rule
            for each in inside(resources, "NetworkPolicy")
            if each["metadata"]["namespace"] == team
            for rule in each["spec"].get("egress", ())
        ]
        assert {"to": [{"namespaceSelector": {}}]} in rules


@pytest.mark.attack(TEAM, "another team's running job, over the network")
def test_no_pod_is_connected_to_but_by_a_policy_of_its_job(resources: Resources) -> None:
    for team in teams_of(resources):
        own = [each["spec"] for each in inside(resources, "NetworkPolicy") if each["metadata"]["namespace"] == team]
        assert [each for each in own if each["podSelector"] == {} and "Ingress" in each["policyTypes"]]
        assert not [each for each in own if each.get("ingress")]


@pytest.mark.attack(TEAM, "its machine's credentials, or the file system without the mount")
def test_machines_give_pods_no_credentials_of_theirs_where_the_cloud_can_refuse(resources: Resources) -> None:
    """A second wall; Azure has none that is no preview."""
    for each in resources:
        if each.type.endswith(":LaunchTemplate"):
            assert each.inputs["metadataOptions"]["httpPutResponseHopLimit"] == 1
        if each.type.endswith("/nodePool:NodePool"):
            assert each.inputs["nodeConfig"]["workloadMetadataConfig"] == {"mode": "GKE_METADATA"}


@pytest.mark.attack(TEAM, "its machine's credentials, or the file system without the mount")
def test_members_policies_open_no_way_out(resources: Resources) -> None:
    """Policies add up. The expressions are judged by a real API server (engines/kubernetes/test_own_cluster.py)."""
    (policy,) = (
        each["spec"]
        for each in inside(resources, "ValidatingAdmissionPolicy")
        if each["metadata"]["name"] == "gangway-network-policies"
    )
    [rule] = policy["matchConstraints"]["resourceRules"]
    assert (rule["resources"], set(rule["operations"])) == (["networkpolicies"], {"CREATE", "UPDATE", "DELETE"})
    bound = [each["spec"] for each in inside(resources, "ValidatingAdmissionPolicyBinding")]
    selected = [each["matchResources"]["namespaceSelector"]["matchLabels"] for each in bound]
    for space in inside(resources, "Namespace"):
        assert all(labels.items() <= space["metadata"]["labels"].items() for labels in selected)
    for team in teams_of(resources):
        may = permits(resources, *member(team), "deletecollection", "networkpolicies.networking.k8s.io", team)
        assert not may, "by this the policy knows who is no member"


# --- The table ---


def test_each_row_holds_in_the_stacks_own_cluster_and_in_the_teams_own_place(resources: Resources) -> None:
    rows = team_access("demo", resources)
    assert {row.team for row in rows} == set(teams_of(resources))
    for row in rows:
        assert row.cluster == "demo" or not row.permissions
        if set(row.permissions) - {"get", "list", "watch"}:
            assert row.where in (f"namespace {row.team}", f"folder {row.team}/")


def test_the_table_says_what_rbac_decides(resources: Resources) -> None:
    for row in team_access("demo", resources):
        if row.principal.startswith("group "):
            place = None if row.where == "whole cluster" else row.where.removeprefix("namespace ")
            may = {verb for verb in VERBS if permits(resources, *member(row.team), verb, row.resource, place)}
            assert may == set(row.permissions)


@pytest.mark.attack(TEAM, "wants another team's results")
def test_run_folders_are_one_volume_of_which_each_team_has_its_folder(resources: Resources) -> None:
    claims = [row for row in team_access("demo", resources) if row.resource.startswith("claim ")]
    assert len({row.where for row in claims}) == len(claims)
    assert all(row.where == f"folder {row.team}/" for row in claims)
    without = [each for each in resources if each.inputs.get("kind") != "ValidatingAdmissionPolicyBinding"]
    assert all(row.where == "all of it" for row in team_access("demo", without) if row.resource.startswith("claim "))
