"""The capacity ladder on Compute Engine, its conflicts with the rest of the stack, and its quotas. Names of quotas are
of Google's APIs, or of its console if those are unpublished.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gangway.components.catalog.schema import GcpMachineType, RoceFabric
from gangway.components.core.capacity import (
    LADDER,
    AnyRung,
    FlexStart,
    OnDemand,
    Reservation,
    RungPlan,
    Spot,
    check_kinds,
    named_zones,
    not_sold,
    refuse_machine_types,
    same_reservations,
)
from gangway.components.core.findings import Finding, InputError
from gangway.components.core.limits import QuotaNeed, count_nodes, no_quota
from gangway.components.gcp.fabric import plan_fabric_networks
from gangway.components.gcp.slices import SlicePlan

OFFERED = ("reservation", "flex-start", "spot", "on-demand")  # the kinds of rungs that Compute Engine has

# A reservation of this project, or a shared one of another; optionally a block of it.
_NAME = r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
_PROJECT = r"[a-z][-a-z0-9]{4,28}[a-z0-9]"
_RESERVATION = re.compile(rf"(projects/{_PROJECT}/reservations/)?{_NAME}(/reservationBlocks/{_NAME})?")


@dataclass(frozen=True)
class Provisioning:
    """Scheduling and reservation of an instance template, in the API's words. `reservation`: None uses none, not even
    an open one; `run_duration_sec`: until an instance is deleted.
    """

    model: Literal["STANDARD", "SPOT", "FLEX_START", "RESERVATION_BOUND"]
    automatic_restart: bool
    termination_action: Literal["DELETE"] | None = None
    reservation: str | None = None
    run_duration_sec: int | None = None


def plan_provisioning(rung: RungPlan, machine: GcpMachineType) -> Provisioning:
    """A rung as template fields. Reserved A3 Ultra and A4 are bound to their reservation (AI Hypercomputer
    documentation, "Create a MIG with A4 or A3 Ultra"); earlier series are standard machines that use it.
    """
    if rung.max_hours is not None:
        return Provisioning("FLEX_START", False, "DELETE", run_duration_sec=round(rung.max_hours * 3600))
    if rung.reservation_id is not None:
        if isinstance(machine.gpu_fabric, RoceFabric):
            return Provisioning("RESERVATION_BOUND", True, "DELETE", rung.reservation_id)
        return Provisioning("STANDARD", True, reservation=rung.reservation_id)
    if rung.interruptible:
        return Provisioning("SPOT", False, "DELETE")
    return Provisioning("STANDARD", True)


def check_ladder(rungs: Sequence[AnyRung], place: str = LADDER) -> None:
    """Check the ladder. InputError: unsupported kind, reservation name, several machine types or zones in a rung."""
    check_kinds(rungs, OFFERED, "Google Cloud", place)
    for index, rung in enumerate(rungs):
        here = f"{place}[{index}]"
        if isinstance(rung, Reservation):
            check_reservation_project(rung.id, f"{here}.id")
        if isinstance(rung, Reservation) and not _RESERVATION.fullmatch(rung.id):
            raise InputError(
                f"{here}.id",
                "Compute Engine has no reservation of this name",
                value=rung.id,
                allowed="a name, or projects/PROJECT/reservations/NAME: lowercase letters, digits and -",
                fix="copy the name that `gcloud compute reservations list` shows",
            )
        if isinstance(rung, Spot | OnDemand):
            _check_market(rung, here)


def check_reservation_project(reservation: str, place: str) -> None:
    """Check a reservation's project. InputError: the project of a full name is invalid."""
    named = re.match(r"projects/([^/]*)/(?:locations|reservations)/", reservation)
    if named is not None and not re.fullmatch(_PROJECT, named[1]):
        raise InputError(
            place,
            f"{named[1]!r} can be no project's id",
            value=reservation,
            allowed="an id of 6 to 30 lowercase letters, digits and -, beginning with a letter",
            fix="write the id of the project that shares it, or the reservation's name alone for one of your own",
        )


def _check_market(rung: Spot | OnDemand, here: str) -> None:
    """A managed instance group has one zone here, and its template one machine type."""
    problem = "one machine type a cluster on Google Cloud: their GPU networks differ"
    refuse_machine_types(rung, here, problem)
    if len(rung.zones) > 1:
        raise InputError(
            f"{here}.zones",
            "a rung is one group of instances, which lies in one zone",
            value=", ".join(rung.zones),
            allowed="one zone, or none for the cluster's own",
            fix=f"write a rung for each: {{kind: {rung.kind}, zones: [{rung.zones[0]}]}} and so on",
        )


