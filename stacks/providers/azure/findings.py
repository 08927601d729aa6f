"""What a person should know before `up` on Azure: what is wrong, and every automatic choice with its reason.

Pure. What all providers share is `stacks.checks` and `shared_findings`, what is about storage and money is
`data_findings`; what cannot be planned at all raises in `plan`.
"""

from collections.abc import Iterable

from components.azure.capacity_findings import LadderContext, capacity_findings
from components.azure.fabric import fabric_findings
from components.azure.machine import is_hpc_image
from components.capacity import Spot
from components.catalog import load_provider
from components.choices import Egress
from components.cost import CostEstimate
from components.findings import Finding, Severity
from stacks.checks import common_findings
from stacks.config import StackConfig
from stacks.providers import shared_findings
from stacks.providers.azure.data_findings import key, money, storage
from stacks.providers.azure.job import fabric_min_gbps
from stacks.providers.azure.plan import ROOT_GIB, AzurePlan, head_type
from stacks.providers.shared_findings import CLUSTER

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
        *_security(config, planned),
        *_zone(config, planned),
        *_capacity(config, planned),
        *storage(config, planned),
        *key(config),
        *_egress(config),
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


def _security(config: StackConfig, planned: AzurePlan) -> Iterable[Finding]:
    """Which protections are off, and what those that are on ask for."""
    own, security = config.azure, planned.security
    assert own is not None, "stacks.providers.settings has seen to it"
    if not own.trusted_launch:
        yield Finding(
            Severity.WARNING,
            "machine.trusted-launch-off",
            "gangway:azure.trusted_launch",
            "nodes and head start without a virtual TPM and without Secure Boot, as written: nothing measures or "
            "checks what they boot",
            "leave trusted_launch out where machine types and images take it",
        )
    elif not security.trusted_launch:
        yield Finding(
            Severity.INFO,
            "machine.trusted-launch-off",
            CLUSTER,
            f"{planned.machine.name} is not known to take Trusted Launch: nodes start without a virtual TPM and "
            "without Secure Boot",
        )
    elif not security.secure_boot:
        yield Finding(
            Severity.INFO,
            "machine.secure-boot-off",
            CLUSTER,
            f"nodes start without Secure Boot: {security.why_no_secure_boot}",
        )
    if security.trusted_launch and planned.image.publisher is not None:
        image = planned.image
        yield Finding(
            Severity.INFO,
            "machine.trusted-launch",
            "gangway:azure.trusted_launch",
            "nodes start with a virtual TPM, for which Azure wants an image that is made for Trusted Launch",
            f"`az vm image show --urn {image.publisher}:{image.offer}:{image.sku}:{image.version} --query features` "
            "tells: where it lists no SecurityType of TrustedLaunch, set trusted_launch: false",
        )
    yield from _encryption_at_host(planned, own.encryption_at_host)


def _encryption_at_host(planned: AzurePlan, wanted: bool) -> Iterable[Finding]:
    """The head has it as well, whatever the nodes have."""
    path, size = "gangway:azure.encryption_at_host", planned.machine.name
    if not wanted:
        yield Finding(
            Severity.WARNING,
            "machine.encryption-at-host-off",
            path,
            "caches and local disks of nodes and head are not encrypted, as written, and what passes between them and "
            "their disks is not, either; the disks themselves are, where they are kept",
            "leave encryption_at_host out where machine types and subscription take it",
        )
        return
    yield Finding(
        Severity.INFO,
        "machine.encryption-at-host",
        path,
        "machines encrypt their caches and local disks at the host, for which a subscription is registered once; "
        f"`az vm list-skus --location {planned.region.name} --size {size} --query "
        "\"[].capabilities[?name=='EncryptionAtHostSupported'].value\"` tells whether the nodes' type takes it",
        "run `az feature register --namespace Microsoft.Compute --name EncryptionAtHost`, wait until `az feature show` "
        "says Registered, then `az provider register --namespace Microsoft.Compute`; or set encryption_at_host: false",
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
