"""AksCluster and its identities: private, without accounts of its own, and no more rights than are used."""

import json
import subprocess
from collections.abc import Callable
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]  # ships no types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.azure.aks import (
    DNS_ADDRESS,
    MAX_POOL_NAME,
    PODS_CIDR,
    SERVICES_CIDR,
    SPOT_TAINT,
    AksCluster,
    AksIdentity,
    AksNodePools,
    autoscaler_tags,
    fabric_manifests,
    network_operator,
    plan_node_pools,
    pool_name,
)
from gangway.components.azure.pricing import price_resources
from gangway.components.catalog.loader import load_provider
from gangway.components.core.findings import InputError
from gangway.components.kubernetes.spec import GPU, INFINIBAND, POOL_LABEL
from tests.components.fixture_types import Make


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
def cluster(make: Make, args: dict[str, Any]) -> Callable[..., dict[str, Any]]:
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


def test_the_control_planes_log_is_kept_where_there_is_a_workspace(make: Make, args: dict[str, Any]) -> None:
    made = make(AksCluster, args)
    setting = made.one("DiagnosticSetting").inputs
    assert setting["resourceUri"] == made.one("ManagedCluster").id
    assert {one["category"] for one in setting["logs"]} >= {"kube-audit-admin", "cluster-autoscaler"}
    assert not make(AksCluster, {**args, "workspace_id": None}).of("DiagnosticSetting")


def test_a_long_stack_has_names_that_azure_takes(declare: Make, args: Any) -> None:
    inputs = declare(lambda: AksCluster("s" * 70, args)).one("ManagedCluster").inputs
    assert len(inputs["resourceName"]) <= 63
    assert len(inputs["dnsPrefix"]) <= 54


def test_the_cluster_joins_a_subnet_and_gives_nodes_their_identity(make: Make, place: dict[str, Any]) -> None:
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


NDV5 = "Standard_ND96isr_H100_v5"
GROUP = (
    "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/r/providers/Microsoft.Compute"
    "/capacityReservationGroups/ours"
)
RESERVED = {"kind": "reservation", "id": GROUP}
RUNGS: list[dict[str, Any]] = [
    {"kind": "spot"},
    {"kind": "spot", "max_usd_per_hour": 30.123456},
    {"kind": "on-demand"},
]
PLAIN = sorted(
    name for name, one in load_provider("azure").machines.items() if getattr(one, "infiniband", None) is None
)


@pytest.fixture
def pool_args(place: dict[str, Any]) -> dict[str, Any]:
    """Arguments of AksNodePools, to be varied."""
    return {
        "resource_group_name": place["resource_group_name"],
        "cluster_name": "demo",
        "zone": "",
        "version": "1.36",
        "machine_type": NDV5,
        "num_nodes_min": 0,
        "num_nodes_max": 4,
        "capacity": RUNGS,
        "subnet_id": "/subnet",
        "root_volume_gib": 256,
        "tags": place["tags"],
    }


def planned(machine: str, ladder: list[dict[str, Any]], least: int, most: int) -> tuple[Any, ...]:
    pool_args: Any = {
        "machine_type": machine,
        "zone": "1",
        "capacity": ladder,
        "num_nodes_min": least,
        "num_nodes_max": most,
    }
    return plan_node_pools(pool_args)[1]


@given(st.sampled_from(PLAIN), st.permutations([*RUNGS, RESERVED]), st.integers(0, 6), st.integers(0, 90))
def test_a_pool_for_each_rung_from_zero(machine: str, ladder: list[dict[str, Any]], least: int, more: int) -> None:
    pools = planned(machine, ladder, least, least + more)
    assert [pool.suffix for pool in pools] == [f"{n}-{rung['kind']}" for n, rung in enumerate(ladder)]
    assert len({pool.name for pool in pools}) == len(ladder)
    assert [pool.least for pool in pools] == [least, 0, 0, 0]
    for pool, rung in zip(pools, ladder, strict=True):
        assert pool.most == least + more
        assert pool.spot is (rung["kind"] == "spot")
        assert (pool.fields.capacity_reservation_group is not None) is (rung["kind"] == "reservation")
        if pool.spot:
            assert pool.fields.max_price == (30.12345 if "max_usd_per_hour" in rung else -1.0)