def rung_zone(rung: AnyRung | RungPlan, own: str) -> str:
    """The zone of a rung's nodes, by default `own`, the cluster's."""
    return next(iter(named_zones(rung)), own)


@dataclass(frozen=True)
class LadderContext:
    """The stack's settings that a ladder must match. `zone`: the file system's; `zone_assumed`: no setting names it;
    `num_nodes_min`: the fewest nodes with which the job continues; `num_nodes_max`: the requested nodes.
    """

    machine: GcpMachineType
    zone: str
    zone_assumed: bool
    num_nodes_min: int
    num_nodes_max: int
    max_hours: float


def capacity_findings(rungs: Sequence[AnyRung], context: LadderContext) -> list[Finding]:
    """All conflicts, rung by rung, of a ladder that `check_ladder` accepts."""
    found = list(same_reservations(rungs))
    machine, sold = context.machine, context.machine.capacity
    for index, rung in enumerate(rungs):
        path = f"{LADDER}[{index}]"
        found += not_sold(rung, path, machine.name, sold.value, f"{sold.source}, {sold.dated}")
        found += _zone(rung, path, context)
        if context.zone_assumed:
            found += zone_unnamed(rung, path, context.zone)
        found += ignored_settings(rung, path)
        if isinstance(rung, FlexStart):
            found += _flex_start(rung, path, last=index == len(rungs) - 1, context=context)
        elif isinstance(rung, Reservation) and context.machine.gpu_fabric is not None:
            found.append(_reserved_placement(rung, path))
    return [*found, *_separate_placement(rungs, context)]


def _separate_placement(rungs: Sequence[AnyRung], context: LadderContext) -> Iterable[Finding]:
    """A shared policy applies to each group separately (Google, "About workload policies in MIGs")."""
    if context.machine.gpu_fabric is not None and len(rungs) > 1 and context.num_nodes_max > 1:
        yield Finding.info(
            "capacity.rungs-apart",
            LADDER,
            "nodes of one rung stand together; those of different rungs, which are different groups, may be far apart "
            "in the zone, and the job is as fast as the way between them",
            "keep one rung where that matters more than having nodes at all",
        )


def _zone(rung: AnyRung, path: str, context: LadderContext) -> Iterable[Finding]:
    zone = rung_zone(rung, context.zone)
    named = f"{path}.zone" if isinstance(rung, Reservation) else f"{path}.zones"
    if zone != context.zone:
        yield _other_zone(rung, named, zone, context)


def _other_zone(rung: AnyRung, named: str, zone: str, context: LadderContext) -> Finding:
    if isinstance(rung, Reservation):
        return Finding.error(
            "capacity.other-zone",
            named,
            f"the reservation is in {zone}, the cluster and its file system in {context.zone}",
            f"set gangway:cluster.zone: {zone}",
        )
    if context.machine.gpu_fabric is not None:
        return Finding.error(
            "capacity.zones-with-fabric",
            named,
            f"{zone}: the GPU network of {context.machine.name} and placing nodes together reach no further than one "
            f"zone, and the other nodes are in {context.zone}",
            f"set zones: [{context.zone}], or leave it out",
        )
    return Finding.warning(
        "capacity.several-zones",
        named,
        f"{zone}: traffic to nodes and file system in {context.zone} crosses zones, which is slower and billed",
        f"set zones: [{context.zone}] where speed matters more than finding capacity",
    )


def zone_unnamed(rung: AnyRung, path: str, assumed: str) -> Iterable[Finding]:
    """Only their owner knows the zone of reserved machines."""
    if isinstance(rung, Reservation) and rung.zone is None:
        yield Finding.warning(
            "capacity.zone-unnamed",
            f"{path}.zone",
            f"nobody has named the zone of {rung.id}: {assumed} is assumed, and anywhere else no node would start",
            "write the zone that `gcloud compute reservations list` shows",
        )


def ignored_settings(rung: AnyRung, path: str) -> Iterable[Finding]:
    """Settings of a spot rung that Compute Engine lacks are reported."""
    reasons = {
        "max_usd_per_hour": "Google's spot price is a list price, changed once a month at most; nobody bids for it",
        "allocation": "a rung has one kind of node in one zone, so there is nothing to choose among",
    }
    if isinstance(rung, Spot):
        for name, reason in reasons.items():
            if name in rung.model_fields_set and getattr(rung, name) is not None:
                yield Finding.warning(
                    "capacity.ignored-setting",
                    f"{path}.{name}",
                    f"{getattr(rung, name)} has no effect on Google Cloud: {reason}",
                    f"remove {name}",
                )


