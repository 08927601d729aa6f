"""The plan of a stack on Google Cloud, before any resource exists: nodes or slices, zone, labels, image and job."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from gangway.components.catalog.loader import Catalog, load_provider, load_tpus
from gangway.components.catalog.offerings import first_zone, zone_names
from gangway.components.catalog.schema import GcpMachineType, MachinePrice, MachineType, Region
from gangway.components.core.capacity import LADDER, AnyRung, FlexStart, OnDemand, Reservation, Spot, preferred_zone
from gangway.components.core.findings import InputError
from gangway.components.core.image_reference import DIGEST, REPOSITORY, TAG
from gangway.components.core.job import JobSpec
from gangway.components.gcp.budget import plan_amount, plan_budget_alarms
from gangway.components.gcp.capacity import check_ladder, check_reservation_project, rung_zone
from gangway.components.gcp.fabric import lacking_kernel, nccl_env, nccl_plugin, plan_interfaces
from gangway.components.gcp.gke_plan import gpu_nodes, network_levels, plan_pools, tpu_nodes
from gangway.components.gcp.monitoring import check_budget_emails, check_retention
from gangway.components.gcp.network import plan_network
from gangway.components.gcp.slices import SlicePlan, plan_slice, slice_machine, slice_prices, worker_tflops
from gangway.components.gcp.storage import plan_filestore, plan_lustre
from gangway.components.kubernetes.spec import JOBS, JOBS_ONLY, TPU, ClusterSpec, Flavor, Node, gke_allocatable
from gangway.images.specs import Flavour
from gangway.stacks.base import shared
from gangway.stacks.base.cluster_queues import check_way_out, get_spec, get_version, gpu_node, is_static
from gangway.stacks.base.shared import check_head, named_zone, nodes_meet, tag_policy
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.run_context import training_job
from gangway.stacks.providers.gcp.existing import MULTI_REGIONS, check_fabric, check_kubernetes
from gangway.stacks.providers.gcp.settings import GcpConfig

TPU_TIERS = {"reservation": "guaranteed", "spot": "spot", "on-demand": "on-demand"}
"""Rung kinds that the TPU queue supports, with their names in its API."""
_TPU_TYPE = re.compile(r"v[0-9]+[a-z]*-[0-9]+|tpu[0-9]+x-[0-9]+")
# The TPU API's form; a stack file has the zone in a separate setting.
_FULL_RESERVATION = re.compile(r"projects/([^/]+)/locations/([^/]+)/reservations/([^/]+)")
_SHARED_RESERVATION = re.compile(r"projects/([^/]+)/reservations/([^/]+)")
FILESTORE_TIER = "basic-ssd"
REGISTRY_IMAGE = rf"([a-z0-9-]+)-docker\.pkg\.dev/([a-z0-9-]+)/([a-z0-9._-]+)/({REPOSITORY})"
_IMAGE = re.compile(f"{REGISTRY_IMAGE}(?::{TAG})?@{DIGEST}")
MOUNT = "/shared"


def find_slice(config: StackConfig) -> SlicePlan | None:
    """The slice; None for GPUs. InputError: unknown, not offered by the TPU API, or a topology with GPUs."""
    accelerator = config.cluster.accelerator
    _check_spelling(accelerator)
    prefixes = tuple(f"{tpu.prefix}-" for tpu in load_tpus().generations.values())
    if accelerator is None or not (accelerator.startswith(prefixes) or _TPU_TYPE.fullmatch(accelerator)):
        if config.cluster.topology is not None:
            raise InputError(
                "gangway:cluster.topology",
                f"{accelerator} is not a TPU, and only TPU slices have a topology",
                value=config.cluster.topology,
                fix="leave topology out",
            )
        return None
    found = plan_slice(accelerator_type=accelerator, topology=config.cluster.topology)
    # GKE's slices consist of Compute Engine machines.
    if not config.engine.has_queue and (found.api_type is None or found.runtime_version is None):
        raise InputError(
            "gangway:cluster.accelerator",
            f"the Cloud TPU API does not offer {found.generation}",
            value=accelerator,
            allowed=f"{tpu_types()}; {found.generation} only with engine: {{kind: kubernetes}}",
            fix="write one of these, such as v6e-64, or set engine: {kind: kubernetes}",
        )
    return found


def tpu_types() -> str:
    """The accelerator types that the TPU API offers, for messages."""
    makes = [tpu.prefix for tpu in load_tpus().generations.values() if tpu.api_type.value is not None]
    return ", ".join(f"{prefix}-NUMBER" for prefix in makes)


def _check_spelling(accelerator: str | None) -> None:
    """Refuses V6E-8, for which the list of GPUs would be the wrong advice."""
    if accelerator is not None and accelerator != accelerator.lower() and _TPU_TYPE.fullmatch(accelerator.lower()):
        raise InputError(
            "gangway:cluster.accelerator",
            "TPU accelerator types are lower case",
            value=accelerator,
            allowed=tpu_types(),
            fix=f"write {accelerator.lower()}",
        )


def check_tpu_rungs(rungs: Sequence[AnyRung]) -> None:
    """Checks the rungs of slices. InputError: a kind, zones, machine types or a form of reservation that the TPU queue
    does not support, or a second rung.
    """
    for index, rung in enumerate(rungs):
        _check_rung(rung, f"{LADDER}[{index}]")
    if len(rungs) > 1:
        raise InputError(
            LADDER,
            "slices are requested from one queue, which has no fallback",
            value=", ".join(rung.kind for rung in rungs),
            allowed="one rung with TPUs",
            fix="keep one of them",
        )


def _check_rung(rung: AnyRung, here: str) -> None:
    if rung.kind not in TPU_TIERS:
        raise InputError(
            f"{here}.kind",
            "the TPU queue has no such capacity",
            value=rung.kind,
            allowed=", ".join(TPU_TIERS),
            fix=f"write {{kind: {'on-demand' if rung.kind == 'flex-start' else 'reservation, id: NAME'}}}",
        )
    if isinstance(rung, Spot | OnDemand) and (rung.zones or rung.machine_types):
        raise InputError(
            here,
            "all slices are in one zone and of one accelerator type",
            value=", ".join((*rung.zones, *rung.machine_types)),
            allowed="no zones and no machine_types",
            fix="remove them; gangway:cluster.zone names the zone",
        )
    if isinstance(rung, Reservation):
        check_reservation_project(rung.id, f"{here}.id")
    if isinstance(rung, Reservation) and "/" in rung.id and not _SHARED_RESERVATION.fullmatch(rung.id):
        full = _FULL_RESERVATION.fullmatch(rung.id)
        raise InputError(
            f"{here}.id",
            "not a reservation of slices",
            value=rung.id,
            allowed=(
                "NAME or projects/PROJECT/reservations/NAME, with the zone in a separate setting and without a block"
            ),
            fix=f"write id: projects/{full[1]}/reservations/{full[3]}, zone: {full[2]}"
            if full
            else f"write id: {rung.id.partition('/reservationBlocks/')[0]}",
        )


def reservation_name(rung: AnyRung, project: str, zone: str) -> str | None:
    """The full name of the reservation, with its zone; None for other rungs."""
    if not isinstance(rung, Reservation):
        return None
    shared = _SHARED_RESERVATION.fullmatch(rung.id)
    owner, name = (shared[1], shared[2]) if shared else (project, rung.id)
    return f"projects/{owner}/locations/{zone}/reservations/{name}"


@dataclass(frozen=True)
class GcpPlan:
    """The planned stack. `machine`: a GPU machine or a whole slice; `tpu`: None for GPU machines; `num_machines`:
    maximum of virtual machines of all nodes; `zone_reason`: empty if the user chose it; `repository_id`: of the
    prebuilt image; None if the stack builds it; `meets`: the head runs the rendezvous; `standing`: a GKE cluster with a
    queue; `commands`: a custom command.
    """

    machine: MachineType
    tpu: SlicePlan | None
    num_machines: int
    region: Region
    zone: str
    zone_reason: str
    project: str
    repository_id: str | None
    head: bool
    meets: bool
    standing: bool
    commands: bool
    tags: dict[str, str]

    @property
    def flavour(self) -> Flavour:
        """The trainer's image for these nodes."""
        return "cuda" if self.tpu is None else "xla"

    @property
    def queues_slices(self) -> bool:
        """Whether slices are requested from the TPU queue."""
        return self.tpu is not None and not self.standing

    @property
    def gpu_machine(self) -> GcpMachineType:
        """The machine type of a GPU node."""
        return cast("GcpMachineType", self.machine)

    @property
    def has_member_key(self) -> bool:
        """Whether there is a rendezvous store, on the head or the first of several hosts."""
        return not self.standing and not self.commands and (self.head or self.num_machines > 1)

    @property
    def has_secrets(self) -> bool:
        """Whether the stack has secrets: the member key or the signing key."""
        return not self.standing and (self.has_member_key or self.tpu is None)