@given(st.integers(0, 99), st.sampled_from(["spot", "on-demand", "reservation"]))
def test_names_are_such_as_aks_takes(position: int, kind: str) -> None:
    name = pool_name(position, kind)
    assert name.isalnum()
    assert name.islower()
    assert len(name) <= MAX_POOL_NAME
    assert name != pool_name(position + 1, kind)


def test_infiniband_refuses_what_it_cannot_be(pool_args: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="cannot be reserved"):
        planned(NDV5, [RESERVED], 0, 4)
    with pytest.raises(InputError, match="more nodes than one InfiniBand partition"):
        planned(NDV5, [{"kind": "spot"}], 0, 301)


def test_spot_pools_delete_what_is_taken(make: Make, pool_args: dict[str, Any]) -> None:
    free, capped, demanded = (pool.inputs for pool in make(AksNodePools, pool_args).of("AgentPool"))
    for inputs in (free, capped):
        assert (inputs["scaleSetPriority"], inputs["scaleSetEvictionPolicy"]) == ("Spot", "Delete")
        assert SPOT_TAINT in inputs["nodeTaints"]
        assert "upgradeSettings" not in inputs, "spot pools take none"
    assert (free["spotMaxPrice"], capped["spotMaxPrice"]) == (-1, 30.12345)
    assert demanded["scaleSetPriority"] == "Regular"
    assert not {"spotMaxPrice", "scaleSetEvictionPolicy", "nodeTaints"} & demanded.keys()
    assert demanded["upgradeSettings"] == {"maxSurge": "0", "maxUnavailable": "1"}


def test_pools_grow_from_nothing(make: Make, pool_args: dict[str, Any]) -> None:
    for pool in make(AksNodePools, pool_args).each("AgentPool"):
        sizes = [pool.inputs[key] for key in ("enableAutoScaling", "minCount", "maxCount", "count")]
        assert sizes == [True, 0, 4, 0]
        assert pool.inputs["mode"] == "User"
        assert pool.inputs["scaleDownMode"] == "Delete"
        assert pool.inputs["enableNodePublicIP"] is False
        assert pool.inputs["securityProfile"] == {"sshAccess": "Disabled"}
        assert "availabilityZones" not in pool.inputs


def test_rungs_are_told_apart_by_their_labels(make: Make, pool_args: dict[str, Any]) -> None:
    labelled = {"node_labels": [{"a": "1"}, {"a": "2"}, {"a": "3"}], "node_taints": ["a=b:NoSchedule"]}
    pools = make(AksNodePools, {**pool_args, **labelled}).of("AgentPool")
    assert [pool.inputs["nodeLabels"] for pool in pools] == [
        {"gangway.dev/rung": "0-spot", "a": "1"},
        {"gangway.dev/rung": "1-spot", "a": "2"},
        {"gangway.dev/rung": "2-on-demand", "a": "3"},
    ]
    assert all("a=b:NoSchedule" in pool.inputs["nodeTaints"] for pool in pools)


@pytest.mark.parametrize("driver", ["Install", "None"])
def test_who_installs_the_driver(make: Make, pool_args: dict[str, Any], driver: str) -> None:
    pools = make(AksNodePools, {**pool_args, "gpu_driver": driver}).of("AgentPool")
    assert {pool.inputs["gpuProfile"]["driver"] for pool in pools} == {driver}


def test_pools_are_made_one_after_the_other(make: Make, pool_args: dict[str, Any]) -> None:
    first, second, third = make(AksNodePools, pool_args).of("AgentPool")
    assert first.urn in second.dependencies
    assert second.urn in third.dependencies


def test_the_bill(declare: Make, pool_args: Any, place: dict[str, Any]) -> None:
    of_cluster: Any = {
        **{key: pool_args[key] for key in ("resource_group_name", "subnet_id", "tags", "zone")},
        "location": "eastus",
        "tenant_id": "t",
        "idle_minutes": 15,
        "identity_id": "/c",
        "kubelet_identity_id": "/n",
        "kubelet_client_id": "c",
        "kubelet_object_id": "o",
    }

    def program() -> None:
        AksCluster("demo", of_cluster)
        AksNodePools("demo", pool_args)

    made = declare(program).resources
    lines = {line.name: line for line in price_resources(made, load_provider("azure"), "eastus")}
    assert lines["demo-cluster: control plane"].hourly == pytest.approx(0.10)
    assert lines["demo-cluster: 1 x Standard_D4s_v5, on-demand"].hourly == pytest.approx(0.192)
    assert lines[f"demo-0-spot: 4 x {NDV5}, spot"].hourly == pytest.approx(4 * 18.17)
    assert {line.standby for name, line in lines.items() if name.startswith("demo-0-spot")} == {False}
    assert {line.standby for name, line in lines.items() if name.startswith(("demo-1", "demo-2"))} == {True}
    assert {key for line in lines.values() for key in line.of} == {
        f"{one.type}::{one.name}" for one in made if one.custom
    }


