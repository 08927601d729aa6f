"""EKS's additional charts: EFA's plugin, spot notices, FSx for Lustre; pure."""

from collections.abc import Sequence

import pulumi

from gangway.components.kubernetes import charts
from gangway.components.kubernetes.charts import SYSTEM, Chart
from gangway.components.kubernetes.namespaces import RunVolume
from gangway.components.kubernetes.queues import tolerations
from gangway.components.kubernetes.spec import EFA, GPU, JOBS, ClusterSpec

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
    ]


def lustre_volume(dns_name: pulumi.Input[str], mount_name: pulumi.Input[str]) -> RunVolume:
    """The source of a volume on FSx for Lustre."""
    attributes = {"dnsname": dns_name, "mountname": mount_name}
    # `flock`, which checkpoints' locks need.
    return {"csi": {"driver": "fsx.csi.aws.com", "volumeAttributes": attributes}, "mountOptions": ["flock"]}


def _efa_plugin() -> Chart:
    """Report EFA interfaces to the kubelet."""
    values = {"nodeSelector": {f"{EFA}.present": "true"}, "tolerations": tolerations()}
    repository = "https://aws.github.io/eks-charts"
    return Chart("aws-efa-k8s-device-plugin", "aws-efa-k8s-device-plugin", "v0.5.30", repository, SYSTEM, values)


def _termination_handler() -> Chart:
    """Drain a node when its metadata announces an interruption or maintenance; its pods get SIGTERM."""
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
    """Mount existing file systems; it cannot create any."""
    values = {
        # `File`: a volume's root gets the group of the first pod, so that unprivileged pods can write.
        "csidriver": {"fsGroupPolicy": "File"},
        "controller": {"region": region, "replicaCount": 1},
        "node": {"region": region},
    }
    repository = "https://kubernetes-sigs.github.io/aws-fsx-csi-driver"
    return Chart("aws-fsx-csi-driver", "aws-fsx-csi-driver", "1.17.0", repository, SYSTEM, values)
