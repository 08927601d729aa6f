"""What every component of a stack's services keeps to: names, arguments, outputs, parents, tags, other languages."""

from collections.abc import Callable
from typing import Any

import pulumi
import pytest

from gangway.components.azure.aks import AksCluster, AksIdentity, AksNodePools
from gangway.components.azure.budget import Budget
from gangway.components.azure.file_system import LustreFileSystem
from gangway.components.azure.identity import EncryptionKey, HeadIdentity, MemberKeyVault, NodeIdentity, ResourceGroup
from gangway.components.azure.machine_image import ImageBuilderIdentity, MachineImage
from gangway.components.azure.monitoring import NodeLogs, Observability
from gangway.components.azure.network import PrivateEndpoints, TrainingNetwork
from gangway.components.azure.policies import IMAGES_TAG
from gangway.components.azure.storage import FlowLogStore, ImageRegistry, RunBucket
from gangway.components.core.fields import Egress
from tests.components.contract import check_declared, check_signature, keys_of
from tests.components.fixture_types import Make, Mistakes
from tests.sdk_arguments import sdk_arguments

COMPONENTS: list[type[pulumi.ComponentResource]] = [
    AksCluster,
    AksIdentity,
    AksNodePools,
    Budget,
    EncryptionKey,
    FlowLogStore,
    HeadIdentity,
    ImageBuilderIdentity,
    ImageRegistry,
    LustreFileSystem,
    MachineImage,
    MemberKeyVault,
    NodeIdentity,
    NodeLogs,
    Observability,
    PrivateEndpoints,
    ResourceGroup,
    RunBucket,
    TrainingNetwork,
]
every_component = pytest.mark.parametrize("component", COMPONENTS, ids=lambda component: component.__name__)
Example = Callable[[type[pulumi.ComponentResource]], dict[str, Any]]


@pytest.fixture
def example(place: dict[str, Any]) -> Example:
    """Arguments that make each component declare everything it can."""
    account = f"/subscriptions/{place['subscription_id']}/resourceGroups/d/providers/Microsoft.Storage/storageAccounts"
    key = {"key_name": "data", "key_url": "https://v/keys/data/1", "vault_uri": "https://v/", "vault_id": "/vault",
           "identity_id": "/identity"}  # fmt: skip
    everything: dict[str, Any] = {
        **place,
        "tenant_id": "11111111-1111-1111-1111-111111111111",
        "cidr": "10.42.0.0/16",
        "egress": Egress.ENDPOINTS,
        "head": {"rendezvous_port": 29400, "metrics_port": 9400, "lustre": True},
        "lustre_prefix_length": 27,
        "bastion": True,
        "flow_log_account_id": f"{account}/logs",
        "flow_log_identity_id": "/flows",
        "role_wait_sec": 300,
        "watcher_wait_sec": 300,
        "capacity_gib": 16384,
        "throughput_mbps_per_tib": 500,
        "subnet_id": "/subnet",
        "source": "az://mydata/images/celeba",
        "source_account_id": f"{account}/mydata",
        "importer_principal_id": "22222222-2222-2222-2222-222222222222",
        "export_runs": True,
        "data_source": "az://mydata/images/celeba",
        "data_source_account_id": f"{account}/mydata",
        "run_container_id": "/runs",
        "repository_id": "/registry",
        "data_collection_rule_id": "/rule",
        "member_secret_id": "/vault/secrets/member-key",
        "signing_secret_id": "/vault/secrets/signing-key",
        "pem": "PEM",
        "signing_pem": "SIGN",
        "private_endpoints": True,
        "network_id": "/network",
        "account_id": f"{account}/runs",
        "registry_id": "/registry",
        "vault_id": "/vault",
        "self_termination": True,
        "fills_groups": True,
        "scrapes": True,
        "premium": True,
        "key": key,
        "subnet_ids": ["/subnet"],
        "allowed_ips": ["203.0.113.7"],
        "retention_days": 30,
        "workspace_id": "/workspace",
        "num_nodes": 2,
        "emails": ["a@example.com"],
        "steps_alarm_minutes": 30,
        "expect_gpu": True,
        "monthly_usd": 100.0,
        "starts_on": "2026-11-01",
        "alert_percent": [50.0],
        "stop_at_percent": 120.0,
        "group_ids": ["/set"],
        "head_ids": ["/head"],
        "cluster_ids": ["/cluster"],
        "subscription_wide": True,
        "tag_key": "gangway-stack",
        "tag_value": "demo",
        # The cluster of Kubernetes.
        "version": "1.36",
        "admin_group_ids": ["33333333-3333-3333-3333-333333333333"],
        "idle_minutes": 15,
        "identity_id": "/cluster",
        "kubelet_identity_id": "/node",
        "kubelet_client_id": "44444444-4444-4444-4444-444444444444",
        "kubelet_object_id": "55555555-5555-5555-5555-555555555555",
        "disk_encryption_set_id": "/disks",
        "entra_login": True,
        "encryption_at_host": True,
        "api_cidrs": ["203.0.113.0/24"],
        "cluster_name": "demo",
        "machine_type": "Standard_ND96isr_H100_v5",
        "num_nodes_min": 1,
        "num_nodes_max": 4,
        "capacity": [{"kind": "spot", "max_usd_per_hour": 30}, {"kind": "on-demand"}],
        "root_volume_gib": 256,
        "gpu_driver": "Install",
        "node_labels": [{"a": "1"}, {"a": "2"}],
        "node_taints": ["gangway.dev/job=true:NoSchedule"],
        "node_devices": {"nvidia.com/gpu": 8, "rdma/infiniband": 8},
        "workloads": [{"namespace": "vision", "service_account": "jobs"}],
        "pods_cidr": "100.64.0.0/13",
        "base_image": "microsoft-dsvm:ubuntu-hpc:2404:latest",
        "base_version": "24.4.1",
        "script": "#!/usr/bin/env bash",
        "keep": 3,
    }

    def choose(component: type[pulumi.ComponentResource]) -> dict[str, Any]:
        left_out = {"deployment", "efa", "metadata_iops", "maintenance_day", "maintenance_time_utc",
                    "interruptions_per_hour", "network_watcher", "workspace", "zone_resource_group_name"}  # fmt: skip
        return {key: everything[key] for key in keys_of(component) - left_out}

    return choose


