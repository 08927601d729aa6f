"""Findings of stacks on Azure: problems, and each automatic choice with its reason."""

from collections.abc import Iterable
from datetime import UTC, datetime

from gangway.components.azure.budget import MAX_MONTHS_AHEAD, months_ahead, this_month
from gangway.components.azure.capacity import (
    LadderContext,
    QuotaContext,
    capacity_findings,
    ladder_quotas,
    rung_zones,
)
from gangway.components.azure.fabric import fabric_findings
from gangway.components.azure.launch import Security, is_hpc_image
from gangway.components.core.capacity import LADDER, plan_ladder
from gangway.components.core.fields import Egress
from gangway.components.core.findings import Finding
from gangway.components.estimate.cost import CostEstimate
from gangway.components.kubernetes.spec import INFINIBAND
from gangway.stacks.base.cluster_queues import get_engine, get_version
from gangway.stacks.base.shared import command_meets, rendezvous_findings
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates import provider_findings
from gangway.stacks.estimates.common_findings import common_findings
from gangway.stacks.estimates.provider_findings import CLUSTER, nodes_stay
from gangway.stacks.providers.azure.existing_findings import existing_findings
from gangway.stacks.providers.azure.plan import ROOT_GIB, AzurePlan, fabric_min_gbps, has_infiniband, head_type
from gangway.stacks.providers.azure.settings import AzureConfig, get_existing

# From a Preempt event to termination ("Azure Metadata Service: Scheduled Events for Linux VMs": at least 30 s).
NOTICE_SEC = 30
# Azure/azhpc-images, packer/source.pkr.hcl: os_disk_size_gb.
IMAGE_GIB = 64


def security(config: StackConfig, planned: AzurePlan) -> Iterable[Finding]:
    """Protections that are off, and what the others require."""
    own, guards = config.section(AzureConfig), planned.security
    if not own.trusted_launch:
        yield Finding.warning(
            "machine.trusted-launch-off",
            "gangway:azure.trusted_launch",
            "nodes and head start without a virtual TPM and Secure Boot, as set: their boot is neither measured nor "
            "verified",
            "remove trusted_launch if machine types and images support it",
        )
    elif not guards.trusted_launch:
        yield Finding.info(
            "machine.trusted-launch-off",
            CLUSTER,
            f"Trusted Launch is not known to work on {planned.machine.name}: nodes start without a virtual TPM and "
            "Secure Boot",
        )
    else:
        yield from _secure_boot(guards, own.secure_boot)
    if guards.trusted_launch and planned.image.publisher is not None:
        image = planned.image
        yield Finding.info(
            "machine.trusted-launch",
            "gangway:azure.trusted_launch",
            "nodes start with a virtual TPM, which requires an image that supports Trusted Launch",
            f"if `az vm image show --urn {image.publisher}:{image.offer}:{image.sku}:{image.version} --query "
            "features` shows no SecurityType TrustedLaunch, set trusted_launch: false",
        )
    yield from _encryption_at_host(planned, own.encryption_at_host)


def _secure_boot(guards: Security, written: bool | None) -> Iterable[Finding]:
    """Off if modules are known to be unsigned; a custom image's modules are unknown."""
    path = "gangway:azure.secure_boot"
    if not guards.secure_boot:
        yield Finding.info(
            "machine.secure-boot-off", CLUSTER, f"nodes start without Secure Boot: {guards.why_no_secure_boot}"
        )
    elif written is None:
        yield Finding.warning(
            "machine.secure-boot",
            path,
            "nodes start with Secure Boot and load no unsigned module of your image: if NVIDIA's is unsigned, every "
            "node fails to start and is replaced",
            "run `modinfo -F signer nvidia` on a machine with that image: set secure_boot: true if it prints a "
            "signer, false otherwise",
        )