TAINTS = [{"key": "gangway.dev/jobs-only", "operator": "Exists"}]
JOBS = {POOL_LABEL: "jobs"}


def manifest(kind: str) -> dict[str, Any]:
    (found,) = (each for each in fabric_manifests(8, TAINTS) if each["kind"] == kind)
    return found


def test_nothing_of_it_is_on_the_systems_nodes() -> None:
    worker = network_operator(TAINTS).values["node-feature-discovery"]["worker"]
    assert (worker["nodeSelector"], worker["tolerations"]) == (JOBS, TAINTS)
    policy, pods = manifest("NicClusterPolicy")["spec"], manifest("DaemonSet")["spec"]["template"]["spec"]
    (term,) = policy["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": POOL_LABEL, "operator": "In", "values": ["jobs"]}]
    assert pods["nodeSelector"] == JOBS
    assert policy["tolerations"] == pods["tolerations"] == TAINTS


def test_the_machines_ethernet_is_no_infiniband() -> None:
    (rule,) = manifest("NodeFeatureRule")["spec"]["rules"]
    (feature,) = rule["matchFeatures"]
    assert feature["matchExpressions"]["class"]["value"] == ["0207"]
    assert network_operator(TAINTS).values["nfd"]["deployNodeFeatureRules"] is False


def test_the_plugin_tells_of_the_resource_that_jobs_ask_for() -> None:
    (shared,) = json.loads(manifest("NicClusterPolicy")["spec"]["rdmaSharedDevicePlugin"]["config"])["configList"]
    assert f"{shared['resourcePrefix']}/{shared['resourceName']}" == INFINIBAND
    assert shared["rdmaHcaMax"] == 8


def test_no_driver_is_changed_under_a_job() -> None:
    assert manifest("NicClusterPolicy")["spec"]["ofedDriver"]["upgradePolicy"] == {"autoUpgrade": False}


def test_the_autoscaler_is_told_of_what_no_size_tells() -> None:
    tags = autoscaler_tags({GPU: 8, INFINIBAND: 8})
    ((name, value),) = tags.items()
    assert value == "8"
    # As the autoscaler reads a tag back.
    assert name.removeprefix("k8s.io_cluster-autoscaler_node-template_resources_").replace("_", "/") == INFINIBAND
    assert autoscaler_tags({}) == {}


@pytest.mark.parametrize("version", ["1.35", "1.36", "1.37"])
def test_kubernetes_knows_every_field(version: str) -> None:
    known = manifest("DaemonSet")
    kubernetes_validate.validate(known, version, strict=True)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate({**known, "spec": {**known["spec"], "templat": {}}}, version, strict=True)


NSENTER = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""
SYSTEMCTL = """#!/bin/sh
[ "$1" = show ] && echo 4711
echo "systemctl $*" >>"$LOG"
"""
TEE = """#!/bin/sh
cat >"$FOLDER/$(basename "$1")"
"""
SLEEP = """#!/bin/sh
kill "$PPID"
"""


def test_a_node_lets_containers_pin_memory_now_and_after_a_restart(tmp_path: Path) -> None:
    programs = {"nsenter": NSENTER, "systemctl": SYSTEMCTL, "tee": TEE, "sleep": SLEEP}
    programs |= {name: f'#!/bin/sh\necho "{name} $*" >>"$LOG"\n' for name in ("mkdir", "prlimit", "modprobe")}
    for name, script in programs.items():
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    (container,) = manifest("DaemonSet")["spec"]["template"]["spec"]["containers"]
    log = tmp_path / "log"
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "LOG": str(log), "FOLDER": str(tmp_path)}
    subprocess.run(container["command"], env=env, check=False, timeout=60)
    assert (tmp_path / "90-gangway-memlock.conf").read_text() == "[Service]\nLimitMEMLOCK=infinity\n"
    said = log.read_text().splitlines()
    assert said.index("systemctl daemon-reload") < said.index("prlimit --pid 4711 --memlock=unlimited")
    assert said[-1] == "modprobe nvidia-peermem"
