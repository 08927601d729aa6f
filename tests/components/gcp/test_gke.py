"""GkeCluster: no public address, secrets under the stack's key, GPUs seen, and held against the API's description."""

import json
from ipaddress import IPv4Network
from typing import Any

import pytest

from gangway.components.gcp.gke import NODE_ROLE, SYSTEM_MACHINE_TYPE, ClusterIdentity, GkeCluster, get_kubeconfig
from gangway.components.gcp.identity import PROJECT_WIDE
from tests.components.fixture_types import Make, Mistakes

KEY = "projects/lab/locations/us-east4/keyRings/r/cryptoKeys/k"


@pytest.fixture
def args(labels: dict[str, str]) -> dict[str, Any]:
    """Arguments of GkeCluster, to be varied."""
    return {
        "project": "lab",
        "region": "us-east4",
        "zone": "us-east4-b",
        "version": "1.36",
        "vpc_id": "projects/lab/global/networks/demo",
        "subnet_id": "projects/lab/regions/us-east4/subnetworks/demo",
        "num_nodes_max": 64,
        "multi_networking": True,
        "gpus": True,
        "security_group_ids": ["demo-fabric"],
        "service_account_email": "nodes@lab.iam.gserviceaccount.com",
        "kms_key_name": KEY,
        "tags": labels,
    }


@pytest.fixture
def make(declare_seen: Make, args: dict[str, Any]) -> Make:
    """Declares a cluster with changes; `seen` are its outputs."""

    return lambda **changes: declare_seen(GkeCluster, {**args, **changes})


def test_nobody_outside_reaches_the_control_planes_address(make: Make) -> None:
    cluster = make().one("Cluster").inputs
    assert cluster["privateClusterConfig"] == {"enablePrivateNodes": True, "enablePrivateEndpoint": True}
    networks = cluster["masterAuthorizedNetworksConfig"]
    assert (networks["cidrBlocks"], networks["gcpPublicCidrsAccessEnabled"]) == ([], False)
    assert cluster["controlPlaneEndpointsConfig"] == {"dnsEndpointConfig": {"allowExternalTraffic": False}}


def test_ranges_that_are_named_reach_it_and_no_others(make: Make) -> None:
    cluster = make(api_cidrs=["203.0.113.0/24"]).one("Cluster").inputs
    assert cluster["privateClusterConfig"] == {"enablePrivateNodes": True, "enablePrivateEndpoint": False}
    networks = cluster["masterAuthorizedNetworksConfig"]
    assert networks["cidrBlocks"] == [{"cidrBlock": "203.0.113.0/24"}]
    assert networks["gcpPublicCidrsAccessEnabled"] is False
    assert cluster["controlPlaneEndpointsConfig"] == {"dnsEndpointConfig": {"allowExternalTraffic": False}}
    trusted = json.loads(get_kubeconfig("demo", "203.0.113.9", "Q0E="))["clusters"][0]["cluster"]
    assert trusted == {"server": "https://203.0.113.9", "certificate-authority-data": "Q0E="}


def test_secrets_are_under_the_stacks_key(make: Make) -> None:
    made = make()
    assert made.one("Cluster").inputs["databaseEncryption"] == {"state": "ENCRYPTED", "keyName": KEY}
    assert made.one("NodePool").inputs["nodeConfig"]["bootDiskKmsKey"] == KEY
    assert "databaseEncryption" not in make(kms_key_name=None).one("Cluster").inputs


def test_walls_inside(make: Make) -> None:
    cluster = make().one("Cluster").inputs
    assert cluster["workloadIdentityConfig"] == {"workloadPool": "lab.svc.id.goog"}
    assert cluster["enableShieldedNodes"] is True
    assert cluster["datapathProvider"] == "ADVANCED_DATAPATH"
    assert cluster["enableLegacyAbac"] is False
    assert cluster["masterAuth"] == {"clientCertificateConfig": {"issueClientCertificate": False}}
    assert cluster["anonymousAuthenticationConfig"] == {"mode": "LIMITED"}
    assert set(cluster["rbacBindingConfig"].values()) == {False}


@pytest.mark.parametrize("gpus", [True, False])
def test_gpus_are_seen_where_there_are_some(make: Make, gpus: bool) -> None:
    monitoring = make(gpus=gpus).one("Cluster").inputs["monitoringConfig"]
    assert ("DCGM" in monitoring["enableComponents"]) is gpus
    assert monitoring["managedPrometheus"] == {"enabled": True}