def _encryption_at_host(planned: AzurePlan, wanted: bool) -> Iterable[Finding]:
    """Applies to the head too."""
    path, size = "gangway:azure.encryption_at_host", planned.machine.name
    if not wanted:
        yield Finding.warning(
            "machine.encryption-at-host-off",
            path,
            "caches and local disks of nodes and head, and the traffic to their disks, are not encrypted, as set; "
            "managed disks are encrypted at rest",
            "remove encryption_at_host if machine types and subscription support it",
        )
        return
    yield Finding.info(
        "machine.encryption-at-host",
        path,
        "the host encrypts caches and local disks, which must be registered once per subscription; `az vm "
        f"list-skus --location {planned.region.name} --size {size} --query "
        "\"[].capabilities[?name=='EncryptionAtHostSupported'].value\"` shows whether the nodes' type supports it",
        "run `az feature register --namespace Microsoft.Compute --name EncryptionAtHost`, wait until `az feature show` "
        "says Registered, then `az provider register --namespace Microsoft.Compute`; or set encryption_at_host: false",
    )


def storage(config: StackConfig, planned: AzurePlan) -> Iterable[Finding]:
    """Managed Lustre: its import and its key."""
    section, source = config.storage, planned.source
    if section is None:
        return
    if source is not None:
        yield Finding.info(
            "storage.imported-once",
            "gangway:storage.source",
            "the file system lists the blobs that exist when it is created, and fetches each at the first read; later "
            "blobs do not appear",
        )
        yield Finding.info(
            "storage.whole-account",
            "gangway:azure.source_account_id",
            f"Managed Lustre may read and write all of {source.account}, not only {source.container}, and "
            "the account must allow access by key: Azure documents no narrower permission",
            "keep the data in a separate storage account",
        )
    if config.encryption == "customer-key" and get_existing(config).file_system_id is None:
        yield Finding.info(
            "storage.key-stays",
            "gangway:encryption",
            "the file system keeps the key version of its creation; disks and the run bucket follow the rotation",
        )


def key(config: StackConfig) -> Iterable[Finding]:
    """What remains after `destroy` with a customer key."""
    if config.encryption == "customer-key" and get_existing(config).key is None:
        yield Finding.info(
            "encryption.key-kept",
            "gangway:encryption",
            "`destroy` keeps vault, key and the identity that uses it: without them the remaining runs would be "
            "unreadable",
            "keep them as long as the runs; they cost little",
        )


def money(config: StackConfig) -> Iterable[Finding]:
    """The budget, and nodes that stay."""
    budget, section = config.budget, config.section(AzureConfig)
    yield Finding.info(
        "budget.currency",
        "gangway:budget.monthly_usd",
        f"Azure takes {budget.monthly_usd:,.2f} in your billing currency, while the plan compares it with prices in "
        "dollars",
        "if that is another currency, alarms and stop refer to that amount in it",
    )
    if section.budget_starts_on is None:
        yield Finding.info(
            "budget.start",
            "gangway:azure.budget_starts_on",
            "assumed: the budget begins in the month of the first `up`; an existing one keeps its start",
        )
    else:
        yield from _budget_start(section.budget_starts_on)
    if config.job is not None:
        yield from nodes_stay(config)


def _budget_start(starts_on: str) -> Iterable[Finding]:
    """Azure creates only budgets that begin this month or in the next twelve; existing ones stay."""
    first, path = this_month(), "gangway:azure.budget_starts_on"
    ahead = months_ahead(starts_on, first)
    if ahead < 0:
        yield Finding.warning(
            "budget.began",
            path,
            f"{starts_on} is past: Azure creates no budget that begins before the current month; an existing one "
            "continues",
            "remove budget_starts_on: a new budget then begins this month, and an existing one keeps its start",
        )
    elif ahead > MAX_MONTHS_AHEAD:
        yield Finding.error(
            "budget.too-far",
            path,
            f"{starts_on} is {ahead} months ahead: Azure creates no budget that begins more than {MAX_MONTHS_AHEAD} "
            "months from now",
            f"set budget_starts_on: '{first}'",
        )


