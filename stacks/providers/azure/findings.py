"""What a person should know before `up` on Azure: what is wrong, and every automatic choice with its reason. Pure."""

from collections.abc import Iterable
from datetime import UTC, datetime

from components.azure.budget import MAX_MONTHS_AHEAD, months_ahead
from components.azure.capacity import LadderContext, capacity_findings, rung_zones
from components.azure.fabric import fabric_findings
from components.azure.launch import Security, is_hpc_image
from components.azure.quotas import QuotaContext, ladder_quotas
from components.core.capacity import plan_ladder
from components.core.fields import Egress
from components.core.findings import Finding
from components.estimate.cost import CostEstimate
from stacks.base.command_nodes import command_meets, rendezvous_findings
from stacks.config.stack_config import StackConfig
from stacks.estimates import provider_findings
from stacks.estimates.common_findings import common_findings
from stacks.estimates.provider_findings import CLUSTER, nodes_stay
from stacks.providers.azure.kubernetes_findings import cluster_findings
from stacks.providers.azure.plan import ROOT_GIB, AzurePlan, fabric_min_gbps, head_type
from stacks.providers.azure.settings import AzureConfig

# From a Preempt event to the machine's end ("Azure Metadata Service: Scheduled Events for Linux VMs": at least 30 s).
NOTICE_SEC = 30
# Azure/azhpc-images, packer/source.pkr.hcl: os_disk_size_gb.
IMAGE_GIB = 64


def security(config: StackConfig, planned: AzurePlan) -> Iterable[Finding]:
    """Which protections are off, and what those that are on ask for."""
    own, guards = config.section(AzureConfig), planned.security
    if not own.trusted_launch:
        yield Finding.warning(
            "machine.trusted-launch-off",
            "gangway:azure.trusted_launch",
            "nodes and head start without a virtual TPM and without Secure Boot, as written: nothing measures or "
            "checks what they boot",
            "leave trusted_launch out where machine types and images take it",
        )
    elif not guards.trusted_launch:
        yield Finding.info(
            "machine.trusted-launch-off",
            CLUSTER,
            f"{planned.machine.name} is not known to take Trusted Launch: nodes start without a virtual TPM and "
            "without Secure Boot",
        )
    else:
        yield from _secure_boot(guards, own.secure_boot)
    if guards.trusted_launch and planned.image.publisher is not None:
        image = planned.image
        yield Finding.info(
            "machine.trusted-launch",
            "gangway:azure.trusted_launch",
            "nodes start with a virtual TPM, for which Azure wants an image that is made for Trusted Launch",
            f"`az vm image show --urn {image.publisher}:{image.offer}:{image.sku}:{image.version} --query features` "
            "tells: where it lists no SecurityType of TrustedLaunch, set trusted_launch: false",
        )
    yield from _encryption_at_host(planned, own.encryption_at_host)


def _secure_boot(guards: Security, written: bool | None) -> Iterable[Finding]:
    """It is off where modules are taken to be unsigned; where an own image has it nobody has looked at them."""
    path = "gangway:azure.secure_boot"
    if not guards.secure_boot:
        yield Finding.info(
            "machine.secure-boot-off", CLUSTER, f"nodes start without Secure Boot: {guards.why_no_secure_boot}"
        )
    elif written is None:
        yield Finding.warning(
            "machine.secure-boot",
            path,
            "nodes start with Secure Boot, and load no module of your image that is unsigned: without NVIDIA's every "
            "node gives itself up, and another comes in its place",
            "`modinfo -F signer nvidia` on a machine of that image tells: set secure_boot: false where it names "
            "nobody, true where it does",
        )


