"""What every component keeps to: names, arguments, outputs, parents, project, labels, other languages."""

from collections.abc import Callable
from typing import Any

import pulumi
import pytest

import gangway.components.gcp
from tests.components.contract import check_declared, check_signature, components_in, keys_of
from tests.components.fixture_types import Make
from tests.sdk_arguments import sdk_arguments

COMPONENTS = components_in(gangway.components.gcp)
# A dynamic provider is Python of the program's own: no other language can have it, and its resource is no `gcp:` one.
DYNAMIC = ("QueuedTpu", "MachineImage")
of_the_provider = pytest.mark.parametrize(
    "component", [c for c in COMPONENTS if c.__name__ not in DYNAMIC], ids=lambda component: component.__name__
)
every_component = pytest.mark.parametrize("component", COMPONENTS, ids=lambda component: component.__name__)
# Accounts, roles, tags, logs, perimeters and APIs: Google gives them no labels.
UNLABELLED = {
    "ClusterIdentity",
    "ExistingIdentity",
    "GroupTag",
    "HeadIdentity",
    "NodeIdentity",
    "NodeLogs",
    "ProjectServices",
    "ServicePerimeter",
}
# By the argument, the input that has them; of a node pool it is a part of another.
LABELS = {"labels": "labels", "user_labels": "userLabels", "resource_labels": "resourceLabels"}
# One word, two meanings.
OWN: dict[str, dict[str, Any]] = {
    "Filestore": {"tier": "zonal", "capacity_gib": 17920},
    "HeadNode": {"machine_type": "e2-medium"},
    "QueuedTpu": {"tier": "spot"},
    "TpuVm": {"tier": "spot"},
}
Example = Callable[[type[pulumi.ComponentResource]], dict[str, Any]]


@pytest.fixture
def example(labels: dict[str, str]) -> Example:
    """Arguments that make each component declare everything it can."""
    everything: dict[str, Any] = {
        "project": "lab",
        "project_number": "123456789012",
        "billing_account": "012345-6789AB-CDEF01",
        "region": "us-east5",
        "zone": "us-east5-a",
        "stack": "demo",
        "access_policy": 330193482019,
        "operators": ["user:ops@example.com"],
        "access_levels": ["corp_network"],
        "reads_from": [987654321098],
        "enforced": True,
        "services": ["lustre", "tpu"],
        "agents": dict.fromkeys(("storage", "logging"), "serviceAccount:s@lab.iam.gserviceaccount.com"),
        "capacity_gib": 18000,
        "throughput_mbps_per_tib": 500,
        "network": "projects/lab/global/networks/demo",
        "subnetwork": "projects/lab/regions/us-east5/subnetworks/demo",
        "services_cidr": "10.60.0.0/20",
        "email": "nodes@lab.iam.gserviceaccount.com",
        "client_cidr": "10.0.0.0/8",
        "client_tags": ["demo-fabric"],
        "source": "gs://data/celeba",
        "data_source": "gs://data/celeba",
        "run_bucket_name": "demo-runs-1a2b3c4",
        "files_bucket_name": "demo-head-1a2b3c4",
        "member_key_id": "projects/lab/secrets/demo-member-key",
        "signing_key_id": "projects/lab/secrets/demo-signing-key",
        "pem": "PEM",
        "repository_id": "projects/lab/locations/us-east5/repositories/demo-trainer",
        "releases_slices": True,
        "grant_wait_sec": 60,
        "groups_condition": "resource.matchTagId('tagKeys/1', 'tagValues/2')",
        "group_tags": {"tagKeys/1": "tagValues/2"},
        "imports": True,
        "retention_days": 30,
        "log_name": "projects/lab/logs/gangway-demo",
        "group_names": ["demo-0-spot"],
        "num_nodes": 2,
        "emails": ["a@example.com"],
        "steps_alarm_minutes": 30,
        "expect_gpu": True,
        "monthly_usd": 100.0,
        "alert_percent": [50.0],
        "stop_at_percent": 120.0,
        "queued_resource_names": ["projects/lab/locations/us-east5-a/queuedResources/gan"],
        "node_pool_ids": ["projects/lab/locations/us-east5/clusters/demo/nodePools/demo-0-spot"],
        "schedule_ids": ["projects/lab/locations/us-east5/jobs/demo-slices"],
        "queued_resource": "projects/lab/locations/us-east5-a/queuedResources/gan",
        "request_object": "request.json",
        "ended_uri": "gs://demo-runs-1a2b3c4/demo/gan/ended-1",
        "tag_key": "gangway-stack",
        "tag_value": "demo",
        "kms_key_name": "projects/lab/locations/us-east5/keyRings/r/cryptoKeys/k",
        "tags": labels,
        # The network, the machines and the slices.
        "cidr": "10.42.0.0/16",
        "egress": "nat",
        "head": {"rendezvous_port": 29400, "metrics_port": 9400, "lustre": True},
        "machine_type": "a3-megagpu-8g",
        "private_services": True,
        "flow_logs": True,
        "num_nodes_min": 2,
        "num_nodes_max": 4,
        "capacity": [{"kind": "spot"}, {"kind": "on-demand"}],
        "subnet_id": "main",
        "subnet_ids": ["main"],
        "fabric_subnet_ids": [f"gpu-{number}" for number in range(1, 9)],
        "security_group_ids": ["demo-fabric"],
        "base_image": "projects/lab/global/images/base",
        "script": "#!/usr/bin/env bash",
        "service_account_email": "nodes@lab.iam.gserviceaccount.com",
        "user_data": "IyE=",
        "root_volume_gib": 200,
        "host_name": "head.demo.gangway.internal",
        "zone_id": "demo-zone",
        "accelerator_type": "v5p-64",
        "runtime_version": "v2-alpha-tpuv5",
        "tier": "zonal",
        "num_slices": 2,
        # The cluster of Kubernetes.
        "version": "1.36",
        "vpc_id": "projects/lab/global/networks/demo",
        "multi_networking": True,
        "gpus": True,
        "lustre": True,
        "filestore": True,
        "api_cidrs": ["203.0.113.0/24"],
        "cluster": "projects/lab/locations/us-east5/clusters/demo",
        "fabric_network_ids": [f"projects/lab/global/networks/net-{number}" for number in range(1, 9)],
        "driver_version": "LATEST",
        "node_labels": [{"a": "1"}, {"a": "2"}],
        "node_taints": [{"key": "gangway.dev/job", "value": "true", "effect": "NO_SCHEDULE"}],
        "namespaces": ["vision"],
        "service_account": "nodes@lab.iam.gserviceaccount.com",
        "wait_active": True,
        "labels": labels,
    }

    def of(component: type[pulumi.ComponentResource]) -> dict[str, Any]:
        taken = keys_of(component)
        own = OWN.get(component.__name__, {})
        return {key: value for key, value in {**everything, **own}.items() if key in taken}

    return of