def findings(config: StackConfig, planned: AzurePlan, cost: CostEstimate | None) -> tuple[Finding, ...]:
    """All findings of a stack; `cost` as in `common_findings`."""
    if planned.standing:
        return (
            *common_findings(config, planned.machine, cost, shared=True),
            *_availability(config, planned),
            *_zone(config, planned),
            # Jobs of a queue choose their number of nodes: see `fabric.rungs-apart`.
            *(each for each in _capacity(config, planned) if each.code != "capacity.rungs-apart"),
            *key(config),
            *_encryption_at_host(planned, planned.security.encryption_at_host),
            *cluster_findings(config, planned),
            *money(config),
            *existing_findings(config),
        )
    return (
        *common_findings(config, planned.machine, cost),
        *(provider_findings.trainable if config.trains else provider_findings.runs_commands)(planned.machine),
        *_availability(config, planned),
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
        *existing_findings(config),
    )


def _meeting(config: StackConfig, planned: AzurePlan) -> Iterable[Finding]:
    """The rendezvous of a command. The trainer has one per scale set, torchrun one for all nodes."""
    yield from rendezvous_findings(config)
    if command_meets(config) and planned.fabric.num_hcas and len(config.cluster.capacity) > 1:
        yield Finding.error(
            "fabric.scale-sets-apart",
            f"{CLUSTER}.capacity",
            f"{len(config.cluster.capacity)} rungs are {len(config.cluster.capacity)} scale sets, and InfiniBand "
            "connects only machines of the same one: a custom command has one rendezvous, and nodes of two rungs "
            "could not reach each other",
            "keep one rung, or use a preset",
        )


def _availability(config: StackConfig, planned: AzurePlan) -> Iterable[Finding]:
    machine = planned.machine
    yield from provider_findings.offering_findings(
        config, machine, "azure", planned.nodes_zone, datetime.now(UTC).date()
    )
    if machine.no_new_capacity:
        yield Finding.info(
            "machine.no-new-capacity",
            CLUSTER,
            f"Microsoft adds no capacity of {machine.name}, only of the next generation ({machine.vcpus.source}): it "
            "becomes harder to get",
            "use its successor, Standard_NC40ads_H100_v5",
        )


