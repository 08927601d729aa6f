"""Worker nodes of an EKS cluster: joining, what an autoscaler reads from an empty group, additional charts; pure."""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, ip_network

import pulumi

from gangway.components.aws.launch import count_efa
from gangway.components.catalog.schema import MachineType
from gangway.components.core.capacity import RungPlan
from gangway.components.core.findings import InputError
from gangway.components.core.job import OPEN_FILES
from gangway.components.kubernetes import charts
from gangway.components.kubernetes.charts import SYSTEM, Chart, tolerations
from gangway.components.kubernetes.namespaces import RunVolume
from gangway.components.kubernetes.spec import (
    EFA,
    GPU,
    HOST,
    JOBS,
    JOBS_ONLY,
    RUNG_LABEL,
    ClusterSpec,
    Flavor,
    Node,
    eks_allocatable,
)

VERSIONS = ("1.35", "1.36")  # in EKS's standard support into 2027: an older one costs six times as much an hour
SYSTEM_MACHINE, SYSTEM_NODES = "t3.large", 2  # machines of system pods; one more while they are replaced
# Of Amazon Linux 2023, the base of EKS's images.
ROOT_DEVICE = "/dev/xvda"
# EKS user guide, "ServiceIpv4Cidr"; the second if the VPC overlaps the first.
_SERVICE_CIDRS = ("172.20.0.0/16", "10.100.0.0/16")
# EC2 user guide, "Prerequisites for Amazon EC2 topology": types by number of layers, November 2026.
_LAYERS: Mapping[str, int] = {
    "p3dn.24xlarge": 3,
    "p4d.24xlarge": 3,
    "p4de.24xlarge": 3,
    "p5.48xlarge": 3,
    "p5e.48xlarge": 3,
    "p5en.48xlarge": 3,
    "p6e-gb200.36xlarge": 3,
    "trn1.2xlarge": 3,
    "trn1.32xlarge": 3,
    "trn1n.32xlarge": 3,
    "trn2.48xlarge": 3,
    "trn2u.48xlarge": 3,
    "p6-b200.48xlarge": 4,
    "p6-b300.48xlarge": 4,
}
_LAYERED_FAMILIES: Mapping[str, int] = {"g6e": 3, "g7e": 3}
_LAYER_LABEL = "topology.k8s.aws/network-node-layer-"
_SCALER = "k8s.io/cluster-autoscaler"
_BOUNDARY = "==gangway=="


@dataclass(frozen=True)
class JoinSpec:
    """What a machine must know to join its cluster."""

    cluster: str
    endpoint: str
    certificate_authority: str
    service_cidr: str


def check_version(version: str, place: str) -> None:
    """Check the Kubernetes version. InputError: not in EKS's standard support."""
    if version not in VERSIONS:
        raise InputError.not_among(place, "not a version that EKS has in standard support", version, VERSIONS)


def service_cidr(vpc_cidr: str) -> str:
    """Addresses of the cluster's services, outside the VPC's range."""
    vpc = ip_network(vpc_cidr)
    return next(each for each in _SERVICE_CIDRS if not IPv4Network(each).overlaps(IPv4Network(vpc)))


def image_parameter(version: str, machine: MachineType) -> str:
    """SSM parameter of the newest image (EKS user guide, "Retrieve recommended Amazon Linux AMI IDs")."""
    kind = "nvidia" if machine.backend == "nccl" else "standard"
    family = f"amazon-linux-2023/{machine.architecture}/{kind}"
    return f"/aws/service/eks/optimized-ami/{version}/{family}/recommended/image_id"


def node_of(machine: MachineType, root_volume_gib: int) -> Node:
    """A node's resources for jobs. Pods write to local disks if there are any."""
    gpus = {GPU: machine.num_accelerators.value} if machine.backend == "nccl" else {}
    efa = {EFA: count_efa(machine)} if count_efa(machine) else {}
    disk_gib = machine.instance_store_gib.value or root_volume_gib
    allocatable = eks_allocatable(machine.vcpus.value, machine.memory_gib.value, disk_gib)
    return Node(allocatable.cpus, allocatable.memory_gib, {**gpus, **efa}, allocatable.disk_gib)


def node_labels(machine: MachineType, rung: str) -> dict[str, str]:
    """Labels of a node; `rung` is the last part of its group's name, such as 0-spot."""
    labels = {**JOBS, RUNG_LABEL: rung}
    if machine.backend == "nccl":
        # By the second label the autoscaler knows that a node's GPUs are still starting.
        labels |= {f"{GPU}.present": "true", "k8s.amazonaws.com/accelerator": machine.accelerator}
    if count_efa(machine):
        labels[f"{EFA}.present"] = "true"
    return labels


def network_levels(machine: MachineType) -> tuple[str, ...]:
    """Topology labels of EKS nodes ("Place distributed AI/ML workloads with network topology labels"), widest first;
    empty for types whose topology EC2 does not report.
    """
    layers = _LAYERS.get(machine.name, _LAYERED_FAMILIES.get(machine.name.partition(".")[0], 0))
    return (*(f"{_LAYER_LABEL}{number}" for number in range(1, layers + 1)), HOST) if layers else ()


def get_flavor(machine: MachineType, *, standing: bool) -> Flavor:
    """One flavor for all rungs: Kueue does not know EC2's capacity, so a job assigned to an empty rung would wait
    forever. The autoscaler walks the ladder. `standing`: all nodes are always up.
    """
    return Flavor(machine.name.replace(".", "-"), dict(JOBS), network_levels(machine) if standing else ())