def plan(config: StackConfig) -> GcpPlan:
    """Plans and checks the stack without declaring a resource. InputError: an unknown machine, accelerator, region or
    zone; a size or a rung that Google does not offer; a wrong label.
    """
    section = config.section(GcpConfig)
    cluster, region = config.cluster, load_provider("gcp").region(config.region, "gcp", "gangway:region")
    tpu = find_slice(config)
    machine = _machine(config) if tpu is None else slice_machine(tpu)
    standing = config.engine.has_queue
    if tpu is not None and not standing:
        _check_trains(config)
        _check_no_machine_image(config)
        check_tpu_rungs(cluster.capacity)
    check_ladder(cluster.capacity)
    _check_zones(config, _get_zones(region))
    zone, reason = _zone(config, region, machine)
    further = 0 if tpu is not None else len(plan_interfaces(cast("GcpMachineType", machine))) - 1
    check_fabric(config, cast("GcpMachineType", machine) if tpu is None else None)
    if section.existing.network is None:
        plan_network(config.network.cidr, further)
    _check_storage(config)
    if standing:
        check_cluster(config, machine, tpu, zone)
    check_head("gcp", head_type(config))
    plan_budget_alarms(list(config.budget.alert_percent), config.budget.stop_at_percent)
    plan_amount(config.budget.monthly_usd, section.currency, section.monthly_amount, "gangway:gcp")
    check_budget_emails(config.budget.emails)
    check_retention(config.observe.log_days, "gangway:observe.log_days")
    nodes, of_machines = cluster.nodes, tpu is None and not standing
    return GcpPlan(
        machine=machine,
        tpu=tpu,
        num_machines=nodes.max * (1 if tpu is None else tpu.hosts),
        region=region,
        zone=zone,
        zone_reason=reason,
        project=section.project,
        repository_id=_repository_id(config),
        # It runs the rendezvous and fills the ladder's lower rungs. Hosts of slices find each other by their metadata.
        head=of_machines and (nodes_meet(config) or len(cluster.capacity) > 1),
        meets=of_machines and nodes_meet(config),
        standing=standing,
        commands=config.own_command is not None,
        tags=tag_policy(config, machine, region).gcp(),
    )