def _fabric(config: StackConfig, planned: AzurePlan) -> Iterable[Finding]:
    machine, fabric = planned.machine, planned.fabric
    if fabric.num_hcas:
        yield Finding.info(
            "fabric.ib",
            CLUSTER,
            f"{machine.name}: {fabric.num_hcas} {fabric.generation} InfiniBand adapters of {fabric.gbps_each} Gbit/s "
            "per node, in one partition per scale set; a node with fewer or slower ones is unhealthy and does not "
            "train",
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
    image = planned.image
    if image.floats:
        urn = f"{image.publisher}:{image.offer}:{image.sku}"
        yield Finding.info(
            "image.newest",
            f"{CLUSTER}.image_id",
            f"{urn} in the newest version at the first `up`: driver, kernel and NCCL topology depend on the version",
            f"increase image_refresh for a newer one, or set image_id: {urn}:VERSION, from `az vm image list --all "
            f"--publisher {image.publisher} --offer {image.offer} --sku {image.sku}`",
        )
    if planned.fabric.num_hcas and planned.root_volume_gib < ROOT_GIB:
        yield Finding.warning(
            "machine.root-disk",
            f"{CLUSTER}.root_volume_gib",
            f"{planned.root_volume_gib} GiB is small: Azure's HPC image takes {IMAGE_GIB} GiB, plus the unpacked "
            "trainer image and all logs; a full disk ends the job",
            f"set root_volume_gib: {ROOT_GIB}, the default: Azure bills {ROOT_GIB} for 200 too",
        )


def _zone(config: StackConfig, planned: AzurePlan) -> Iterable[Finding]:
    yield from provider_findings.zone(f"zone {planned.zone}", planned.zone_reason)
    if not planned.zone and planned.region.zones:
        yield Finding.info(
            "placement.zone",
            f"{CLUSTER}.zone",
            f"none: Azure chooses a zone of {planned.region.name} with capacity",
            "choose a zone to keep nodes and head together",
        )
    fabric = planned.fabric.num_hcas > 0
    if fabric and planned.zone and not planned.nodes_zone:
        yield Finding.info(
            "placement.nodes-zone",
            f"{CLUSTER}.zone",
            f"the scale sets of {planned.machine.name} have no zone, since Microsoft's page on zones does not combine "
            "them with a single placement group and one fault domain; file system and head are in zone "
            f"{planned.zone}, and nodes in another zone read more slowly",
            f"choose zone '{planned.zone}' to keep all in one; Azure may refuse it",
        )
    elif fabric and any(rung_zones(rung, planned.nodes_zone) for rung in config.cluster.capacity):
        yield Finding.info(
            "placement.zone-with-fabric",
            f"{CLUSTER}.zone",
            f"{planned.machine.name}: a scale set in a zone, with the single placement group that InfiniBand needs "
            "and one fault domain, contradicts Microsoft's page on zones, but its HPC engineers use it",
            "if Azure refuses it, remove zone and zones",
        )


def _proximity(config: StackConfig) -> Iterable[Finding]:
    cluster, path = config.cluster, "gangway:azure.proximity"
    if not config.section(AzureConfig).proximity:
        return
    apart = [index for index, rung in enumerate(plan_ladder(cluster.capacity)) if not rung.placement_group]
    if cluster.nodes.max < 2 or len(apart) == len(cluster.capacity):
        why = "one node" if cluster.nodes.max < 2 else "nodes that are reserved or in several zones"
        message = f"no effect: {why} cannot be placed closer together"
        yield Finding.warning("placement.proximity-ignored", path, message, "remove proximity")
        return
    rungs = f", except those of rung {', '.join(map(str, apart))}," if apart else ""
    yield Finding.info(
        "placement.proximity",
        path,
        f"nodes{rungs} are in one data centre, so that Azure is short of capacity more often",
        "remove proximity if nodes are hard to get",
    )


def _capacity(config: StackConfig, planned: AzurePlan) -> Iterable[Finding]:
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
        "`up` creates empty scale sets, and the head node requests the nodes minutes later: an `up` that changes a "
        "scale set would reset its size to the one in Pulumi's state, and fails if they differ",
        "use `pulumi up --refresh` for every later `up`, or write options: {refresh: always} into Pulumi.yaml",
    )


def _pools_fill() -> Finding:
    return Finding.info(
        "capacity.pools-fill",
        f"{CLUSTER}.capacity",
        "AKS sets the size of its pools: an `up` that changes a pool would reset its size to the one in Pulumi's "
        "state, and fails if they differ",
        "use `pulumi up --refresh` for every later `up`, or write options: {refresh: always} into Pulumi.yaml",
    )


def _egress(config: StackConfig, planned: AzurePlan) -> Iterable[Finding]:
    own = config.section(AzureConfig)
    contained = config.trains or planned.meets
    if config.network.egress is Egress.ENDPOINTS and own.head_image is None and contained:
        yield Finding.error(
            "network.head-no-packages",
            "gangway:network.egress",
            "the head node uses Canonical's image and must install Docker, but endpoints reach only Azure's services: "
            "it would request no nodes",
            "set egress: nat, or set head_image to an image with Docker",
        )
    if own.private_endpoints and config.ready_image is not None:
        yield Finding.info(
            "network.premium-registry",
            "gangway:azure.private_endpoints",
            "the registry of image.prebuilt gets a private endpoint, which requires a Premium registry and its "
            "owner's approval",
            "ask its owner, or remove prebuilt",
        )
    everybodys = "log tables" if own.private_endpoints else "storage accounts, registries, vaults and log tables"
    yield from provider_findings.ways_out(
        config,
        {
            "by DNS": "Azure's resolver resolves every name",
            f"into any tenant's {everybodys}": "a service tag selects a service, not its owner",
        },
        ""
        if own.private_endpoints or own.existing.subnet_id is not None
        else ("set private_endpoints: true, which allows only the stack's storage account, registry and vault"),
    )