def test_it_has_no_pool_but_ours(make: Make) -> None:
    made = make()
    assert made.one("Cluster").inputs["removeDefaultNodePool"] is True
    system = made.one("NodePool").inputs
    assert system["cluster"] == made.one("Cluster").id
    assert system["nodeConfig"]["machineType"] == SYSTEM_MACHINE_TYPE
    assert "labels" not in system["nodeConfig"]
    assert system["autoscaling"] == {"minNodeCount": 1, "maxNodeCount": 3}


def test_pods_have_addresses_that_no_network_of_ours_can_have(make: Make) -> None:
    policy = make(num_nodes_max=1000).one("Cluster").inputs["ipAllocationPolicy"]
    pods, services = (IPv4Network(policy[f"{what}Ipv4CidrBlock"]) for what in ("cluster", "services"))
    assert pods.num_addresses >= 1003 * 64
    assert not pods.overlaps(services)
    for private in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"):
        assert not pods.overlaps(IPv4Network(private))


def test_the_api_takes_the_cluster(make: Make, api_mistakes: Mistakes) -> None:
    inputs = make().one("Cluster").inputs
    endpoints = inputs["controlPlaneEndpointsConfig"]
    body = {
        "name": inputs["name"],
        "network": inputs["network"],
        "subnetwork": inputs["subnetwork"],
        "databaseEncryption": inputs["databaseEncryption"],
        "workloadIdentityConfig": inputs["workloadIdentityConfig"],
        "releaseChannel": inputs["releaseChannel"],
        "ipAllocationPolicy": inputs["ipAllocationPolicy"],
        "privateClusterConfig": inputs["privateClusterConfig"],
        "controlPlaneEndpointsConfig": endpoints,
        "monitoringConfig": {
            "componentConfig": {"enableComponents": inputs["monitoringConfig"]["enableComponents"]},
            "managedPrometheusConfig": inputs["monitoringConfig"]["managedPrometheus"],
        },
        "loggingConfig": {"componentConfig": inputs["loggingConfig"]},
        "networkConfig": {
            "datapathProvider": inputs["datapathProvider"],
            "enableMultiNetworking": inputs["enableMultiNetworking"],
        },
        "costManagementConfig": inputs["costManagementConfig"],
        "resourceLabels": inputs["resourceLabels"],
        "securityPostureConfig": inputs["securityPostureConfig"],
        "anonymousAuthenticationConfig": inputs["anonymousAuthenticationConfig"],
        "rbacBindingConfig": inputs["rbacBindingConfig"],
        "addonsConfig": inputs["addonsConfig"],
        "autoscaling": {"autoscalingProfile": inputs["clusterAutoscaling"]["autoscalingProfile"]},
        "defaultMaxPodsConstraint": {"maxPodsPerNode": str(int(inputs["defaultMaxPodsPerNode"]))},
        "shieldedNodes": {"enabled": inputs["enableShieldedNodes"]},
    }
    assert api_mistakes("container.v1", "Cluster", body) == []


def test_a_kubeconfig_holds_no_secret(make: Make) -> None:
    config = json.loads(get_kubeconfig("demo", "gke-1.us-east4.gke.goog"))
    assert config["clusters"][0]["cluster"] == {"server": "https://gke-1.us-east4.gke.goog"}
    (user,) = config["users"]
    assert set(user["user"]) == {"exec"}
    seen = make().seen
    assert json.loads(seen["kubeconfig"])["current-context"] == "demo"
    assert seen["system_pool"] == "demo-system"


def test_the_longest_stack_has_a_name_that_gke_takes(declare: Make, args: dict[str, Any]) -> None:
    made = declare(lambda: GkeCluster("s" * 45, args))  # type: ignore[arg-type]  # a fixture's dict
    assert all(len(one.inputs["name"]) <= 40 for one in (made.one("Cluster"), made.one("NodePool")))


def test_nodes_pull_images_and_reach_no_bucket(declare: Make) -> None:
    repository = "projects/lab/locations/us-east4/repositories/demo"
    args: Any = {"project": "lab", "stack": "demo", "repository_id": repository}
    made = declare(lambda: ClusterIdentity("demo", args))
    assert not made.of("BucketIAMMember")
    assert made.one("RepositoryIamMember").inputs["repository"] == repository
    (project_wide,) = made.of("IAMMember")
    assert project_wide.inputs["role"] == NODE_ROLE
    assert NODE_ROLE in PROJECT_WIDE
