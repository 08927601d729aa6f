"""What a person should know before `up` on Azure: what is wrong, and every automatic choice with its reason.

Pure. What all providers share is `stacks.checks` and `shared_findings`, what is about storage and money is
`data_findings`; what cannot be planned at all raises in `plan`.
"""

from collections.abc import Iterable

from components.azure.capacity_findings import LadderContext, capacity_findings
from components.azure.fabric import fabric_findings
from components.azure.machine import plan_security
from components.choices import Egress
from components.cost import CostEstimate
from components.findings import Finding, Severity
from stacks.checks import common_findings
from stacks.config import StackConfig
from stacks.providers import shared_findings
from stacks.providers.azure.data_findings import key, money, storage
from stacks.providers.azure.job import fabric_min_gbps
from stacks.providers.azure.plan import ROOT_GIB, AzurePlan
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
        own_image=config.cluster.image_id is not None,
        network_cidr=config.network.cidr,
        path=CLUSTER,
    )
    least = fabric_min_gbps(config, planned)
    yield from shared_findings.ignored_check(config, least, f"{machine.name}, without InfiniBand,")
    yield from shared_findings.fabric_check(config, least)


def _image(config: StackConfig, planned: AzurePlan) -> Iterable[Finding]:
    """The nodes' image and the disk it is on."""
    image = planned.fabric.image
    if image is not None:
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
    """Which protections are off, and what one that is on asks for."""
    security = plan_security(planned.machine, own_image=config.cluster.image_id is not None)
    if not security.trusted_launch:
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
    # The head has it whatever the nodes have.
    yield Finding(
        Severity.INFO,
        "machine.encryption-at-host",
        CLUSTER,
        "machines encrypt their caches and local disks at the host, for which a subscription is registered once",
        "run `az feature register --namespace Microsoft.Compute --name EncryptionAtHost`, wait until `az feature show` "
        "says Registered, then `az provider register --namespace Microsoft.Compute`",
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
        planned.machine, planned.region.name, planned.region.zones, planned.zone, nodes.min, nodes.max
    )
    yield from capacity_findings(ladder, context)
    yield from shared_findings.spot_notice(config, NOTICE_SEC)
    yield from shared_findings.spot_caps(config, planned.machine, "azure")
    yield Finding(
        Severity.INFO,
        "capacity.head-fills",
        f"{CLUSTER}.capacity",
        "`up` makes the scale sets empty, and the head node asks for the nodes some minutes later: an `up` that "
        "changes a scale set would send the size that Pulumi last saw",
        "run every later one as `pulumi up --refresh`",
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
