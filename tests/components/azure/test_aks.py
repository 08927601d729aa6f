"""AksCluster and its identities: private, without accounts of its own, and no more rights than are used."""

from collections.abc import Callable
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from gangway.components.azure.aks import DNS_ADDRESS, PODS_CIDR, SERVICES_CIDR, AksCluster
from gangway.components.azure.aks_identity import AksIdentity


@pytest.fixture
def args(place: dict[str, Any]) -> dict[str, Any]:
    """Arguments of AksCluster, to be varied."""
    return {
        "resource_group_name": place["resource_group_name"],
        "location": place["location"],
        "zone": "1",
        "tenant_id": "11111111-1111-1111-1111-111111111111",
        "version": "1.36",
        "idle_minutes": 25,
        "subnet_id": "/subnet",
        "identity_id": "/cluster",
        "kubelet_identity_id": "/node",
        "kubelet_client_id": "44444444-4444-4444-4444-444444444444",
        "kubelet_object_id": "55555555-5555-5555-5555-555555555555",
        "disk_encryption_set_id": "/disks",
        "workspace_id": "/workspace",
        "tags": place["tags"],
    }


@pytest.fixture
def cluster(make: Callable[..., Any], args: dict[str, Any]) -> Callable[..., dict[str, Any]]:
    """What a cluster is declared with."""

    def run(**changes: Any) -> dict[str, Any]:
        inputs: dict[str, Any] = make(AksCluster, {**args, **changes}).one("ManagedCluster").inputs
        return inputs

    return run


def test_nobody_outside_reaches_the_api_unless_named(cluster: Callable[..., dict[str, Any]]) -> None:
    private = cluster()["apiServerAccessProfile"]
    assert (private["enablePrivateCluster"], private["enablePrivateClusterPublicFQDN"]) == (True, False)
    assert private["disableRunCommand"] is True
    named = cluster(api_cidrs=["203.0.113.0/24"])["apiServerAccessProfile"]
    assert named == {"authorizedIPRanges": ["203.0.113.0/24"], "disableRunCommand": True}


def test_people_come_in_by_their_directory_alone(cluster: Callable[..., dict[str, Any]]) -> None:
    inputs = cluster(admin_group_ids=["g"])
    assert inputs["disableLocalAccounts"] is True
    assert inputs["aadProfile"]["enableAzureRBAC"] is True
    assert inputs["aadProfile"]["adminGroupObjectIDs"] == ["g"]
    assert inputs["oidcIssuerProfile"] == {"enabled": True}
    assert inputs["securityProfile"] == {"workloadIdentity": {"enabled": True}}


def test_pods_behind_their_nodes(cluster: Callable[..., dict[str, Any]]) -> None:
    network = cluster()["networkProfile"]
    assert (network["networkPlugin"], network["networkPluginMode"]) == ("azure", "overlay")
    assert (network["networkDataplane"], network["networkPolicy"]) == ("cilium", "cilium")
    assert network["outboundType"] == "userAssignedNATGateway"
    pods, services = ip_network(PODS_CIDR), ip_network(SERVICES_CIDR)
    assert not pods.overlaps(services)
    assert ip_address(DNS_ADDRESS) in services
    assert all(not pods.overlaps(ip_network(one)) for one in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"))


def test_disks_are_under_the_stacks_key(cluster: Callable[..., dict[str, Any]]) -> None:
    inputs = cluster()
    assert inputs["diskEncryptionSetID"] == "/disks"
    (system,) = inputs["agentPoolProfiles"]
    assert system["enableEncryptionAtHost"] is True
    assert system["enableNodePublicIP"] is False


@pytest.mark.parametrize("minutes", [5, 25])
def test_a_node_without_work_is_given_back(cluster: Callable[..., dict[str, Any]], minutes: int) -> None:
    assert cluster(idle_minutes=minutes)["autoScalerProfile"]["scaleDownUnneededTime"] == f"{minutes}m"


def test_nothing_is_upgraded_under_a_job(cluster: Callable[..., dict[str, Any]]) -> None:
    assert cluster()["autoUpgradeProfile"] == {"upgradeChannel": "none", "nodeOSUpgradeChannel": "None"}


def test_the_control_planes_log_is_kept_where_there_is_a_workspace(
    make: Callable[..., Any], args: dict[str, Any]
) -> None:
    made = make(AksCluster, args)
    setting = made.one("DiagnosticSetting").inputs
    assert setting["resourceUri"] == made.one("ManagedCluster").id
    assert {one["category"] for one in setting["logs"]} >= {"kube-audit-admin", "cluster-autoscaler"}
    assert not make(AksCluster, {**args, "workspace_id": None}).of("DiagnosticSetting")


def test_a_long_stack_has_names_that_azure_takes(declare: Callable[..., Any], args: Any) -> None:
    inputs = declare(lambda: AksCluster("s" * 70, args)).one("ManagedCluster").inputs
    assert len(inputs["resourceName"]) <= 63
    assert len(inputs["dnsPrefix"]) <= 54


def test_the_cluster_joins_a_subnet_and_gives_nodes_their_identity(
    make: Callable[..., Any], place: dict[str, Any]
) -> None:
    wanted = {"subnet_id": "/subnet", "disk_encryption_set_id": "/disks", "repository_id": "/registry"}
    given = {key: value for key, value in place.items() if key != "zone"}
    made = make(AksIdentity, {**given, **wanted})
    granted = {one.name: one.inputs["scope"] for one in made.of("RoleAssignment")}
    assert granted == {
        "demo-cluster-subnet": "/subnet",
        "demo-cluster-nodes": "${UserAssignedIdentity.demo-node.id}",
        "demo-cluster-disks": "/disks",
        "demo-node-image": "/registry",
    }
    plain = make(AksIdentity, {**given, "subnet_id": "/subnet"})
    assert {one.name for one in plain.of("RoleAssignment")} == {"demo-cluster-subnet", "demo-cluster-nodes"}
