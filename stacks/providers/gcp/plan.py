"""What a StackConfig means on Google Cloud, before any resource exists: nodes, zone, labels and image.

Nodes are GPU machines or TPU slices; a slice is several machines that the TPU API counts as one node. Pure: looks up
and checks. `tpu` knows slices, `job` says what runs, `findings` what a person should
know, `program` declares the resources.
"""

import re
from dataclasses import dataclass
from typing import cast

from components.capacity import Reservation
from components.catalog import GcpMachineType, MachineType, Region, load_provider, load_tpus
from components.findings import InputError
from components.gcp.budget import plan_amount, plan_budget_alarms
from components.gcp.capacity import LADDER, check_ladder, preferred_zone, rung_zone
from components.gcp.channels import check_budget_emails
from components.gcp.fabric import plan_interfaces
from components.gcp.lustre import plan_filestore, plan_lustre
from components.gcp.network import plan_network
from components.gcp.observability import check_retention
from components.gcp.slices import SlicePlan
from components.gcp.tpu_machine import slice_machine
from stacks.providers.gcp.tpu import check_tpu_rungs, slice_of, tpu_types
from stacks.providers.shared import check_head, named_zone, tag_policy
from stacks.settings.config import StackConfig

__all__ = ["FILESTORE_TIER", "GcpPlan", "head_type", "offered_zones", "plan", "zone_is_assumed"]

FILESTORE_TIER = "basic-ssd"
_IMAGE = re.compile(r"([a-z0-9-]+)-docker\.pkg\.dev/([a-z0-9-]+)/([a-z0-9._-]+)/[^@]+@sha256:[0-9a-f]{64}")
_MULTI_REGIONS = ("us", "europe", "asia")


@dataclass(frozen=True)
class GcpPlan:
    """What the configuration means on Google Cloud.

    Attributes:
        machine: one node: a GPU machine, or a whole slice.
        tpu: the slice; None where the nodes are GPU machines.
        num_machines: all virtual machines of the nodes, at most.
        region: with its grid and its zones.
        zone: of the cluster and its file system.
        zone_reason: why that one; empty where the user chose it.
        project: that everything is made in.
        repository_id: of the prebuilt image; None where the stack builds its own.
        head: whether the job needs a head node.
        tags: labels of every resource.
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
    tags: dict[str, str]

    @property
    def gpu_machine(self) -> GcpMachineType:
        """The node as Compute Engine's machine type; only without a slice."""
        return cast("GcpMachineType", self.machine)


def plan(config: StackConfig) -> GcpPlan:
    """Looks everything up and checks it, without declaring a resource.

    Raises:
        InputError: unknown machine, accelerator, region or zone; a size or a rung Google does not offer; a wrong label.
    """
    assert config.gcp is not None, "stacks.providers.settings has seen to it"
    cluster, region = config.cluster, load_provider("gcp").region(config.region, "gcp", "gangway:region")
    tpu = slice_of(config)
    machine = _machine(config) if tpu is None else slice_machine(tpu)
    if tpu is not None:
        check_tpu_rungs(cluster.capacity)
    check_ladder(cluster.capacity)
    _check_zones(config, _zones_of(region))
    zone, reason = _zone(config, region, machine, tpu)
    further = 0 if tpu is not None else len(plan_interfaces(cast("GcpMachineType", machine))) - 1
    plan_network(config.network.cidr, further)
    _check_storage(config)
    check_head("gcp", head_type(config))
    plan_budget_alarms(list(config.budget.alert_percent), config.budget.stop_at_percent)
    plan_amount(config.budget.monthly_usd, config.gcp.currency, config.gcp.monthly_amount, "gangway:gcp")
    check_budget_emails(config.budget.emails)
    check_retention(config.observe.log_days, "gangway:observe.log_days")
    nodes = cluster.nodes
    return GcpPlan(
        machine=machine,
        tpu=tpu,
        num_machines=nodes.max * (1 if tpu is None else tpu.hosts),
        region=region,
        zone=zone,
        zone_reason=reason,
        project=config.gcp.project,
        repository_id=_repository_id(config),
        # Workers meet there, and it fills the ladder's lower rungs. The hosts of a slice know each other by themselves.
        head=tpu is None and (nodes.max > 1 or len(cluster.capacity) > 1),
        tags=tag_policy(config, machine, region).gcp(),
    )


