"""The stack files that ship with Gangway: the command plans each; those of AWS are applied to its simulation."""

import json
import socket
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gangway.cli.main import app
from gangway.sandbox.cloud import MotoCloud
from gangway.sandbox.rows import Status
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import run_program

STACKS = Path(__file__).resolve().parent.parent.parent / "stacks"
FILES = sorted(STACKS.glob("Pulumi.*.yaml"))

# Components that every stack has once; below, what each adds to them.
ALWAYS = {"Budget", "NodeIdentity", "NodeLogs", "Observability", "RunBucket", "TrainingNetwork"}
BUILT = {"ImageRegistry", "TrainerImage"}
AWS = {"EfaNodePool", "SecretParameter", *BUILT}
GCP = {"ProjectServices"}
SEVERAL_NODES = {"HeadIdentity", "HeadNode", "LustreFileSystem"}
# The head asks for the nodes there, also for one.
AZURE = {"FlowLogStore", "HeadIdentity", "HeadNode", "IbNodePool", "MemberKeyVault", "ResourceGroup", *BUILT}
BESIDES = {
    "aws-demo": {*AWS, *SEVERAL_NODES},
    "aws-g5-dev": AWS,
    "aws-p4d-block": {*AWS, *SEVERAL_NODES},
    "aws-p5-spot": {*AWS, *SEVERAL_NODES, "EncryptionKey"},
    "azure-nc-dev": AZURE,
    "azure-ndv4": {*AZURE, "LustreFileSystem"},
    "azure-ndv5-spot": {*AZURE, "EncryptionKey", "LustreFileSystem"},
    "gcp-a3-spot": {
        *GCP,
        *BUILT,
        *SEVERAL_NODES,
        "EncryptionKey",
        "GpuNodePool",
        "GroupTag",
        "HeadFiles",
        "StackSecret",
    },
    "gcp-v5e-pod": {*GCP, *BUILT, "Filestore", "HeadFiles", "StackSecret", "QueuedTpu", "TpuReconciler"},
    "gcp-v5p-multislice": {
        *GCP,
        "EncryptionKey",
        "LustreFileSystem",
        "HeadFiles",
        "StackSecret",
        "QueuedTpu",
        "TpuReconciler",
    },
}
GKE = {
    "Budget",
    "ClusterCharts",
    "ClusterIdentity",
    "ClusterManifests",
    "Filestore",
    "GkeCluster",
    "GkeNodePools",
    "ImageRegistry",
    "ProjectServices",
    "RunBucket",
    "TrainingNetwork",
}
# Machines that are there already have everything else; OpenStack has no budget, and no service for lines; a cluster
# with a queue has no job of its own, whose nodes write lines.
ALONE = {
    "aws-existing": {
        "Budget",
        "EfaNodePool",
        "HeadNode",
        "NodeLogs",
        "Observability",
        "SecretParameter",
        "TrainerImage",
    },
    "aws-p5-slurm": {
        "Budget",
        "EfaNodePool",
        "EncryptionKey",
        "HeadNode",
        "LustreFileSystem",
        "NodeLogs",
        "Observability",
        "RunBucket",
        "SecretParameter",
        "SlurmIdentity",
        "TrainingNetwork",
    },
    "aks-ndv5": {
        "AksCluster",
        "AksIdentity",
        "AksNodePools",
        "Budget",
        "ClusterCharts",
        "ClusterManifests",
        "EncryptionKey",
        "FlowLogStore",
        "ImageRegistry",
        "NodeLogs",
        "ResourceGroup",
        "RunBucket",
        "TrainingNetwork",
    },
    "azure-existing": {
        "Budget",
        "HeadNode",
        "IbNodePool",
        "MemberKeyVault",
        "NodeLogs",
        "Observability",
        "TrainerImage",
    },
    "gcp-existing": {
        "Budget",
        "ExistingIdentity",
        "ExistingNetwork",
        "GpuNodePool",
        "GroupTag",
        "HeadFiles",
        "HeadNode",
        "NodeLogs",
        "Observability",
        "ProjectServices",
        "StackSecret",
        "TrainerImage",
    },
    **dict.fromkeys(("gke-a3-jobset", "gke-tpu-v5e"), GKE),
    "eks-p5-kueue": {
        "Budget",
        "ClusterCharts",
        "ClusterManifests",
        "EfaNodePool",
        "EksCluster",
        "EncryptionKey",
        "LustreFileSystem",
        "RunBucket",
        "TrainingNetwork",
    },
    "hosts-lab": {"HostPool"},
    "hosts-slurm": {"HostPool"},
    "openstack-existing": {"HeadNode", "MachineSecrets", "NodeIdentity", "NodePool"},
    "openstack-gpu": {
        "HeadNode",
        "MachineSecrets",
        "ManilaShare",
        "NodeIdentity",
        "NodePool",
        "RunBucket",
        "TrainingNetwork",
    },
}
# Resources by class that tell the stacks apart: rungs, ways out, links to S3, the stop, a block's start and end.
COUNTED_ON_AZURE = (
    "AgentPool",
    "AmlFilesystem",
    "BlobContainer",
    "DiskEncryptionSet",
    "NatGateway",
    "Subnet",
    "VirtualMachine",
    "VirtualMachineScaleSet",
    "Workflow",
)
COUNTED_ON_GCP = (
    "BucketObject",
    "Instance",
    "InstanceGroupManager",
    "InstanceTemplate",
    "Network",
    "NodePool",
    "RouterNat",
    "Topic",
    "Workflow",
)
COUNTED_ON_HOSTS = ("Command", "CopyToRemote")
COUNTED_ON_OPENSTACK = ("ApplicationCredential", "Container", "Instance", "Port", "Router", "SecGroup", "ServerGroup")
COUNTED = (
    "DataRepositoryAssociation",
    "Function",
    "Group",
    "Instance",
    "NatGateway",
    "Schedule",
    "Topic",
    "VpcEndpoint",
)
COUNTS = {
    "aws-demo": (1, 0, 2, 1, 1, 0, 2, 1),
    "aws-existing": (0, 1, 1, 1, 0, 0, 3, 0),
    "aws-g5-dev": (0, 1, 1, 0, 0, 0, 3, 8),
    "aws-p4d-block": (1, 0, 1, 1, 1, 2, 2, 1),
    "aws-p5-slurm": (1, 1, 2, 1, 1, 0, 3, 1),
    "aws-p5-spot": (2, 1, 2, 1, 1, 0, 3, 1),
    "eks-p5-kueue": (1, 1, 2, 0, 1, 0, 2, 1),
    # Containers: of runs, and of the log of imports.
    "aks-ndv5": (2, 0, 1, 1, 1, 1, 0, 0, 1),
    "azure-existing": (0, 0, 0, 0, 0, 0, 1, 2, 1),
    "azure-nc-dev": (0, 0, 1, 0, 1, 1, 1, 2, 1),
    "azure-ndv4": (0, 1, 1, 0, 1, 2, 1, 1, 0),
    "azure-ndv5-spot": (0, 1, 2, 1, 1, 2, 1, 2, 1),
    # Instances: the head's and Lustre's, or Filestore's.
    "gcp-a3-spot": (1, 2, 2, 2, 9, 0, 1, 1, 1),
    "gcp-existing": (1, 1, 2, 2, 0, 0, 0, 1, 1),
    "gcp-v5e-pod": (1, 1, 0, 0, 1, 0, 1, 1, 1),
    "gcp-v5p-multislice": (1, 1, 0, 0, 1, 0, 1, 1, 2),
    # Pools: of the system, and of each rung.
    "gke-a3-jobset": (0, 1, 0, 0, 9, 3, 1, 1, 1),
    "gke-tpu-v5e": (0, 1, 0, 0, 1, 3, 1, 1, 0),
    "hosts-lab": (6, 2),
    # Of each machine its services, and one key.
    "hosts-slurm": (4, 2),
    # Ports: of each node one, and eight for RDMA; and the head's.
    # No router; the container of secrets; ports as above.
    "openstack-existing": (1, 1, 5, 37, 0, 0, 1),
    "openstack-gpu": (1, 2, 5, 37, 1, 2, 1),
}

