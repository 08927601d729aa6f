"""The quotas that a stack counts against, and by how much: most begin at zero, and `up` or the nodes fail on them hours
later. Names as Google's APIs have them; what is left only the project is told.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from components.catalog.schema import GcpMachineType
from components.core.capacity import AnyRung, FlexStart, Reservation, Spot
from components.core.findings import Finding
from components.gcp.capacity import LADDER
from components.gcp.fabric import plan_fabric_networks
from components.gcp.tpu.slices import SlicePlan

__all__ = ["QuotaContext", "machine_quotas", "slice_quotas", "storage_quotas"]

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
"""By series. A100 and L4 are in Compute Engine's discovery document (v1, `Quota.metric`), as is the form of the
preemptible ones; H100 to B200 are of what projects show (`gcloud compute regions describe`).
"""
TPU_QUOTAS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "v5e": ("TPUV5sLitepodPerProjectPerZoneForTPUAPI", "TPUV5sPreemptibleLitepodPerProjectPerZoneForTPUAPI"),
        "v6e": ("TPUV6EPerProjectPerZoneForTPUAPI", "TPUV6EPreemptiblePerProjectPerZoneForTPUAPI"),
    }
)
"""By generation, on demand and preemptible: as errors and `gcloud beta quotas info` of projects name them. Of the other
generations no such name was found.
"""
REGION_QUOTAS = "`gcloud compute regions describe {region} --project {project}` shows what is left"
PROJECT_QUOTAS = "`gcloud compute project-info describe --project {project}` shows what is left"
SERVICE_QUOTAS = "`gcloud beta quotas info list --service {service}.googleapis.com --project {project}` shows the limit"


@dataclass(frozen=True)
class QuotaContext:
    """Where a stack is, and how many machines, or slices, it asks for at most."""

    project: str
    region: str
    zone: str
    num_nodes: int

    def finding(self, path: str, what: str, shown_by: str) -> Finding:
        """One quota: how much of it is used, and what shows how much there is."""
        return Finding.info(
            "capacity.quota", path, f"{what}; {shown_by.format(project=self.project, region=self.region)}"
        )

    def nodes(self) -> str:
        """The nodes, in words."""
        return "1 node" if self.num_nodes == 1 else f"{self.num_nodes} nodes"


def machine_quotas(machine: GcpMachineType, rungs: Sequence[AnyRung], context: QuotaContext) -> Iterable[Finding]:
    """Of networks, GPUs and local SSDs. A reservation has taken its share when it was made."""
    networks = 1 + len(plan_fabric_networks(machine, context.zone))
    yield context.finding(
        "gangway:cluster",
        f"{networks} of the project's quota NETWORKS" + (", most of them for the GPUs' NICs" if networks > 1 else ""),
        PROJECT_QUOTAS,
    )
    reported: set[bool] = set()
    for index, rung in enumerate(rungs):
        # Flex-start counts against the preemptible quotas, though nobody takes its machines back.
        preemptible = isinstance(rung, Spot | FlexStart)
        if isinstance(rung, Reservation) or preemptible in reported:
            continue
        reported.add(preemptible)
        yield from _of_rung(machine, f"{LADDER}[{index}]", context, preemptible=preemptible)
    if reported:
        gpus = machine.num_accelerators.value * context.num_nodes
        yield context.finding(LADDER, f"{gpus} of the project's quota GPUS_ALL_REGIONS", PROJECT_QUOTAS)


def _of_rung(machine: GcpMachineType, path: str, context: QuotaContext, *, preemptible: bool) -> Iterable[Finding]:
    gpus, nodes = machine.num_accelerators.value * context.num_nodes, context.nodes()
    series = "-".join(machine.name.split("-")[:2])
    metric = ("PREEMPTIBLE_" if preemptible else "") + GPU_QUOTAS[series]
    yield context.finding(path, f"{gpus} of the quota {metric} in {context.region}, for {nodes}", REGION_QUOTAS)
    disks_gib = (machine.instance_store_gib.value or 0) * context.num_nodes
    if disks_gib:
        ssd = "PREEMPTIBLE_LOCAL_SSD_GB" if preemptible else "LOCAL_SSD_TOTAL_GB (newer projects: by VM family)"
        yield context.finding(path, f"{disks_gib:g} GB of the quota {ssd} in {context.region}", REGION_QUOTAS)


def slice_quotas(tpu: SlicePlan, rung: AnyRung, context: QuotaContext) -> Iterable[Finding]:
    """Of chips or TensorCores, preemptible ones apart, in the zone; and of the one network."""
    preemptible = isinstance(rung, Spot)
    cores, chips = tpu.tensor_cores * context.num_nodes, tpu.chips * context.num_nodes
    names = TPU_QUOTAS.get(tpu.generation)
    metric = f"the quota {names[preemptible]}" if names else f"the quota of TPU {tpu.generation}"
    kind = {Spot: "preemptible", Reservation: "reserved"}.get(type(rung), "on demand")
    amount = f"{chips} chips" if cores == chips else f"{chips} chips ({cores} where TensorCores are counted)"
    yield context.finding(
        f"{LADDER}[0]",
        f"{amount} of {metric} ({kind}) in {context.zone}",
        SERVICE_QUOTAS.replace("{service}", "tpu"),
    )
    yield context.finding("gangway:cluster", "1 of the project's quota NETWORKS", PROJECT_QUOTAS)


def storage_quotas(kind: str, capacity_gib: int, context: QuotaContext) -> Iterable[Finding]:
    """Of the file system's capacity: Managed Lustre and Filestore count by tier."""
    service, name = {"lustre": ("lustre", "Managed Lustre"), "filestore": ("file", "Filestore")}[kind]
    yield context.finding(
        "gangway:storage.capacity_gib",
        f"{capacity_gib:,} GiB of {name}'s capacity, counted by tier, in {context.region}",
        SERVICE_QUOTAS.replace("{service}", service),
    )