def _machine(config: StackConfig) -> MachineType:
    cluster, catalog = config.cluster, load_provider("gcp")
    if cluster.machine_type is not None:
        return catalog.machine(cluster.machine_type, "gangway:cluster.machine_type")
    assert cluster.accelerator is not None, "StackConfig holds one of the two"
    try:
        return catalog.machine_for(cluster.accelerator, "gcp", "gangway:cluster.accelerator")
    except InputError as error:
        if cluster.accelerator in {machine.accelerator for machine in catalog.machines.values()}:
            raise
        # The catalogue of machines knows no slices.
        allowed = f"{error.allowed}; of TPUs {tpu_types()}"
        raise InputError(error.place, error.problem, value=error.value, allowed=allowed, fix=error.fix) from None


def _check_zones(config: StackConfig, zones: list[str]) -> None:
    """Refuses a rung in another region, or in a zone that is none: a stack's networks are regional."""
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


def _zones_of(region: Region) -> list[str]:
    return [f"{region.name}-{letter}" for letter in region.zones]


def _zone(config: StackConfig, region: Region, machine: MachineType, tpu: SlicePlan | None) -> tuple[str, str]:
    """The cluster's zone and why that one."""
    zones = _zones_of(region)
    if config.cluster.zone is not None:
        return named_zone(config.cluster.zone, zones, region.name), ""
    if tied := preferred_zone(config.cluster.capacity):
        return tied
    offering = [zone for zone in offered_zones(machine, tpu) if zone in zones]
    if offering:
        return offering[0], f"the first of {region.name} that has {machine.name}"
    return zones[0], f"the first of {region.name}"


def zone_is_assumed(config: StackConfig) -> bool:
    """Whether nobody has named a zone, neither for the cluster nor for a rung."""
    return config.cluster.zone is None and preferred_zone(config.cluster.capacity) is None


def offered_zones(machine: MachineType, tpu: SlicePlan | None) -> tuple[str, ...]:
    """Where such nodes are offered, as public lists have it."""
    if tpu is not None:
        return load_tpus().generations[tpu.generation].zones.value
    return cast("GcpMachineType", machine).zones.value


def _check_storage(config: StackConfig) -> None:
    storage = config.storage
    if storage is None:
        return
    if storage.kind == "filestore":
        own_key = config.encryption == "customer-key"
        plan_filestore(storage.capacity_gib, storage.tier or FILESTORE_TIER, customer_key=own_key)
        return
    plan_lustre(
        storage.capacity_gib,
        storage.throughput_mbps_per_tib,
        stack=config.stack,
        deployment=storage.deployment,
        efa=storage.efa,
        metadata_iops=storage.metadata_iops,
        export_runs=storage.export_runs,
    )


def head_type(config: StackConfig) -> str:
    """The head node's machine type."""
    return config.head.machine_type or "e2-medium"


def _repository_id(config: StackConfig) -> str | None:
    """The repository nodes must be allowed to pull from, when it is not the stack's own."""
    if config.image.prebuilt is None:
        return None
    match = _IMAGE.fullmatch(config.image.prebuilt)
    if match is None or match[1] not in (config.region, *_MULTI_REGIONS):
        raise InputError(
            "gangway:image.prebuilt",
            "not an image in a repository the nodes can pull from",
            value=config.image.prebuilt,
            allowed=f"{config.region}-docker.pkg.dev/<project>/<repository>/<image>@sha256:<digest>",
            fix=f"push the image to Artifact Registry in {config.region}, or leave it out and let `up` build it",
        )
    return f"projects/{match[2]}/locations/{match[1]}/repositories/{match[3]}"