every_stack = pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)


def name_of(path: Path) -> str:
    return path.name.removeprefix("Pulumi.").removesuffix(".yaml")


def test_each_is_counted_here() -> None:
    assert [name_of(path) for path in FILES] == sorted({**BESIDES, **ALONE}) == sorted(COUNTS)


@pytest.mark.slow
@every_stack
def test_it_is_planned_by_the_command(path: Path) -> None:
    done = CliRunner().invoke(app, ["plan", str(path), "--json"])
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    assert data["stack"] == name_of(path)
    assert [finding for finding in data["findings"] if finding["severity"] == "error"] == []
    assert data["cost"]["hourly"] > 0
    types = Counter(resource["type"] for resource in data["resources"])
    components = {token.rpartition(":")[2]: count for token, count in types.items() if token.startswith("gangway:")}
    name = name_of(path)
    kinds = ALONE[name] if name in ALONE else ALWAYS | BESIDES[name]
    # The key that signs records; and the member key, where there is a head. Existing accounts are of nodes and head.
    several = {"ExistingIdentity", "SecretParameter", "StackSecret"}
    secrets = dict.fromkeys(several & kinds, 2 if "HeadNode" in kinds else 1)
    # A Slurm's machines have a key of their own, and the controller may do what its nodes may not.
    queue = {"SecretParameter": 1, "SlurmIdentity": 2} if "SlurmIdentity" in kinds else {}
    assert components == dict.fromkeys(kinds, 1) | secrets | queue
    classes: Counter[str] = Counter()
    for token, count in types.items():
        if token.startswith(("aws:", "gcp:", "azure-native:", "command:", "openstack:")):
            classes[token.rpartition(":")[2]] += count
    lists = {
        "aws": COUNTED,
        "gcp": COUNTED_ON_GCP,
        "azure": COUNTED_ON_AZURE,
        "hosts": COUNTED_ON_HOSTS,
        "openstack": COUNTED_ON_OPENSTACK,
    }
    counted = lists[data["provider"]]
    assert {kind: classes[kind] for kind in counted} == dict(zip(counted, COUNTS[name], strict=True))


# tests/engine/test_existing_aws.py: the cloud of the other needs what the stack brings.
MADE_ON_AWS = [path for path in FILES if name_of(path).startswith("aws-") and name_of(path) != "aws-existing"]


@pytest.mark.slow
@pytest.mark.parametrize("path", MADE_ON_AWS, ids=name_of)
def test_it_is_applied_to_the_simulated_cloud(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the sandbox reached for the network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    config = from_file(path)
    with MotoCloud(config.region) as cloud:
        declared = run_program(config, cloud).resources
        rows = cloud.read_back()
    # What is kept in the state alone, or done on the way by Python of ours, is no request to the cloud's provider.
    own = ("pulumi:providers:", "pulumi:index:", "pulumi-python:dynamic/")
    built = {(r.type, r.name) for r in declared if r.custom and not r.type.startswith(own)}
    assert {(row.type, row.name) for row in rows} == built
    fine = {Status.READ_BACK_EQUAL, Status.ACCEPTED, Status.VALIDATED}
    assert [f"{row.type} {row.name}: {row.status}; {row.note}" for row in rows if row.status not in fine] == []
    assert sum(row.status is Status.READ_BACK_EQUAL for row in rows) > len(rows) / 2
