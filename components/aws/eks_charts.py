"""What EKS needs beside the charts of every cluster: EFA's plugin, spot notices, FSx for Lustre; pure."""

from collections.abc import Sequence

import pulumi

from components.kubernetes import charts
from components.kubernetes.charts import SYSTEM, Chart
from components.kubernetes.namespaces import RunVolume
from components.kubernetes.queues import tolerations
from components.kubernetes.spec import EFA, GPU, JOBS, ClusterSpec

__all__ = ["cluster_charts", "lustre_volume"]


def cluster_charts(
    spec: ClusterSpec,
    *,
    cluster: str,
    region: str,
    groups: Sequence[str],
    idle_minutes: int,
    lustre: bool,
) -> list[Chart]:
    """All that a cluster of EKS runs for its jobs. `groups`: as `charts.cluster_autoscaler` has them."""
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
    ]


def lustre_volume(dns_name: pulumi.Input[str], mount_name: pulumi.Input[str]) -> RunVolume:
    """A file system of FSx for Lustre as the source of a volume."""
    attributes = {"dnsname": dns_name, "mountname": mount_name}
    # `flock`, which checkpoints' locks need.
    return {"csi": {"driver": "fsx.csi.aws.com", "volumeAttributes": attributes}, "mountOptions": ["flock"]}


def _efa_plugin() -> Chart:
    """Tells the kubelet of EFA's interfaces."""
    values = {"nodeSelector": {f"{EFA}.present": "true"}, "tolerations": tolerations()}
    repository = "https://aws.github.io/eks-charts"
    return Chart("aws-efa-k8s-device-plugin", "aws-efa-k8s-device-plugin", "v0.5.30", repository, SYSTEM, values)


def _termination_handler() -> Chart:
    """On each node, asks the machine itself for notices: of spot, of maintenance, of its group. The node is drained
    then, which tells its pods by SIGTERM, as long before as the notice comes.
    """
    values = {
        "nodeSelector": dict(JOBS),
        "tolerations": [{"operator": "Exists"}],
        "enableSpotInterruptionDraining": True,
        "enableScheduledEventDraining": True,
        "enableASGLifecycleDraining": True,
        # Nodes that may well go on for hours are not drained for what AWS thinks of their future.
        "enableRebalanceMonitoring": False,
        "enableRebalanceDraining": False,
    }
    address = "oci://public.ecr.aws/aws-ec2/helm/aws-node-termination-handler"
    return Chart("aws-node-termination-handler", address, "0.27.6", None, SYSTEM, values)


def _lustre_driver(region: str) -> Chart:
    """Mounts file systems that stand; it makes none, and has no right to."""
    values = {
        # `File`: the root of a volume is given to the group of the first pod, so that pods without rights can write.
        "csidriver": {"fsGroupPolicy": "File"},
        "controller": {"region": region, "replicaCount": 1},
        "node": {"region": region},
    }
    repository = "https://kubernetes-sigs.github.io/aws-fsx-csi-driver"
    return Chart("aws-fsx-csi-driver", "aws-fsx-csi-driver", "1.17.0", repository, SYSTEM, values)