def _encryption_at_host(planned: AzurePlan, wanted: bool) -> Iterable[Finding]:
    """The head has it as well, whatever the nodes have."""
    path, size = "gangway:azure.encryption_at_host", planned.machine.name
    if not wanted:
        yield Finding.warning(
            "machine.encryption-at-host-off",
            path,
            "caches and local disks of nodes and head are not encrypted, as written, and what passes between them and "
            "their disks is not, either; the disks themselves are, where they are kept",
            "leave encryption_at_host out where machine types and subscription take it",
        )
        return
    yield Finding.info(
        "machine.encryption-at-host",
        path,
        "machines encrypt their caches and local disks at the host, for which a subscription is registered once; "
        f"`az vm list-skus --location {planned.region.name} --size {size} --query "
        "\"[].capabilities[?name=='EncryptionAtHostSupported'].value\"` tells whether the nodes' type takes it",
        "run `az feature register --namespace Microsoft.Compute --name EncryptionAtHost`, wait until `az feature show` "
        "says Registered, then `az provider register --namespace Microsoft.Compute`; or set encryption_at_host: false",
    )


def storage(config: StackConfig, planned: AzurePlan) -> Iterable[Finding]:
    """Managed Lustre and what is behind it."""
    section, source = config.storage, planned.source
    if section is None:
        return
    if source is not None:
        yield Finding.info(
            "storage.imported-once",
            "gangway:storage.source",
            "the names of the blobs appear when the file system is made, and each blob is fetched when it is first "
            "read; blobs that come later do not appear by themselves",
        )
        yield Finding.info(
            "storage.whole-account",
            "gangway:azure.source_account_id",
            f"Managed Lustre's own service may read and write all of {source.account}, not only {source.container}, "
            "and takes an account that allows access by key: Azure documents no smaller right",
            "keep the data in a storage account of its own",
        )
    if config.encryption == "customer-key":
        yield Finding.info(
            "storage.key-stays",
            "gangway:encryption",
            "the file system stays under the key's version of the day it was made, as nothing turns it to a newer one; "
            "disks and the run bucket follow the rotation",
        )


def key(config: StackConfig) -> Iterable[Finding]:
    """What a key of one's own leaves behind."""
    if config.encryption == "customer-key":
        yield Finding.info(
            "encryption.key-kept",
            "gangway:encryption",
            "vault, key and the identity that uses it stay when the stack is destroyed: nobody could read the runs, "
            "which stay too, without them",
            "they cost little: keep them as long as the runs, which nobody could read without the key",
        )


def money(config: StackConfig) -> Iterable[Finding]:
    """The budget, and nodes that stay."""
    budget, section = config.budget, config.section(AzureConfig)
    yield Finding.info(
        "budget.currency",
        "gangway:budget.monthly_usd",
        f"Azure reads {budget.monthly_usd:,.2f} in the currency of your bill, and the plan compares it "
        "with prices in dollars",
        "where the bill is in another currency, expect alarms and stop at that amount of it",
    )
    yield from _begins(section.budget_starts_on)
    if config.job is not None:
        yield from nodes_stay(config)


def _begins(starts_on: str) -> Iterable[Finding]:
    """Azure makes a budget that begins this month, or in one of the next twelve; that of one that stands it leaves."""
    today = datetime.now(UTC).date()
    ahead, path = months_ahead(starts_on, today), "gangway:azure.budget_starts_on"
    if ahead < 0:
        yield Finding.warning(
            "budget.began",
            path,
            f"{starts_on} is past: Azure refuses to make a budget that begins before the current month; one that "
            "stands goes on",
            f"set budget_starts_on: '{today.replace(day=1)}' for a first `up`; a stack that stands keeps it",
        )
    elif ahead > MAX_MONTHS_AHEAD:
        yield Finding.error(
            "budget.too-far",
            path,
            f"{starts_on} is {ahead} months ahead: Azure makes no budget that begins more than {MAX_MONTHS_AHEAD} "
            "months from now",
            f"set budget_starts_on: '{today.replace(day=1)}'",
        )


def findings(config: StackConfig, planned: AzurePlan, cost: CostEstimate | None) -> tuple[Finding, ...]:
    """All findings of a stack; `cost` as in `common_findings`."""
    if planned.standing:
        return (
            *common_findings(config, planned.machine, cost, shared=True),
            *_sold(config, planned),
            *_zone(config, planned),
            # A queue's jobs have their own number of nodes: `fabric.rungs-apart`.
            *(each for each in _capacity(config, planned) if each.code != "capacity.rungs-apart"),
            *key(config),
            *_encryption_at_host(planned, planned.security.encryption_at_host),
            *cluster_findings(config, planned),
            *money(config),
        )
    return (
        *common_findings(config, planned.machine, cost),
        *(provider_findings.trainable if config.trains else provider_findings.runs_commands)(planned.machine),
        *_sold(config, planned),
        *_fabric(config, planned),
        *_image(config, planned),
        *security(config, planned),
        *_zone(config, planned),
        *_proximity(config),
        *_capacity(config, planned),
        *storage(config, planned),
        *key(config),
        *_egress(config, planned),
        *provider_findings.member_key_refreshed(config, has_key=config.trains),
        *_meeting(config, planned),
        *_bastion(config),
        *money(config),
    )


