"""Teams' namespaces: what pods and members may do, and the claim that the engine asks for."""

import re
from typing import Any

import pytest

from gangway.components.kubernetes.namespaces import CLAIM, namespace_manifests
from gangway.components.kubernetes.spec import GPU, ClusterSpec
from gangway.jobs.kubernetes import engine

LUSTRE = {"csi": {"driver": "fsx.csi.aws.com", "volumeAttributes": {"dnsname": "fs", "mountname": "m"}}}


def found(manifests: tuple[dict[str, Any], ...], kind: str, namespace: str | None = None) -> list[dict[str, Any]]:
    return [
        each
        for each in manifests
        if each["kind"] == kind and (namespace is None or each["metadata"].get("namespace") == namespace)
    ]


@pytest.mark.attack("a team of a shared Kubernetes", "its machine, by a pod with more rights")
@pytest.mark.attack("a team of a shared Kubernetes", "another team's running job, over the network")
def test_pods_of_a_team_are_restricted(two_teams: ClusterSpec) -> None:
    made = namespace_manifests(two_teams, None)
    for space in found(made, "Namespace"):
        labels = space["metadata"]["labels"]
        assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
        assert labels["app.kubernetes.io/managed-by"] == "gangway", "Kueue looks after what has it"
    assert [each["metadata"]["name"] for each in found(made, "Namespace")] == ["vision", "speech"]
    incoming, outgoing = found(made, "NetworkPolicy", "vision")
    assert incoming["spec"] == {"podSelector": {}, "policyTypes": ["Ingress"]}, "nothing comes in"
    assert outgoing["spec"]["podSelector"] == {}, "what goes out: tests/stacks/plan/test_team_access.py"
    assert {"to": [{"namespaceSelector": {}}]} in outgoing["spec"]["egress"], "to pods, which let in whom they will"
    [account] = found(made, "ServiceAccount", "vision")
    assert (account["metadata"]["name"], account["automountServiceAccountToken"]) == ("default", False)


def test_a_member_makes_jobs_that_wait_and_no_pods_that_do_not(two_teams: ClusterSpec) -> None:
    [role] = found(namespace_manifests(two_teams, None), "Role", "vision")
    allowed = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert ("jobset.x-k8s.io", "jobsets", "create") in allowed
    makes = {resource for _, resource, verb in allowed if verb in ("create", "patch", "delete", "update", "*")}
    assert makes == {"jobsets", "configmaps", "secrets", "networkpolicies", "workloads"}
    assert ("kueue.x-k8s.io", "workloads", "create") not in allowed
    assert "*" not in {word for entry in allowed for word in entry}


def test_devices_are_limited_where_kueue_does_not_count(two_teams: ClusterSpec) -> None:
    quota, critical = found(namespace_manifests(two_teams, None), "ResourceQuota", "speech")
    assert quota["spec"]["hard"][f"requests.{GPU}"] == "64"
    assert quota["spec"]["hard"]["services.loadbalancers"] == "0"
    assert critical["spec"]["hard"] == {"pods": "0"}
    [scope] = critical["spec"]["scopeSelector"]["matchExpressions"]
    assert set(scope["values"]) == {"system-cluster-critical", "system-node-critical"}, "they would evict others' pods"


def test_every_team_has_a_claim_on_the_one_volume(two_teams: ClusterSpec) -> None:
    assert CLAIM == engine.CLAIM
    made = namespace_manifests(two_teams, LUSTRE, 1200)
    volumes = found(made, "PersistentVolume")
    assert len({each["spec"]["csi"]["volumeHandle"] for each in volumes}) == 2, "one handle would be one volume"
    for volume, team in zip(volumes, ("vision", "speech"), strict=True):
        [claim] = found(made, "PersistentVolumeClaim", team)
        assert claim["metadata"]["name"] == CLAIM
        assert claim["spec"]["volumeName"] == volume["metadata"]["name"]
        assert volume["spec"]["claimRef"]["namespace"] == team
        assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
        assert claim["spec"]["storageClassName"] == "", "no class makes another volume"
    assert "volumeHandle" not in LUSTRE["csi"], "what was given is left as it was"
    assert not found(namespace_manifests(two_teams, None), "PersistentVolume")


def test_where_all_teams_share_a_volume_their_pods_mount_no_more_than_their_own(two_teams: ClusterSpec) -> None:
    """What it lets pass is judged by a real API server (tests/gangway/jobs/kubernetes/test_own_cluster.py)."""
    made = namespace_manifests(two_teams, LUSTRE, 1200)
    policies, bindings = (found(made, f"ValidatingAdmissionPolicy{kind}") for kind in ("", "Binding"))
    assert len(policies) == len(bindings) == 2
    for policy, bound in zip(policies, bindings, strict=True):
        assert policy["spec"]["failurePolicy"] == "Fail"
        name = policy["metadata"]["name"]
        assert (bound["spec"]["policyName"], bound["spec"]["validationActions"]) == (name, ["Deny"])
        wanted = bound["spec"]["matchResources"]["namespaceSelector"]["matchLabels"].items()
        assert all(wanted <= space["metadata"]["labels"].items() for space in found(made, "Namespace"))
    [rule] = policies[1]["spec"]["matchConstraints"]["resourceRules"]
    assert (rule["resources"], {*rule["operations"]}) == (["networkpolicies"], {"CREATE", "UPDATE", "DELETE"})
    names = [
        each["metadata"]["name"] for each in found(namespace_manifests(two_teams, None), "ValidatingAdmissionPolicy")
    ]
    assert names == ["gangway-network-policies"]


@pytest.mark.parametrize("path", ["mine-3-0123456789abcdef", "speech/mine", "vision", "vision/.", "vision/mine/link"])
def test_a_pod_may_mount_only_a_folder_right_below_its_teams(two_teams: ClusterSpec, path: str) -> None:
    policy = found(namespace_manifests(two_teams, LUSTRE, 1200), "ValidatingAdmissionPolicy")[0]
    variables = {each["name"]: each["expression"] for each in policy["spec"]["variables"]}
    pattern = variables["own"].replace("' + request.namespace + '", "vision").strip("'")
    assert re.search(pattern, "vision/mine-3-0123456789abcdef")
    assert not re.search(pattern, path)