def test_the_walk_finds_what_stacks_are_made_of() -> None:
    names = {component.__name__ for component in COMPONENTS}
    assert names >= {"TrainingNetwork", "GpuNodePool", "HeadNode", "QueuedTpu", "LustreFileSystem", "Budget"}


@every_component
def test_the_signature(component: type[pulumi.ComponentResource]) -> None:
    check_signature(component)


@of_the_provider
def test_what_it_declares_is_its_own(component: type[pulumi.ComponentResource], make: Make, example: Example) -> None:
    check_declared(component, "gcp", make(component, example(component)))


@every_component
def test_everything_is_in_the_stacks_project(
    component: type[pulumi.ComponentResource], make: Make, example: Example
) -> None:
    """A provider may have another project, or none: what takes a project is told."""
    for resource in make(component, example(component)).resources:
        if resource.type.startswith("gcp:") and "project" in sdk_arguments(resource.type):
            # A repository's full id names its project already.
            assert resource.inputs.get("project", "lab") == "lab"
            assert "project" in resource.inputs or resource.type.endswith((":RepositoryIamMember", ":SecretVersion")), (
                resource.name
            )


@of_the_provider
def test_whatever_can_carry_a_label_carries_them_all(
    component: type[pulumi.ComponentResource],
    make: Make,
    example: Example,
    labels: dict[str, str],
) -> None:
    checked = 0
    for resource in make(component, example(component)).resources:
        if not resource.type.startswith("gcp:"):
            continue
        inputs = resource.inputs.get("nodeConfig", {}) if resource.type.endswith(":NodePool") else resource.inputs
        arguments = ["resource_labels"] if inputs is not resource.inputs else sdk_arguments(resource.type)
        taken = [word for word in LABELS if word in arguments]
        if not taken:
            continue
        # A channel's `labels` say what it is; ours are the user's.
        word = LABELS["user_labels" if "user_labels" in taken else taken[0]]
        # The head node's has one more, by which it is told from workers.
        assert labels.items() <= inputs[word].items(), resource.name
        checked += 1
    assert bool(checked) is (component.__name__ not in UNLABELLED), "no label at all: the test would prove nothing"