def _check_trains(config: StackConfig) -> None:
    if config.own_command is not None:
        raise InputError(
            "gangway:cluster.accelerator",
            "slices run only the trainer",
            value=config.cluster.accelerator,
            allowed="GPUs with job.command",
            fix="choose a machine type with NVIDIA GPUs (`gangway catalog list` shows them), or use a preset",
        )


def _check_no_machine_image(config: StackConfig) -> None:
    if config.cluster.machine_image is not None:
        raise InputError(
            "gangway:cluster.machine_image",
            "hosts of slices start from Google's own images",
            value=config.cluster.accelerator,
            allowed="with GPUs",
            fix="remove machine_image",
        )


def _machine(config: StackConfig) -> MachineType:
    cluster, catalog = config.cluster, load_provider("gcp")
    try:
        unfit = {} if cluster.image_id is not None or cluster.nodes.max < 2 else _machines_without_kernel(catalog)
        return shared.find_machine(config, catalog, unfit)
    except InputError as error:
        known = {machine.accelerator for machine in catalog.machines.values()}
        if cluster.machine_type is not None or cluster.accelerator in known:
            raise
        # The catalogue of machines has no slices.
        allowed = f"{error.allowed}; TPUs: {tpu_types()}"
        raise InputError(error.place, error.problem, value=error.value, allowed=allowed, fix=error.fix) from None