def _meeting(config: StackConfig, planned: AzurePlan) -> Iterable[Finding]:
    """Where a command's nodes meet. The trainer's do at one place for each scale set; torchrun has one for all."""
    yield from rendezvous_findings(config)
    if command_meets(config) and planned.fabric.num_hcas and len(config.cluster.capacity) > 1:
        yield Finding.error(
            "fabric.scale-sets-apart",
            f"{CLUSTER}.capacity",
            f"{len(config.cluster.capacity)} rungs are as many scale sets, and InfiniBand joins the machines of one: a "
            "command's nodes meet at one place, and those of two rungs would not reach each other",
            "keep one rung, or write a preset",
        )


def _sold(config: StackConfig, planned: AzurePlan) -> Iterable[Finding]:
    """Whether the machine type is there at all: only a subscription is told, but some signs are public."""
    machine = planned.machine
    yield from provider_findings.offering_findings(
        config, machine, "azure", planned.nodes_zone, datetime.now(UTC).date()
    )
    if machine.no_new_capacity:
        yield Finding.info(
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
        yield Finding.info(
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
    yield from provider_findings.ignored_check(config, least, f"{machine.name}, without InfiniBand,")
    yield from provider_findings.fabric_check(config, least)


def _image(config: StackConfig, planned: AzurePlan) -> Iterable[Finding]:
    """The nodes' image and the disk it is on."""
    image = planned.image
    if image.floats:
        urn = f"{image.publisher}:{image.offer}:{image.sku}"
        yield Finding.info(
            "image.newest",
            f"{CLUSTER}.image_id",
            f"{urn} as it is at the first `up`: another version brings another driver, kernel and NCCL topology",
            f"count image_refresh: up for a newer one, or set image_id: {urn}:VERSION, as `az vm image list --all "
            f"--publisher {image.publisher} --offer {image.offer} --sku {image.sku}` shows it",
        )
    if planned.fabric.num_hcas and planned.root_volume_gib < ROOT_GIB:
        yield Finding.warning(
            "machine.root-disk",
            f"{CLUSTER}.root_volume_gib",
            f"{planned.root_volume_gib} GiB: Azure's HPC image is made for a disk of {IMAGE_GIB} GiB, and the "
            "trainer's image, unpacked, and all logs come on top; a full disk ends the job",
            f"set root_volume_gib: {ROOT_GIB}, or leave it out: {ROOT_GIB} is what Azure bills for 200, too",
        )


def _zone(config: StackConfig, planned: AzurePlan) -> Iterable[Finding]:
    yield from provider_findings.zone(f"zone {planned.zone}", planned.zone_reason)
    if not planned.zone and planned.region.zones:
        yield Finding.info(
            "placement.zone",
            f"{CLUSTER}.zone",
            f"none: Azure takes whichever zone of {planned.region.name} has the machines",
            "to keep nodes and head in one, write a zone",
        )
    fabric = planned.fabric.num_hcas > 0
    if fabric and planned.zone and not planned.nodes_zone:
        yield Finding.info(
            "placement.nodes-zone",
            f"{CLUSTER}.zone",
            f"{planned.machine.name}: its scale sets name no zone, since Microsoft's page on zones has none together "
            f"with a single placement group and one fault domain; file system and head are in zone {planned.zone}, and "
            "nodes may be in another, which is slower to read from",
            f"zone: '{planned.zone}' keeps all in one, and Azure may refuse it",
        )
    elif fabric and any(rung_zones(rung, planned.nodes_zone) for rung in config.cluster.capacity):
        yield Finding.info(
            "placement.zone-with-fabric",
            f"{CLUSTER}.zone",
            f"{planned.machine.name}: a scale set in a zone, with the single placement group that InfiniBand needs and "
            "one fault domain: Microsoft's page on zones has it otherwise, its HPC engineers set it up so",
            "where Azure refuses it, leave zone and zones out",
        )


def _proximity(config: StackConfig) -> Iterable[Finding]:
    """What a proximity placement group costs, and where there is none though it is asked for."""
    cluster, path = config.cluster, "gangway:azure.proximity"
    if not config.section(AzureConfig).proximity:
        return
    apart = [index for index, rung in enumerate(plan_ladder(cluster.capacity)) if not rung.placement_group]
    if cluster.nodes.max < 2 or len(apart) == len(cluster.capacity):
        why = "one node" if cluster.nodes.max < 2 else "what is reserved, or lies in several zones,"
        message = f"of no effect: {why} cannot be brought nearer"
        yield Finding.warning("placement.proximity-ignored", path, message, "remove proximity")
        return
    rungs = f", but for rung {', '.join(map(str, apart))}," if apart else ""
    yield Finding.info(
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
        planned.nodes_zone,
        nodes.min if planned.head else 1,
        nodes.max,
    )
    yield from capacity_findings(ladder, context)
    head = head_type(config) if planned.head else None
    yield from ladder_quotas(ladder, planned.machine, QuotaContext(planned.region.name, nodes.max, head))
    if planned.standing:
        yield _pools_fill()
        return
    yield from provider_findings.spot_notice(config, NOTICE_SEC)
    yield from provider_findings.spot_caps(config, planned.machine, "azure")
    yield Finding.info(
        "capacity.head-fills",
        f"{CLUSTER}.capacity",
        "`up` makes the scale sets empty, and the head node asks for the nodes some minutes later: an `up` that "
        "changes a scale set would send the size that Pulumi last saw, and is refused where that is another",
        "run every later one as `pulumi up --refresh`, or write options: {refresh: always} into Pulumi.yaml",
    )


def _pools_fill() -> Finding:
    return Finding.info(
        "capacity.pools-fill",
        f"{CLUSTER}.capacity",
        "AKS sets how many nodes its pools have, and an `up` that changes a pool would send the number that Pulumi saw "
        "last: it is refused where that is another",
        "run every later one as `pulumi up --refresh`, or write options: {refresh: always} into Pulumi.yaml",
    )


def _egress(config: StackConfig, planned: AzurePlan) -> Iterable[Finding]:
    own = config.section(AzureConfig)
    contained = config.trains or planned.meets
    if config.network.egress is Egress.ENDPOINTS and own.head_image is None and contained:
        yield Finding.error(
            "network.head-no-packages",
            "gangway:network.egress",
            "the head node starts from Canonical's image and has to install Docker, and endpoints lead to Azure's own "
            "services alone: it would ask for no nodes",
            "set egress: nat, or write a head_image that has Docker",
        )
    if own.private_endpoints and config.ready_image is not None:
        yield Finding.info(
            "network.premium-registry",
            "gangway:azure.private_endpoints",
            "the registry of image.prebuilt gets a private endpoint, which only Premium ones take, and whose owner has "
            "to approve of it",
            "ask its owner, or leave prebuilt out",
        )
    everybodys = "log tables" if own.private_endpoints else "storage accounts, registries, vaults and log tables"
    yield from provider_findings.ways_out(
        config,
        {
            "by DNS": "Azure's resolver answers every name",
            f"into any tenant's {everybodys}": "a service tag names a service, and not whose",
        },
        "" if own.private_endpoints else "private_endpoints: true leads storage, registry and vault to the stack's own",
    )


def _bastion(config: StackConfig) -> Iterable[Finding]:
    """Whom the way in lets in."""
    if config.section(AzureConfig).bastion:
        yield Finding.info(
            "network.bastion",
            "gangway:azure.bastion",
            "people who have the role Virtual Machine User Login on the resource group come in by SSH with their Entra "
            "ID account, nodes and head alike; nobody else does",
            "leave bastion out where `az vmss run-command` is enough: it costs by the hour",
        )