def group_pattern(pool: str, position: int, rung: RungPlan) -> str:
    """Pattern of the group's name, which Pulumi extends by random letters."""
    return f"^{pool}-{position}-{rung.kind}-[0-9a-f]+$"


def group_tags(cluster: str, machine: MachineType, rung: str, root_volume_gib: int) -> dict[str, str]:
    """Tags by which the autoscaler finds a group, and knows the nodes of an empty one."""
    template, node = f"{_SCALER}/node-template", node_of(machine, root_volume_gib)
    return {
        f"{_SCALER}/enabled": "true",
        f"{_SCALER}/{cluster}": "owned",
        **{f"{template}/label/{key}": value for key, value in node_labels(machine, rung).items()},
        f"{template}/taint/{JOBS_ONLY}": "true:NoSchedule",
        **{f"{template}/resources/{name}": str(count) for name, count in node.devices.items()},
        f"{template}/resources/ephemeral-storage": f"{node.disk_gib}Gi",
    }


def _limits(memory_gib: float) -> list[dict[str, str | int]]:
    """OCI process limits; they replace the image's. "unlimited", 2^64 - 1, overflows in readers that use floats."""
    most = {"RLIMIT_MEMLOCK": int(memory_gib) * 2**30, "RLIMIT_NOFILE": OPEN_FILES}
    return [{"type": name, "soft": value, "hard": value} for name, value in most.items()]


def join_script(join: JoinSpec, labels: Mapping[str, str], memory_gib: float) -> str:
    """User data, base64, for nodeadm (Amazon EKS AMI, "NodeConfig"). `memory_gib`: of the machine."""
    written = ",".join(f"{key}={value}" for key, value in labels.items())
    config = {
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "spec": {
            "cluster": {
                "name": join.cluster,
                "apiServerEndpoint": join.endpoint,
                "certificateAuthority": join.certificate_authority,
                "cidr": join.service_cidr,
            },
            # By containerd's defaults an unprivileged pod could lock only 8 MiB for EFA.
            "containerd": {"baseRuntimeSpec": {"process": {"rlimits": _limits(memory_gib)}}},
            # One volume of the local NVMe disks, for images and pods' temporary files.
            "instance": {"localStorage": {"strategy": "RAID0"}},
            "kubelet": {"flags": [f"--node-labels={written}", f"--register-with-taints={JOBS_ONLY}=true:NoSchedule"]},
        },
    }
    lines = [
        "MIME-Version: 1.0",
        f'Content-Type: multipart/mixed; boundary="{_BOUNDARY}"',
        "",
        f"--{_BOUNDARY}",
        "Content-Type: application/node.eks.aws",
        "",
        json.dumps(config, indent=1),
        f"--{_BOUNDARY}--",
        "",
    ]
    return b64encode("\r\n".join(lines).encode()).decode()


def cluster_charts(
    spec: ClusterSpec,
    *,
    cluster: str,
    region: str,
    groups: Sequence[str],
    idle_minutes: int,
    lustre: bool,
    hardware_metrics: bool = False,
) -> list[Chart]:
    """All charts of an EKS cluster for jobs. `groups`: as in `charts.cluster_autoscaler`."""
    found = {"autoDiscovery": {"clusterName": cluster}, "cloudProvider": "aws", "awsRegion": region}
    devices = spec.node.devices
    return [
        charts.job_set(),
        charts.kueue(spec, len(groups)),
        charts.cluster_autoscaler(found, groups, idle_minutes),
        _termination_handler(),
        *([charts.nvidia_plugin(), charts.dcgm_exporter()] if GPU in devices else []),
        *([_efa_plugin()] if EFA in devices else []),
        *([_lustre_driver(region)] if lustre else []),
        *([charts.prometheus(cluster)] if hardware_metrics else []),
    ]


def lustre_volume(dns_name: pulumi.Input[str], mount_name: pulumi.Input[str]) -> RunVolume:
    """The source of a volume on FSx for Lustre."""
    attributes = {"dnsname": dns_name, "mountname": mount_name}
    # `flock`, which checkpoints' locks need.
    return {"csi": {"driver": "fsx.csi.aws.com", "volumeAttributes": attributes}, "mountOptions": ["flock"]}


def _efa_plugin() -> Chart:
    values = {"nodeSelector": {f"{EFA}.present": "true"}, "tolerations": tolerations()}
    repository = "https://aws.github.io/eks-charts"
    return Chart("aws-efa-k8s-device-plugin", "aws-efa-k8s-device-plugin", "v0.5.30", repository, SYSTEM, values)


def _termination_handler() -> Chart:
    values = {
        "nodeSelector": dict(JOBS),
        "tolerations": [{"operator": "Exists"}],
        "enableSpotInterruptionDraining": True,
        "enableScheduledEventDraining": True,
        "enableASGLifecycleDraining": True,
        # A rebalance recommendation does not end a node: it may run for hours.
        "enableRebalanceMonitoring": False,
        "enableRebalanceDraining": False,
    }
    address = "oci://public.ecr.aws/aws-ec2/helm/aws-node-termination-handler"
    return Chart("aws-node-termination-handler", address, "0.27.6", None, SYSTEM, values)


def _lustre_driver(region: str) -> Chart:
    values = {
        # `File`: a volume's root gets the group of the first pod, so that unprivileged pods can write.
        "csidriver": {"fsGroupPolicy": "File"},
        "controller": {"region": region, "replicaCount": 1},
        "node": {"region": region},
    }
    repository = "https://kubernetes-sigs.github.io/aws-fsx-csi-driver"
    return Chart("aws-fsx-csi-driver", "aws-fsx-csi-driver", "1.17.0", repository, SYSTEM, values)
