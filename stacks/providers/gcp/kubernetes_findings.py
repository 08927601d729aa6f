"""What a person should know of a stack with `engine: kubernetes` on Google Cloud before `up`. Pure."""

from collections.abc import Iterable
from datetime import UTC, datetime

from components.core.findings import Finding
from components.estimate.cost import CostEstimate
from components.gcp.capacity import LADDER, LadderContext, capacity_findings
from components.gcp.gke_fabric import has_rdma
from stacks.base.cluster_queues import get_engine, get_version, topology_findings
from stacks.config.stack_config import StackConfig
from stacks.estimates.common_findings import common_findings
from stacks.estimates.provider_findings import CLUSTER, offering_findings, zone
from stacks.providers.gcp.kubernetes_plan import cluster_spec
from stacks.providers.gcp.plan import GcpPlan, zone_is_assumed


def cluster_findings(config: StackConfig, planned: GcpPlan, cost: CostEstimate | None) -> tuple[Finding, ...]:
    """What a person should know of such a cluster before `up`."""
    return (
        *common_findings(config, planned.machine, cost, shared=True),
        *offering_findings(config, planned.machine, "gcp", planned.zone, datetime.now(UTC).date()),
        *zone(planned.zone, planned.zone_reason),
        *_control_plane(config),
        *_nodes(config, planned),
        *topology_findings(cluster_spec(config, planned.machine, planned.tpu).flavors[0]),
        *_runs(config),
    )


def _control_plane(config: StackConfig) -> Iterable[Finding]:
    ranges = get_engine(config).api_cidrs
    outside = f"and from {', '.join(ranges)}" if ranges else "alone: `up` and `gangway job` need a way in"
    yield Finding.info(
        "kubernetes.api",
        "gangway:engine.api_cidrs",
        f"Kubernetes {get_version(config)} answers inside the network {outside}; whoever runs `up` needs "
        "roles/container.admin, and gke-gcloud-auth-plugin on the path",
        "" if ranges else "a VPN, a machine inside, or api_cidrs with your own network's addresses",
    )
    yield Finding.info(
        "cluster.idle-minutes",
        "gangway:engine.idle_minutes",
        f"GKE gives a node without work back after a time of its own, some ten minutes, whatever stands here "
        f"({get_engine(config).idle_minutes})",
    )
    yield Finding.info(
        "cluster.not-tried",
        "gangway:engine",
        "every request was held against Google's description of the API, and none was sent to GKE",
        "begin with one small node, and run a job on it",
    )


def _nodes(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    if planned.tpu is not None:
        yield Finding.warning(
            "tpu.pods-not-tried",
            CLUSTER,
            f"{planned.machine.name}: pods of jobs are not privileged, as those of Google's examples are: a pod on "
            "each node lets them lock memory and open /dev/accel* and /dev/vfio; it was tried on no TPU of GKE so far",
            "begin with one slice of one host, and run a job on it that lists its chips",
        )
        return
    machine, nodes = planned.gpu_machine, config.cluster.nodes
    if has_rdma(machine, nodes.max):
        yield Finding.info(
            "fabric.rdma-in-pods",
            CLUSTER,
            f"{machine.name}: pods of a job on several nodes have the RDMA NICs and Google's plug-in for NCCL where "
            f"they ask for all {machine.num_accelerators.value} GPUs of a node; with fewer they talk over TCP",
            "the job's image needs bash and CUDA; NCCL_NET: Socket in its env goes by TCP",
        )
    elif nodes.max > 1:
        nics = "its GPU NICs are there, but " if machine.gpu_fabric is not None else ""
        yield Finding.warning(
            "fabric.tcp-in-pods",
            CLUSTER,
            f"{machine.name}: {nics}a job's pods talk over the machine's own network by TCP: GPUDirect takes a plug-in "
            "from the host and a daemon with rights of its own, which pods of a team's namespace may not have",
            "run jobs of several nodes without engine: kubernetes where the network decides, or on one node",
        )
    context = LadderContext(machine, planned.zone, zone_is_assumed(config), nodes.min, nodes.max, config.work.max_hours)
    yield from capacity_findings(config.cluster.capacity, context)
    if len(config.cluster.capacity) > 1:
        yield Finding.info(
            "cluster.rung-order",
            LADDER,
            "GKE's autoscaler chooses among the rungs by price, and turns to another where one has no capacity: a rung "
            "that costs less is tried first, wherever it stands",
        )


def _runs(config: StackConfig) -> Iterable[Finding]:
    if config.storage is None:
        yield Finding.warning(
            "cluster.no-claim",
            "gangway:storage",
            "there is nowhere for run folders: a job wants a volume claim gangway-runs in its team's namespace",
            "add storage: {kind: filestore, capacity_gib: 2560}, or make the claims yourself",
        )
