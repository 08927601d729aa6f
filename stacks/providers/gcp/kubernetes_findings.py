"""Findings of stacks with `engine: kubernetes` on Google Cloud."""

from collections.abc import Iterable
from datetime import UTC, datetime

from gangway.components.core.capacity import LADDER
from gangway.components.core.findings import Finding
from gangway.components.estimate.cost import CostEstimate
from gangway.components.gcp.capacity import LadderContext, capacity_findings
from gangway.components.gcp.gke_pools import has_rdma
from gangway.stacks.base.cluster_queues import api_finding, get_engine, get_version, topology_findings
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.common_findings import common_findings
from gangway.stacks.estimates.provider_findings import CLUSTER, offering_findings, zone
from gangway.stacks.providers.gcp.plan import GcpPlan, cluster_spec, zone_is_assumed


def cluster_findings(config: StackConfig, planned: GcpPlan, cost: CostEstimate | None) -> tuple[Finding, ...]:
    """All findings of a GKE cluster, less quotas and money."""
    return (
        *common_findings(config, planned.machine, cost, shared=True),
        *offering_findings(config, planned.machine, "gcp", planned.zone, datetime.now(UTC).date()),
        *zone(planned.zone, planned.zone_reason),
        *_control_plane(config),
        *_nodes(config, planned),
        *topology_findings(cluster_spec(config, planned.machine, planned.tpu).flavors[0]),
        *_run_claims(config),
    )


def _control_plane(config: StackConfig) -> Iterable[Finding]:
    needs = "; to run `up` you need roles/container.admin, and gke-gcloud-auth-plugin on the path"
    yield api_finding(get_version(config), get_engine(config).api_cidrs, needs)
    yield Finding.info(
        "cluster.idle-minutes",
        "gangway:engine.idle_minutes",
        f"no effect: GKE removes idle nodes after about ten minutes, not {get_engine(config).idle_minutes}",
    )
    yield Finding.info(
        "cluster.not-tried",
        "gangway:engine",
        "requests were tested against Google's API description, never against GKE",
        "start with one small node, and run a job on it",
    )


def _nodes(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    if planned.tpu is not None:
        yield Finding.warning(
            "tpu.pods-not-tried",
            CLUSTER,
            f"{planned.machine.name}: pods of jobs are not privileged, unlike in Google's examples: a pod on each "
            "node lets them lock memory and open /dev/accel* and /dev/vfio. Untested on GKE's TPUs",
            "start with one slice of one host, and run a job on it that lists its chips",
        )
        return
    machine, nodes = planned.gpu_machine, config.cluster.nodes
    if has_rdma(machine, nodes.max):
        yield Finding.info(
            "fabric.rdma-in-pods",
            CLUSTER,
            f"{machine.name}: pods of a job on several nodes get the RDMA NICs and Google's NCCL plug-in if they "
            f"request all {machine.num_accelerators.value} GPUs of a node; with fewer they use TCP",
            "the job's image needs bash and CUDA; NCCL_NET: Socket in its env selects TCP",
        )
    elif nodes.max > 1:
        nics = "despite its GPU NICs " if machine.gpu_fabric is not None else ""
        yield Finding.warning(
            "fabric.tcp-in-pods",
            CLUSTER,
            f"{machine.name}: {nics}a job's pods communicate over TCP: GPUDirect requires a plug-in on the host and a "
            "privileged daemon, which team namespaces do not allow",
            "run jobs that depend on the network without engine: kubernetes, or on one node",
        )
    context = LadderContext(machine, planned.zone, zone_is_assumed(config), nodes.min, nodes.max, config.work.max_hours)
    yield from capacity_findings(config.cluster.capacity, context)
    if len(config.cluster.capacity) > 1:
        yield Finding.info(
            "cluster.rung-order",
            LADDER,
            "GKE's autoscaler tries the cheapest rung first, whatever the order here, and another one if that has no "
            "capacity",
        )


def _run_claims(config: StackConfig) -> Iterable[Finding]:
    if config.storage is None:
        yield Finding.warning(
            "cluster.no-claim",
            "gangway:storage",
            "there is no storage for run folders: jobs need a volume claim gangway-runs in the team's namespace",
            "add storage: {kind: filestore, capacity_gib: 2560}, or create the claims yourself",
        )