def _machines_without_kernel(catalog: Catalog) -> dict[str, str]:
    """Machines whose NCCL plug-in needs a kernel that only a custom image has, with the reason."""
    machines = [cast("GcpMachineType", machine) for machine in catalog.machines.values()]
    return {machine.name: why for machine in machines if (why := lacking_kernel(machine))}


def _check_zones(config: StackConfig, zones: list[str]) -> None:
    """Refuses rungs in unknown zones or other regions: networks are regional."""
    for index, rung in enumerate(config.cluster.capacity):
        zone = rung_zone(rung, zones[0])
        if zone not in zones:
            raise InputError(
                f"{LADDER}[{index}].{'zone' if isinstance(rung, Reservation) else 'zones'}",
                f"no such zone in {config.region}",
                value=zone,
                allowed=", ".join(zones),
                fix=f"set gangway:region: {zone.rpartition('-')[0]}, or write a zone of {config.region}",
            )


def _get_zones(region: Region) -> list[str]:
    return zone_names("gcp", region.name, region.zones)


def _zone(config: StackConfig, region: Region, machine: MachineType) -> tuple[str, str]:
    zones = _get_zones(region)
    if config.cluster.zone is not None:
        return named_zone(config.cluster.zone, zones, region.name), ""
    return preferred_zone(config.cluster.capacity) or first_zone(machine, region)


def zone_is_assumed(config: StackConfig) -> bool:
    """Whether the stack file names no zone, neither for the cluster nor for a rung."""
    return config.cluster.zone is None and preferred_zone(config.cluster.capacity) is None


def _check_storage(config: StackConfig) -> None:
    storage = config.storage
    if storage is None:
        return
    if storage.kind == "filestore":
        made = config.section(GcpConfig).existing.file_system is None
        own_key = made and config.encryption == "customer-key"
        plan_filestore(storage.capacity_gib, storage.tier or FILESTORE_TIER, customer_key=own_key)
        return
    plan_lustre(**shared.lustre_args(config), stack=config.stack, export_runs=storage.export_runs)


def imports(config: StackConfig, planned: GcpPlan) -> bool:
    """Whether Managed Lustre imports the data, which is faster than a copy by a machine; the head requests it. Not into
    an existing file system, whose service agent cannot read the bucket.
    """
    storage, existing = config.storage, config.section(GcpConfig).existing.file_system
    lustre = storage is not None and storage.kind == "lustre" and storage.source is not None
    return lustre and planned.head and existing is None


def key_services(config: StackConfig, planned: GcpPlan) -> list[str]:
    """The services that encrypt with the stack's key, besides those of every stack."""
    storage, queued = config.storage, planned.queues_slices
    users = {
        "kubernetes": planned.standing,
        "secretmanager": planned.has_secrets,
        "tpu": queued,
        "workflows": config.budget.stop_at_percent is not None or queued,
    }
    makes_storage = storage is not None and config.section(GcpConfig).existing.file_system is None
    return [*([storage.kind] if storage and makes_storage else []), *(name for name, used in users.items() if used)]


def head_type(config: StackConfig) -> str:
    """The head node's machine type."""
    return config.head.machine_type or "e2-medium"


def _repository_id(config: StackConfig) -> str | None:
    image = config.ready_image
    if image is None:
        return None
    match = _IMAGE.fullmatch(image)
    if match is None or match[1] not in (config.region, *MULTI_REGIONS):
        allowed = f"{config.region}-docker.pkg.dev/<project>/<repository>/<image>@sha256:<digest>"
        raise shared.refused_image(config, allowed, f"Artifact Registry in {config.region}")
    return f"projects/{match[2]}/locations/{match[1]}/repositories/{match[3]}"