def _flex_start(rung: FlexStart, path: str, *, last: bool, context: LadderContext) -> Iterable[Finding]:
    if path == f"{LADDER}[0]":
        yield Finding.info(
            "capacity.flex-start-once",
            path,
            f"the nodes are asked for once: one that gives itself up is not made anew, and after {rung.max_hours:g} h "
            "all are gone",
            "ask again by `pulumi up --replace` with the URN of the resize request",
        )
    if rung.max_hours < context.max_hours:
        then = "ends with its last checkpoint" if last else "goes on with the next rung"
        yield Finding.warning(
            "capacity.flex-start-too-short",
            f"{path}.max_hours",
            f"the nodes are deleted after {rung.max_hours:g} h, and the job may run {context.max_hours:g} h: it {then}",
            f"set gangway:job.max_hours: {rung.max_hours:g}"
            if context.max_hours > 168
            else f"set max_hours: {context.max_hours:g}",
        )
    fewest = context.num_nodes_min
    if path == f"{LADDER}[0]" and fewest != context.num_nodes_max:
        yield Finding.info(
            "capacity.flex-start-together",
            path,
            f"all {context.num_nodes_max} nodes come at once or not at all, although the job would go on with {fewest}",
            f"set gangway:cluster.nodes: {{min: {fewest}, max: {fewest}}} to wait for fewer",
        )


def _reserved_placement(rung: Reservation | OnDemand, path: str) -> Finding:
    return Finding.info(
        "capacity.no-placement-policy",
        path,
        f"{rung.kind}: no placement policy of ours, the reserved machines stand together already",
    )


NETWORKS_QUOTA = "NETWORKS"
GPU_QUOTAS: Mapping[str, str] = {
    "a2-highgpu": "NVIDIA_A100_GPUS",
    "a2-ultragpu": "NVIDIA_A100_80GB_GPUS",
    "a3-highgpu": "NVIDIA_H100_GPUS",
    "a3-megagpu": "NVIDIA_H100_MEGA_GPUS",
    "a3-ultragpu": "NVIDIA_H200_GPUS",
    "a4-highgpu": "NVIDIA_B200_GPUS",
    "g2-standard": "NVIDIA_L4_GPUS",
}
"""By series. A100 and L4 are in Compute Engine's discovery document (v1, `Quota.metric`), as is the form of preemptible
ones; H100 to B200 are from projects (`gcloud compute regions describe`).
"""
TPU_QUOTAS: Mapping[str, tuple[str, str]] = {
    "v5e": ("TPUV5sLitepodPerProjectPerZoneForTPUAPI", "TPUV5sPreemptibleLitepodPerProjectPerZoneForTPUAPI"),
    "v5p": ("TPUV5PPerProjectPerZoneForTPUAPI", "TPUV5PPreemptiblePerProjectPerZoneForTPUAPI"),
    "v6e": ("TPUV6EPerProjectPerZoneForTPUAPI", "TPUV6EPreemptiblePerProjectPerZoneForTPUAPI"),
}
"""By generation, on demand and preemptible; from errors and `gcloud beta quotas info`. Other names were not found."""
POOL_QUOTAS: Mapping[str, tuple[str, str]] = {
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
        users, key = count_nodes(self.num_nodes), f"region/{name.partition(' ')[0]}"
        return QuotaNeed(path, amount, unit, name, self.region, users, command, key=key).finding()

    def of_project(self, path: str, amount: int, name: str, users: str = "") -> Finding:
        """A need of a project-wide quota."""
        command = PROJECT_QUOTAS.format(project=self.project)
        place, key = f"project {self.project}", f"project/{name}"
        return QuotaNeed(path, amount, "", name, place, users, command, key=key).finding()

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
    yield context.of_project("gangway:cluster", networks, NETWORKS_QUOTA, "nodes and GPU NICs" if networks > 1 else "")


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
    yield context.of_project("gangway:cluster", 1, NETWORKS_QUOTA)


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
    yield context.of_project("gangway:cluster", 1, NETWORKS_QUOTA)


def storage_quota(kind: str, capacity_gib: int, context: QuotaContext) -> Finding:
    """Quota of the file system's capacity, by tier."""
    service, name = {"lustre": ("lustre", "Managed Lustre"), "filestore": ("file", "Filestore")}[kind]
    path, of_tier = "gangway:storage.capacity_gib", f"of {name}'s capacity, by tier,"
    return context.of_service(service, path, capacity_gib, "GiB", of_tier, context.region, "")
