"""What a person should know before `up` on Azure: what is wrong, and every automatic choice with its reason.

Pure. What all providers share is `stacks.planning.checks` and `shared_findings`, what is about storage and money is
`data_findings`, about the guards of machines `security_findings`; what cannot be planned at all raises in `plan`.
"""

from collections.abc import Iterable

from components.azure.capacity_findings import LadderContext, capacity_findings
from components.azure.fabric import fabric_findings
from components.azure.machine import is_hpc_image
from components.capacity import Spot, plan_ladder
from components.catalog import load_provider
from components.choices import Egress
from components.cost import CostEstimate
from components.findings import Finding, Severity
from stacks.planning.checks import common_findings
from stacks.providers import shared_findings
from stacks.providers.azure.data_findings import key, money, storage
from stacks.providers.azure.job import fabric_min_gbps
from stacks.providers.azure.plan import ROOT_GIB, AzurePlan, head_type
from stacks.providers.azure.security_findings import security
from stacks.providers.shared_findings import CLUSTER
from stacks.settings.config import StackConfig

__all__ = ["findings"]

# From a Preempt event to the machine's end ("Azure Metadata Service: Scheduled Events for Linux VMs": at least 30 s).
NOTICE_SEC = 30
# Azure/azhpc-images, packer/source.pkr.hcl: os_disk_size_gb.
IMAGE_GIB = 64


def findings(config: StackConfig, planned: AzurePlan, cost: CostEstimate | None) -> tuple[Finding, ...]:
    """All findings of a stack; `cost` as in `common_findings`."""
    return (
        *common_findings(config, planned.machine, cost),
        *shared_findings.trainable(planned.machine),
        *_sold(config, planned),
        *_fabric(config, planned),
        *_image(config, planned),
        *security(config, planned),
        *_zone(config, planned),
        *_proximity(config),
        *_capacity(config, planned),
        *storage(config, planned),
        *key(config),
        *_egress(config),
        *_bastion(config),
        *money(config),
    )


def _sold(config: StackConfig, planned: AzurePlan) -> Iterable[Finding]:
    """Whether the machine type is there at all: only a subscription is told, but some signs are public."""
    machine, region = planned.machine, planned.region.name
    price = load_provider("azure").price(machine.name, region)
    if price is None or price.region != region:
        yield Finding(
            Severity.INFO,
            "machine.region-unknown",
            "gangway:region",
            f"whether {region} sells {machine.name} is not known: the catalogue has no price of it there",
            f"look before `up`: `az vm list-skus --location {region} --size {machine.name} --output table`",
        )
    if machine.no_new_capacity:
        yield Finding(
            Severity.INFO,
            "machine.no-new-capacity",
            CLUSTER,
            f"{machine.name}: Microsoft adds capacity of the next generation alone ({machine.vcpus.source}), so fewer "
            "of these will be had as time goes on",
            "Standard_NC40ads_H100_v5 is its successor",
        )


def _fabric(config: StackConfig, planned: AzurePlan) -> Iterable[Finding]:
    """InfiniBand: its layout, what it lacks, and the test before the job."""
    machine, fabric = planned.machine, planned.fabric
    if fabric.num_hcas:
        yield Finding(
            Severity.INFO,
            "fabric.ib",
            CLUSTER,
            f"{machine.name}: {fabric.num_hcas} {fabric.generation} InfiniBand adapters of {fabric.gbps_each} Gbit/s a "
            "node, in one partition a scale set; a node that shows fewer, or a slower link, is not healthy and trains "
            "nothing",
        )
    yield from fabric_findings(
        machine,
        num_nodes_max=config.cluster.nodes.max,
        own_image=not is_hpc_image(config.cluster.image_id),
        network_cidr=config.network.cidr,
        path=CLUSTER,
    )
    least = fabric_min_gbps(config, planned)
    yield from shared_findings.ignored_check(config, least, f"{machine.name}, without InfiniBand,")
    yield from shared_findings.fabric_check(config, least)


def _image(config: StackConfig, planned: AzurePlan) -> Iterable[Finding]:
    """The nodes' image and the disk it is on."""
    image = planned.image
    if image.version == "latest":
        urn = f"{image.publisher}:{image.offer}:{image.sku}"
        yield Finding(
            Severity.INFO,
            "image.floating",
            f"{CLUSTER}.image_id",
            f"each node starts from the newest version of {urn}, also in the middle of a run, and another version "
            "brings another driver, kernel and NCCL topology",
            f"once a run has worked, set image_id: {urn}:VERSION, as `az vm image list --all --publisher "
            f"{image.publisher} --offer {image.offer} --sku {image.sku}` shows it",
        )
    if planned.fabric.num_hcas and planned.root_volume_gib < ROOT_GIB:
        yield Finding(
            Severity.WARNING,
            "machine.root-disk",
            f"{CLUSTER}.root_volume_gib",
            f"{planned.root_volume_gib} GiB: Azure's HPC image is made for a disk of {IMAGE_GIB} GiB, and the "
            "trainer's image, unpacked, and all logs come on top; a full disk ends the job",
            f"set root_volume_gib: {ROOT_GIB}, or leave it out: {ROOT_GIB} is what Azure bills for 200, too",
        )