def job_spec(config: StackConfig, planned: GcpPlan, image: str) -> JobSpec:
    """The job of the machines: torchrun with one process per GPU or chip. Its state is on the shared file system, so
    that any node can resume it. A node of this spec is a machine, also with TPUs.
    """
    if config.own_command is not None:
        at = shared.rendezvous(config, at_head=planned.meets)
        return shared.command_job_on(planned.machine, config, config.own_command, image, MOUNT, at=at)
    nodes, tpu = config.cluster.nodes, planned.tpu
    machine, prices = _host_prices(planned)
    own_image = config.cluster.image_id is not None
    plugin = None if tpu else nccl_plugin(planned.gpu_machine, own_image=own_image)
    return training_job(
        config,
        machine,
        planned.region,
        prices,
        image,
        state=shared.state_root(config, MOUNT),
        run_dir=shared.run_dir(config, MOUNT),
        data_dir=f"{MOUNT}/data" if shared.has_source(config) else "",
        fabric_min_gbps=fabric_min_gbps(config, planned),
        at=shared.rendezvous(config, at_head=planned.meets),
        volumes=plugin.volumes if plugin else (),
        env={} if tpu else nccl_env(planned.gpu_machine, own_image=own_image),
        backend="xla" if tpu else "nccl",
        num_nodes=(nodes.min * (1 if tpu is None else tpu.hosts), planned.num_machines),
        peak_tflops={"bf16": worker_tflops(tpu)} if tpu else None,
    )