def _bastion(config: StackConfig) -> Iterable[Finding]:
    if config.section(AzureConfig).bastion:
        yield Finding.info(
            "network.bastion",
            "gangway:azure.bastion",
            "only users with the role Virtual Machine User Login on the resource group can log in to nodes and head, "
            "by SSH with their Entra ID account",
            "remove bastion, which is billed by the hour, if `az vmss run-command` is enough",
        )


def cluster_findings(config: StackConfig, planned: AzurePlan) -> Iterable[Finding]:
    """The findings of AKS clusters only."""
    yield from _control_plane(config)
    yield from _pod_fabric(config, planned)
    yield Finding.warning(
        "kubernetes.no-run-folders",
        "gangway:engine",
        "jobs have no persistent storage: AKS cannot mount Managed Lustre, so no namespace has the volume claim "
        "gangway-runs",
        "create a claim of that name in each team's namespace, for example with the storage class "
        "azurefile-csi-premium",
    )
    yield Finding.info(
        "kubernetes.budget-scope",
        "gangway:budget",
        "AKS puts its machines into a separate resource group: the budget and its stop count the stack's tag in the "
        "whole subscription",
        "to run `up` you need permission to create budgets and role assignments on the subscription",
    )
    yield Finding.info(
        "kubernetes.not-tried",
        "gangway:engine",
        "requests were tested against the schema of Pulumi's Azure provider, never against AKS",
        "start with one small node, and run a job on it",
    )


def _control_plane(config: StackConfig) -> Iterable[Finding]:
    ranges = get_engine(config).api_cidrs
    where = (
        f"from {', '.join(ranges)}" if ranges else ("only inside the network: `up` and `gangway job` need access to it")
    )
    yield Finding.info(
        "kubernetes.api",
        "gangway:engine.api_cidrs",
        f"Kubernetes {get_version(config)} answers {where}; to run `up` you need the role Azure Kubernetes Service "
        "RBAC Cluster Admin, and kubelogin on the path",
        "" if ranges else "use a VPN, a machine inside, or api_cidrs with the addresses of your network",
    )
    if not config.section(AzureConfig).admin_group_ids:
        yield Finding.warning(
            "kubernetes.no-admins",
            "gangway:azure.admin_group_ids",
            "no directory group administers the cluster, and it has no local accounts: only Azure's roles give access",
            "add the object id of your platform team's group",
        )


def _pod_fabric(config: StackConfig, planned: AzurePlan) -> Iterable[Finding]:
    machine = planned.machine
    if not has_infiniband(config, machine):
        return
    yield Finding.info(
        "fabric.aks-feature",
        CLUSTER,
        f"{machine.name}: AKS puts a pool into one InfiniBand partition only if the subscription has the feature "
        "Microsoft.ContainerService/AKSInfinibandSupport",
        "run `az feature register --namespace Microsoft.ContainerService --name AKSInfinibandSupport`",
    )
    yield Finding.info(
        "fabric.infiniband-in-pods",
        CLUSTER,
        f"{machine.name}: pods get the InfiniBand adapters if they request {INFINIBAND}; otherwise they use TCP over "
        "Ethernet",
        f'request resources: {{nvidia.com/gpu: "{machine.num_accelerators.value}", {INFINIBAND}: "1", ...}}, and '
        "install libibverbs in the job's image",
    )
    if (rungs := len(config.cluster.capacity)) > 1:
        yield Finding.warning(
            "fabric.rungs-apart",
            LADDER,
            f"each of the {rungs} rungs is a pool, and InfiniBand does not connect pools: a job with {INFINIBAND} "
            "gets all nodes from one rung, and may wait while another has free ones",
            "keep one rung, or keep all nodes of a rung running for such jobs",
        )