def _zone(config: StackConfig, planned: AzurePlan) -> Iterable[Finding]:
    yield from shared_findings.zone(f"zone {planned.zone}", planned.zone_reason)
    if not planned.zone and planned.region.zones:
        yield Finding(
            Severity.INFO,
            "placement.zone",
            f"{CLUSTER}.zone",
            f"none: Azure takes whichever zone of {planned.region.name} has the machines",
            "set zone to keep nodes and head in one",
        )


def _proximity(config: StackConfig) -> Iterable[Finding]:
    """What a proximity placement group costs, and where there is none though it is asked for."""
    own, cluster, path = config.azure, config.cluster, "gangway:azure.proximity"
    if own is None or not own.proximity:
        return
    apart = [index for index, rung in enumerate(plan_ladder(cluster.capacity)) if not rung.placement_group]
    if cluster.nodes.max < 2 or len(apart) == len(cluster.capacity):
        why = "one node" if cluster.nodes.max < 2 else "what is reserved, or lies in several zones,"
        message = f"of no effect: {why} cannot be brought nearer"
        yield Finding(Severity.WARNING, "placement.proximity-ignored", path, message, "remove proximity")
        return
    rungs = f", but for rung {', '.join(map(str, apart))}," if apart else ""
    yield Finding(
        Severity.INFO,
        "placement.proximity",
        path,
        f"nodes{rungs} come from one data centre, and Azure refuses more often where that one has too few",
        "remove proximity where nodes are hard to get",
    )


def _capacity(config: StackConfig, planned: AzurePlan) -> Iterable[Finding]:
    """The ladder, spot, and who sets the number of nodes."""
    nodes, ladder = config.cluster.nodes, config.cluster.capacity
    context = LadderContext(
        planned.machine,
        planned.region.name,
        planned.region.zones,
        planned.zone,
        nodes.min,
        nodes.max,
        head_type(config),
    )
    yield from capacity_findings(ladder, context)
    yield from shared_findings.spot_notice(config, NOTICE_SEC)
    yield from shared_findings.spot_caps(config, planned.machine, "azure")
    yield from _high_caps(config, planned)
    yield Finding(
        Severity.INFO,
        "capacity.head-fills",
        f"{CLUSTER}.capacity",
        "`up` makes the scale sets empty, and the head node asks for the nodes some minutes later: an `up` that "
        "changes a scale set would send the size that Pulumi last saw",
        "run every later one as `pulumi up --refresh`",
    )


def _high_caps(config: StackConfig, planned: AzurePlan) -> Iterable[Finding]:
    """Price caps that cap nothing."""
    price = load_provider("azure").price(planned.machine.name, config.region)
    on_demand = None if price is None else price.on_demand.value
    for position, rung in enumerate(config.cluster.capacity):
        cap = rung.max_usd_per_hour if isinstance(rung, Spot) else None
        if cap is not None and on_demand is not None and cap > on_demand:
            yield Finding(
                Severity.WARNING,
                "capacity.spot-cap-high",
                f"{CLUSTER}.capacity[{position}].max_usd_per_hour",
                f"{cap:g} USD is above the price on demand, {on_demand:g} USD, which Azure never charges for spot",
                "leave max_usd_per_hour out: the price on demand is the limit then",
            )


def _egress(config: StackConfig) -> Iterable[Finding]:
    if config.network.egress is Egress.ENDPOINTS:
        yield Finding(
            Severity.ERROR,
            "network.head-no-packages",
            "gangway:network.egress",
            "the head node starts from Canonical's image and has to install Docker, and endpoints lead to Azure's own "
            "services alone: it would ask for no nodes",
            "set egress: nat",
        )


def _bastion(config: StackConfig) -> Iterable[Finding]:
    """Whom the way in lets in."""
    if config.azure is not None and config.azure.bastion:
        yield Finding(
            Severity.INFO,
            "network.bastion",
            "gangway:azure.bastion",
            "people who have the role Virtual Machine User Login on the resource group come in by SSH with their Entra "
            "ID account, nodes and head alike; nobody else does",
            "leave bastion out where `az vmss run-command` is enough: it costs by the hour",
        )
