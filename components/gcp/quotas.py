"""A stack's quotas on Google Cloud: GPUs, local SSD, TPU chips, network, file system. Pure. Names are of Google's APIs,
or of its console if those are unpublished.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from gangway.components.catalog.schema import GcpMachineType
from gangway.components.core.capacity import AnyRung, FlexStart, Reservation, Spot
from gangway.components.core.findings import Finding
from gangway.components.core.limits import QuotaNeed, count_nodes, no_quota
from gangway.components.gcp.capacity import LADDER
from gangway.components.gcp.fabric import plan_fabric_networks
from gangway.components.gcp.slices import SlicePlan

__all__ = ["POOL_QUOTAS", "QuotaContext", "machine_quotas", "pool_quotas", "slice_quotas", "storage_quota"]

GPU_QUOTAS: Mapping[str, str] = MappingProxyType(
    {
        "a2-highgpu": "NVIDIA_A100_GPUS",
        "a2-ultragpu": "NVIDIA_A100_80GB_GPUS",
        "a3-highgpu": "NVIDIA_H100_GPUS",
        "a3-megagpu": "NVIDIA_H100_MEGA_GPUS",
        "a3-ultragpu": "NVIDIA_H200_GPUS",
        "a4-highgpu": "NVIDIA_B200_GPUS",
        "g2-standard": "NVIDIA_L4_GPUS",
    }
)
"""By series. A100 and L4 are in Compute Engine's discovery document (v1, `Quota.metric`), as is the form of preemptible
ones; H100 to B200 are from projects (`gcloud compute regions describe`).
"""
TPU_QUOTAS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "v5e": ("TPUV5sLitepodPerProjectPerZoneForTPUAPI", "TPUV5sPreemptibleLitepodPerProjectPerZoneForTPUAPI"),
        "v5p": ("TPUV5PPerProjectPerZoneForTPUAPI", "TPUV5PPreemptiblePerProjectPerZoneForTPUAPI"),
        "v6e": ("TPUV6EPerProjectPerZoneForTPUAPI", "TPUV6EPreemptiblePerProjectPerZoneForTPUAPI"),
    }
)
"""The TPU API's, by generation, on demand and preemptible: from errors and `gcloud beta quotas info` of projects. Other
generations' names were not found.
"""
POOL_QUOTAS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "v4": ("'TPU v4 PodSlice chips'", "'Preemptible TPU v4 PodSlice chips'"),
        "v5e": (
            "TPU_LITE_PODSLICE_V5 ('TPU v5 Lite PodSlice chips')",
            "PREEMPTIBLE_TPU_LITE_PODSLICE_V5 ('Preemptible TPU v5 Lite Podslice chips')",
        ),
        "v5p": ("TPU-V5P-per-project-region", "PREEMPTIBLE-TPU-V5P-per-project-region"),
        "v6e": (
            "TPUS-PER-TPU-FAMILY-per-project-region (tpu_family: CT6E)",
            "PREEMPTIBLE-TPU-V6E-per-project-region",
        ),
        "tpu7x": ("'TPUs per TPU family' (tpu_family: tpu7x)", "'Preemptible TPU slices tpu7x'"),
    }
)
"""Compute Engine's for GKE's node pools, in chips by region; in quotes the console's names (Compute Engine
documentation, "Allocation quotas", and GKE's on TPUs, from public notes of 2026-07-14). Ids are from `gcloud quotas
info` in August 2026.
"""
REGION_QUOTAS = "gcloud compute regions describe {region} --project {project}"
PROJECT_QUOTAS = "gcloud compute project-info describe --project {project}"
SERVICE_QUOTAS = "gcloud beta quotas info list --service {service}.googleapis.com --project {project}"


@dataclass(frozen=True)
class QuotaContext:
    """A stack's place, and its maximum number of machines or slices."""

    project: str
    region: str
    zone: str
    num_nodes: int

    def of_region(self, path: str, amount: int, unit: str, name: str) -> Finding:
        """A need of an older Compute Engine quota in the region."""
        command = REGION_QUOTAS.format(region=self.region, project=self.project)
        return QuotaNeed(path, amount, unit, name, self.region, count_nodes(self.num_nodes), command).finding()

    def of_project(self, path: str, amount: int, name: str, users: str = "") -> Finding:
        """A need of a project-wide quota."""
        command = PROJECT_QUOTAS.format(project=self.project)
        return QuotaNeed(path, amount, "", name, f"project {self.project}", users, command).finding()

    def of_service(self, service: str, path: str, amount: int, unit: str, name: str, place: str, users: str) -> Finding:
        """A need of a quota that only the quota API shows."""
        command = SERVICE_QUOTAS.format(service=service, project=self.project)
        return QuotaNeed(path, amount, unit, name, place, users, command).finding()


def machine_quotas(machine: GcpMachineType, rungs: Sequence[AnyRung], context: QuotaContext) -> Iterable[Finding]:
    """Quotas of GPUs, local SSDs and networks."""
    reported: set[bool] = set()
    for index, rung in enumerate(rungs):
        path = f"{LADDER}[{index}]"
        # Flex-start counts against the preemptible quotas, although its machines are not interrupted.
        preemptible = isinstance(rung, Spot | FlexStart)
        if isinstance(rung, Reservation):
            yield _reserved(path)
        elif preemptible not in reported:
            reported.add(preemptible)
            yield from _of_rung(machine, path, context, preemptible=preemptible)
    if reported:
        gpus = machine.num_accelerators.value * context.num_nodes
        yield context.of_project(LADDER, gpus, "GPUS_ALL_REGIONS")
    networks = 1 + len(plan_fabric_networks(machine, context.zone))
    yield context.of_project("gangway:cluster", networks, "NETWORKS", "nodes and GPU NICs" if networks > 1 else "")


def _reserved(path: str) -> Finding:
    return no_quota(path, "the reservation took its share when it was made")


def _of_rung(machine: GcpMachineType, path: str, context: QuotaContext, *, preemptible: bool) -> Iterable[Finding]:
    series = "-".join(machine.name.split("-")[:2])
    metric = ("PREEMPTIBLE_" if preemptible else "") + GPU_QUOTAS[series]
    yield context.of_region(path, machine.num_accelerators.value * context.num_nodes, "GPUs", metric)
    disks_gb = (machine.instance_store_gib.value or 0) * context.num_nodes
    if disks_gb:
        ssd = "PREEMPTIBLE_LOCAL_SSD_GB" if preemptible else "LOCAL_SSD_TOTAL_GB (newer projects: by VM family)"
        yield context.of_region(path, disks_gb, "GB", ssd)


def slice_quotas(tpu: SlicePlan, rung: AnyRung, context: QuotaContext) -> Iterable[Finding]:
    """Quotas of queued resources' chips or TensorCores in the zone, and of the network."""
    cores, chips = tpu.tensor_cores * context.num_nodes, tpu.chips * context.num_nodes
    names, reserved = TPU_QUOTAS.get(tpu.generation), isinstance(rung, Reservation)
    kind = "preemptible" if isinstance(rung, Spot) else "reserved" if reserved else "on demand"
    name = f"of TPU {tpu.generation}" if names is None or reserved else names[isinstance(rung, Spot)]
    unit = "chips" if cores == chips else f"chips ({cores:,} where TensorCores are counted)"
    place, users = f"{context.zone} ({kind})", count_nodes(context.num_nodes, "slice")
    yield context.of_service("tpu", f"{LADDER}[0]", chips, unit, name, place, users)
    yield context.of_project("gangway:cluster", 1, "NETWORKS")


def pool_quotas(tpu: SlicePlan, rungs: Sequence[AnyRung], context: QuotaContext) -> Iterable[Finding]:
    """Quotas of GKE node pools' chips, which are Compute Engine's, and of the network."""
    chips, reported = tpu.chips * context.num_nodes, set[str]()
    for index, rung in enumerate(rungs):
        path, name = f"{LADDER}[{index}]", POOL_QUOTAS[tpu.generation][isinstance(rung, Spot)]
        if isinstance(rung, Reservation):
            yield _reserved(path)
        elif name not in reported:
            reported.add(name)
            users = count_nodes(context.num_nodes, "slice")
            yield context.of_service("compute", path, chips, "chips", name, context.region, users)
    yield context.of_project("gangway:cluster", 1, "NETWORKS")


def storage_quota(kind: str, capacity_gib: int, context: QuotaContext) -> Finding:
    """Quota of the file system's capacity, by tier."""
    service, name = {"lustre": ("lustre", "Managed Lustre"), "filestore": ("file", "Filestore")}[kind]
    path, of_tier = "gangway:storage.capacity_gib", f"of {name}'s capacity, by tier,"
    return context.of_service(service, path, capacity_gib, "GiB", of_tier, context.region, "")