@every_component
def test_the_contract(component: type[pulumi.ComponentResource], make: Make, example: Example) -> None:
    check_signature(component)
    check_declared(component, "azure", make(component, example(component)))


@every_component
def test_microsofts_models_take_everything_it_can_declare(
    component: type[pulumi.ComponentResource],
    make: Make,
    example: Example,
    arm_mistakes: Mistakes,
) -> None:
    assert arm_mistakes(make(component, example(component))) == []


@every_component
def test_everything_is_where_the_stack_is(
    component: type[pulumi.ComponentResource], make: Make, example: Example
) -> None:
    # Azure's own watcher, the log of imports in the account of the data, and images, which go with their group.
    elsewhere = {"FlowLog": "NetworkWatcherRG", "BlobContainer demo-lustre-log": "d"}
    default = "${ResourceGroup.demo-gangway-images.name}" if component is MachineImage else "gangway-demo"
    for resource in make(component, example(component)).resources:
        group, kind = resource.inputs.get("resourceGroupName"), resource.type.rpartition(":")[2]
        if resource.custom and group is not None:
            own = elsewhere.get(f"{kind} {resource.name}", elsewhere.get(kind, default))
            assert group == own, resource.name
        if resource.custom and "location" in resource.inputs:
            assert resource.inputs["location"] in ("eastus", "global", "Global"), resource.name


@every_component
def test_whatever_can_carry_a_tag_carries_them_all(
    component: type[pulumi.ComponentResource],
    make: Make,
    example: Example,
    tags: dict[str, str],
) -> None:
    checked = 0
    for resource in make(component, example(component)).resources:
        # Our own wait is no resource of Azure's.
        if resource.type.startswith("azure-native:") and "tags" in sdk_arguments(resource.type):
            # What a pool tells the autoscaler of its nodes, and how many images stay, is beside them.
            found = resource.inputs["tags"].items()
            own = {key: value for key, value in found if not key.startswith(("k8s.io_", IMAGES_TAG))}
            assert own == tags, resource.name
            checked += 1
    assert checked, "no tag at all: the test would prove nothing"