def _host_prices(planned: GcpPlan) -> tuple[MachineType, Sequence[MachinePrice]]:
    """One machine and its prices: run records sum over machines, also over the hosts of a slice."""
    tpu = planned.tpu
    if tpu is None:
        return planned.machine, load_provider("gcp").get_prices(planned.machine.name)
    host = replace(tpu, chips=tpu.chips_per_host, processes=tpu.processes // tpu.hosts, hosts=1)
    return slice_machine(host), slice_prices(host)


def fabric_min_gbps(config: StackConfig, planned: GcpPlan) -> float | None:
    """The minimum bus bandwidth for the job to start; None if there is no fabric to test."""
    gbps = planned.machine.network_gbps.value
    if planned.tpu is not None or gbps is None:
        return None
    plugin = nccl_plugin(planned.gpu_machine, own_image=config.cluster.image_id is not None)
    return None if plugin is None else shared.least_bus_gbps(config, planned.machine, gbps)


def queued_resource(config: StackConfig, planned: GcpPlan) -> str:
    """The full name of the stack's request for slices."""
    return f"projects/{planned.project}/locations/{planned.zone}/queuedResources/{config.stack}"


# Values of the label that selects slices for pods (GKE documentation, "Deploy TPU workloads").
_TPU_NAMES: Mapping[str, str] = {
    "v4": "tpu-v4-podslice",
    "v5e": "tpu-v5-lite-podslice",
    "v5p": "tpu-v5p-slice",
    "v6e": "tpu-v6e-slice",
    "tpu7x": "tpu7x",
}


def taint() -> dict[str, str]:
    """The taint that keeps system pods off nodes for jobs, in GKE's spelling."""
    return {"key": JOBS_ONLY, "value": "true", "effect": "NO_SCHEDULE"}


def node_labels(config: StackConfig) -> list[dict[str, str]]:
    """Labels of the nodes of each rung."""
    return [dict(JOBS) for _ in config.cluster.capacity]


def get_hosts(tpu: SlicePlan | None) -> int:
    """The number of machines per node of the stack file: the hosts of a slice."""
    return 1 if tpu is None else tpu.hosts


def cluster_spec(config: StackConfig, machine: MachineType, tpu: SlicePlan | None) -> ClusterSpec:
    """The queues. All rungs are one flavor: Kueue counts quotas, not Google's capacity; GKE's autoscaler tries the
    pools. For slices the quota counts hosts.
    """
    boot_gib = config.cluster.root_volume_gib
    if tpu is None:
        ssds = gpu_nodes(machine.name).local_ssds
        node = gpu_node(machine, gke_allocatable(machine.vcpus.value, machine.memory_gib.value, boot_gib, ssds))
    else:
        node = tpu_host(tpu, boot_gib)
    levels = network_levels(machine.name, config.cluster.capacity[0]) if tpu is None and is_static(config) else ()
    return get_spec(config, node, Flavor(machine.name, flavor_labels(tpu), levels), get_hosts(tpu))


def flavor_labels(tpu: SlicePlan | None) -> dict[str, str]:
    """Labels of the nodes that jobs run on."""
    if tpu is None:
        return dict(JOBS)
    names = {"cloud.google.com/gke-tpu-accelerator": _TPU_NAMES[tpu.generation]}
    return {**JOBS, **names, "cloud.google.com/gke-tpu-topology": tpu.topology}


def tpu_host(tpu: SlicePlan, boot_gib: int) -> Node:
    """The resources of a slice's host that jobs can use."""
    generation = load_tpus().generations[tpu.generation]
    left = gke_allocatable(int(generation.host_vcpus.value), generation.host_memory_gib.value, boot_gib)
    return Node(left.cpus, left.memory_gib, {TPU: tpu.chips_per_host}, left.disk_gib)


def check_cluster(config: StackConfig, machine: MachineType, tpu: SlicePlan | None, zone: str) -> None:
    """Checks the settings. InputError: a version, teams, a rung, an egress, a file system or a number of slices that
    GKE or the queue does not support.
    """
    get_version(config)
    check_way_out(config)
    cluster_spec(config, machine, tpu)
    if config.observe.hardware:
        raise InputError(
            "gangway:observe.hardware",
            "Google's managed Prometheus of the cluster has the metrics of GPUs (DCGM) and nodes without it",
            allowed="left out with engine: kubernetes",
            fix="leave hardware out",
        )
    for index, rung in enumerate(config.cluster.capacity):
        if isinstance(rung, FlexStart):
            raise InputError(
                f"{LADDER}[{index}].kind",
                "GKE starts such nodes only for a ProvisioningRequest, which the stack's queue does not create",
                value=rung.kind,
                allowed="reservation, spot, on-demand with engine: kubernetes",
                fix=f"set {LADDER}[{index}]: {{kind: on-demand}}",
            )
    _check_cluster_storage(config)
    _check_slices(config, tpu)
    check_kubernetes(config)
    if config.section(GcpConfig).service_perimeter is not None:
        raise InputError(
            "gangway:gcp.service_perimeter",
            "the perimeter does not cover Kubernetes' control plane",
            allowed="left out with engine: kubernetes",
            fix="leave service_perimeter out",
        )
    nodes = config.cluster.nodes
    kind = gpu_nodes(machine.name) if tpu is None else tpu_nodes(tpu.accelerator_type, tpu.topology)
    plan_pools(config.cluster.capacity, kind, zone, config.section(GcpConfig).project, nodes.min, nodes.max, LADDER)


def _check_cluster_storage(config: StackConfig) -> None:
    storage = config.storage
    if storage is not None and storage.kind != "filestore":
        raise InputError(
            "gangway:storage.kind",
            "run folders must be on a file system that any node of the cluster mounts without additional modules",
            value=storage.kind,
            allowed="filestore with engine: kubernetes",
            fix="write kind: filestore, with its capacity_gib",
        )
    if storage is not None and storage.source is not None:
        raise InputError(
            "gangway:storage.source",
            "a queue's stack does not copy data",
            value=storage.source,
            allowed="left out with engine: kubernetes",
            fix="leave source out, and have a job copy the data into the volume",
        )


def _check_slices(config: StackConfig, tpu: SlicePlan | None) -> None:
    if tpu is not None and tpu.hosts > 1 and config.cluster.nodes.max > 1:
        raise InputError(
            "gangway:cluster.nodes.max",
            "the pods of a job might run on several slices, whose chips are not connected",
            value=config.cluster.nodes.max,
            allowed=(
                f"1 with slices of several hosts and engine: kubernetes ({tpu.accelerator_type} has {tpu.hosts} hosts)"
            ),
            fix="write max: 1, with the accelerator type of a larger slice",
        )
