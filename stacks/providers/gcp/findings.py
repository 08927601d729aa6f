"""What a person should know before `up` on Google Cloud: what is wrong, and every automatic choice with its reason.
Pure.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

from components.catalog.loader import load_lustre_zones
from components.catalog.offerings import service_findings
from components.catalog.schema import GpuDirectFabric, RoceFabric
from components.core.capacity import AnyRung, Reservation, Spot
from components.core.fields import Egress
from components.core.findings import Finding, Severity
from components.estimate.cost import CostEstimate
from components.gcp.capacity import LadderContext, capacity_findings, ignored_settings, zone_unnamed
from components.gcp.fabric import nccl_findings, nccl_plugin, secure_boot_allowed
from components.gcp.identity import get_bucket, get_prefix
from components.gcp.quotas import QuotaContext, machine_quotas, pool_quotas, slice_quotas, storage_quota
from components.gcp.tpu.reconciler import PAUSES_SEC, PERIOD_MINUTES, WINDOW_SEC
from stacks.base.command_nodes import rendezvous_findings
from stacks.config.stack_config import StackConfig
from stacks.estimates.common_findings import common_findings
from stacks.estimates.provider_findings import (
    CLUSTER,
    fabric_check,
    ignored_check,
    member_key_refreshed,
    nodes_stay,
    offering_findings,
    runs_commands,
    spot_notice,
    zone,
)
from stacks.providers.gcp.kubernetes_findings import cluster_findings
from stacks.providers.gcp.perimeter_findings import perimeter_findings
from stacks.providers.gcp.plan import GcpPlan, fabric_min_gbps, imports, zone_is_assumed
from stacks.providers.gcp.settings import GcpConfig

# Settings of a cluster that mean nothing to a slice.
_HAS_ITS_OWN = {
    "fabric_check": "the chips' own network is not tested before the job",
    "breaker": "nobody replaces a single host of a slice",
    "root_volume_gib": "hosts come with a disk of a fixed size",
    "image_id": "hosts start from the image of their TPU's runtime",
    "image_refresh": "hosts start from the image of their TPU's runtime",
}
# How long a machine has between Google's notice and its end (Compute Engine documentation, "Spot VMs").
NOTICE_SEC = 30
# Torch's own, as images/locks/trainer.lock pins it.
IMAGE_NCCL = "2.30.7"


def slice_findings(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    """All findings that are about slices."""
    yield from _shape(config, planned)
    yield from _state(config)
    yield from _ignored_by_slices(config)
    yield from _rung(config.cluster.capacity[0])
    if zone_is_assumed(config):
        yield from zone_unnamed(config.cluster.capacity[0], f"{CLUSTER}.capacity[0]", planned.zone)
    yield from _energy(planned)


def _shape(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    tpu, nodes = planned.tpu, config.cluster.nodes
    assert tpu is not None, "asked of slices only"
    hosts = f"{tpu.hosts} host{'s' if tpu.hosts > 1 else ''} of {tpu.chips_per_host} chips"
    yield Finding.info(
        "tpu.slice",
        f"{CLUSTER}.accelerator",
        f"{tpu.accelerator_type}: {tpu.chips} chips as {tpu.topology}, {hosts}, image {tpu.runtime_version}; "
        f"nodes are slices",
    )
    if nodes.min != nodes.max:
        yield Finding.error(
            "tpu.fixed-number",
            f"{CLUSTER}.nodes",
            f"the slices of one request come together and train together: {nodes.min} to {nodes.max} is no such number",
            f"set nodes: {{min: {(num := _even_number(config, planned))}, max: {num}}}",
        )
    if nodes.max > 1:
        yield Finding.info(
            "tpu.multislice",
            f"{CLUSTER}.nodes",
            f"{nodes.max} slices train as one job of {planned.num_machines} hosts, over the data centre's network: it "
            f"begins when all are there, and stops when one is taken away. What libtpu wants to know of the slices the "
            f"hosts take from their metadata (MEGASCALE_...), which was tried with a stand-in of it only",
            "take one larger slice where there is one: the chips' own network is faster",
        )


def _even_number(config: StackConfig, planned: GcpPlan) -> int:
    """The most slices of those asked for that share the batch evenly, which XLA needs; all of them where none do."""
    batch_size, chips = config.training.effective_config().batch_size, planned.machine.num_accelerators.value
    most = config.cluster.nodes.max
    return next((num for num in range(most, 0, -1) if batch_size % (num * chips) == 0), most)


def _state(config: StackConfig) -> Iterable[Finding]:
    if config.storage is None:
        yield Finding.info(
            "tpu.state-in-bucket",
            "gangway:storage",
            "all hosts see a folder of the run bucket as their run directory: it outlives the slices, and is slower "
            "than a file system",
            "add storage where checkpoints or data are large",
        )


def _ignored_by_slices(config: StackConfig) -> Iterable[Finding]:
    for name, why in _HAS_ITS_OWN.items():
        if name in config.cluster.model_fields_set:
            yield Finding.warning(
                "tpu.ignored-setting", f"{CLUSTER}.{name}", f"of no effect with TPUs: {why}", f"remove {name}"
            )
    if config.head.model_fields_set:
        yield Finding.warning(
            "tpu.ignored-setting",
            "gangway:head",
            "of no effect with TPUs: the hosts of slices meet at their first, and nothing scrapes their metrics",
            "remove the section",
        )


def _rung(rung: AnyRung) -> Iterable[Finding]:
    path = f"{CLUSTER}.capacity[0]"
    yield from ignored_settings(rung, path)
    if isinstance(rung, Spot):
        yield Finding.info(
            "tpu.preemption",
            path,
            f"slices that are taken back are deleted and asked for anew, all of them: a schedule looks every "
            f"{PERIOD_MINUTES} minutes, as long as the job has not ended; those lost {len(PAUSES_SEC)} times within "
            f"{WINDOW_SEC // 3600} hours are given up. Tried with a stand-in of the queue only",
        )
    if isinstance(rung, Reservation):
        yield Finding.info(
            "tpu.calendar-mode",
            path,
            f"{rung.id} has to be an ordinary reservation: one that was made in calendar mode has to be asked for with "
            "the provisioning model reservation-bound, which version 2 of the TPU API does not have",
        )


def _energy(planned: GcpPlan) -> Iterable[Finding]:
    watts = planned.machine.accelerator_watts
    if watts.value is None:
        yield Finding.info("energy.unknown", CLUSTER, f"energy and carbon are not estimated: {watts.source}")


def lustre_kernel(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    """Google builds its client's modules for some kernels only."""
    if planned.tpu is not None:
        yield Finding.warning(
            "storage.lustre-kernel",
            "gangway:storage.kind",
            "Google builds the modules of Lustre's client for some kernels only, and nobody has tried that of a TPU's "
            "runtime image: hosts try to build them, and those that cannot give up again and again, in a slice that is "
            "paid",
            "try one small slice first, or take kind: filestore",
        )
        return
    own_image = config.cluster.image_id is not None
    secure_boot = secure_boot_allowed(planned.gpu_machine, own_image=own_image)
    if own_image and secure_boot:
        yield Finding.warning(
            "storage.lustre-secure-boot",
            f"{CLUSTER}.image_id",
            "nodes start under Secure Boot, which loads no module that was built on the node, and Google builds those "
            "of Lustre's client for some kernels only: where the image holds no client that is signed for its kernel, "
            "one node after the other may give itself up",
            "try one node first, or take kind: filestore",
        )
    elif not own_image:
        built = "builds them itself, which takes minutes and was never tried"
        yield Finding.info(
            "storage.newest-image",
            f"{CLUSTER}.image_id",
            "nodes start from the image that is its family's newest at the first `up`, and keep it; Google builds the "
            "modules of Lustre's client for some kernels only: a node with another "
            + ("gives itself up, since Secure Boot loads none that was built there" if secure_boot else built),
            "then write an older image into image_id:; count image_refresh: up for a newer one",
        )


def egress(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    """Endpoints lead to Google's APIs alone, and most of what a machine installs at boot comes from elsewhere."""
    if config.network.egress is not Egress.ENDPOINTS:
        return
    if planned.tpu is not None:
        yield _hosts_without_packages(config)
        return
    path, own_image = "gangway:network.egress", config.cluster.image_id is not None
    if not own_image:
        yield Finding.error(
            "network.no-packages",
            path,
            "the default image holds no Docker, and endpoints lead to Google's APIs alone: nothing can be installed, "
            "and one node after the other would give itself up",
            "set egress: nat"
            + ("" if planned.head else f", or pin an image_id that holds {_image_holds(config, planned)}"),
        )
    elif planned.meets or (planned.head and (config.trains or imports(config, planned))):
        yield _head_without_packages(planned)
    else:
        yield Finding.info(
            "network.image-holds",
            f"{CLUSTER}.image_id",
            f"endpoints lead to Google's APIs alone, so the image has to hold {_image_holds(config, planned)}",
            "set gangway:network.egress: nat where it lacks one of them",
        )


def _head_without_packages(planned: GcpPlan) -> Finding:
    """Of a command of one's own whose nodes do not meet the head runs no container, but it may have data imported."""
    installs, so = "Docker", "the workers would wait, and cost, without a place to meet"
    if planned.commands and not planned.meets:
        installs, so = "Lustre's client", "the node would wait, and cost, for data that do not come"
    return Finding.error(
        "network.head-no-packages",
        "gangway:network.egress",
        f"the head node starts from Canonical's image, not from image_id, and has to install {installs}, and endpoints "
        f"lead to Google's APIs alone: {so}",
        "set egress: nat",
    )


def _image_holds(config: StackConfig, planned: GcpPlan) -> str:
    """All that a worker would otherwise install at boot."""
    plugin = nccl_plugin(planned.gpu_machine, own_image=True) if config.trains else None
    modules = plugin.host.kernel_modules if plugin is not None else ()
    things = ["Docker", "NVIDIA's driver", "NVIDIA's container toolkit"]
    if config.storage is not None:
        things.append("the Lustre client" if config.storage.kind == "lustre" else "nfs-common")
    things += [f"the kernel module {name}" for name in modules]
    return f"{', '.join(things[:-1])} and {things[-1]}"


def _hosts_without_packages(config: StackConfig) -> Finding:
    """Google's "TPU software versions": a runtime's image holds Docker. No list says which clients it holds."""
    kind = "bucket" if config.storage is None else config.storage.kind
    client = {"bucket": "Cloud Storage FUSE", "filestore": "nfs-common", "lustre": "the Lustre client"}[kind]
    return Finding(
        Severity.ERROR if kind == "lustre" else Severity.WARNING,
        "network.no-packages",
        "gangway:network.egress",
        f"a TPU's runtime image holds Docker; {client} is installed at boot where it lacks that, and endpoints lead to "
        "Google's APIs alone: such a host gives up",
        "set egress: nat",
    )


def findings(config: StackConfig, planned: GcpPlan, cost: CostEstimate | None) -> tuple[Finding, ...]:
    """All findings of a stack; `cost` as in `common_findings`."""
    if planned.standing:
        return (*cluster_findings(config, planned, cost), *_quotas(config, planned), *_money(config, planned))
    nodes = slice_findings(config, planned) if planned.tpu else _machines(config, planned)
    return (
        *common_findings(config, planned.machine, cost, shared=planned.tpu is not None),
        *offering_findings(config, planned.machine, "gcp", planned.zone, datetime.now(UTC).date()),
        *nodes,
        *zone(planned.zone, planned.zone_reason),
        *spot_notice(config, NOTICE_SEC),
        *_storage(config, planned),
        *egress(config, planned),
        *member_key_refreshed(config, has_key=planned.has_member_key),
        *perimeter_findings(config, planned),
        *_rights(config, planned),
        *_quotas(config, planned),
        *_money(config, planned),
    )


def _rights(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    """What bounds the machines' rights, and takes rights of whoever runs `up`; and where nothing bounds them."""
    path = "gangway:gcp.project"
    if planned.tpu is None:
        yield Finding.info(
            "rights.group-tag",
            path,
            "machines change the groups that carry the stack's tag, and no others; nobody has tried that here. Whoever "
            "runs `up` needs Tag Administrator and Tag User (roles/resourcemanager.tagAdmin, .tagUser), also as Owner",
            "have both granted on the project, or `up` ends at the tag, before it makes a group",
        )
    elif config.work.terminate_when_done:
        yield Finding.info(
            "rights.whole-project",
            path,
            "a queued resource takes no tag and no policy: a host that leaves may delete those of other stacks, too",
            "give the stack a project of its own, or set terminate_when_done: false",
        )


def _quotas(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    """What the project has to allow: large quotas begin at zero."""
    cluster, storage = config.cluster, config.storage
    context = QuotaContext(planned.project, config.region, planned.zone, cluster.nodes.max)
    if planned.tpu is None:
        yield from machine_quotas(planned.gpu_machine, cluster.capacity, context)
    elif planned.standing:
        yield from pool_quotas(planned.tpu, cluster.capacity, context)
    else:
        yield from slice_quotas(planned.tpu, cluster.capacity[0], context)
    if storage is not None:
        yield storage_quota(storage.kind, storage.capacity_gib, context)


def _machines(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    """GPU machines: their fabric, and the ladder they come from."""
    machine, nodes = planned.gpu_machine, config.cluster.nodes
    own_image, fabric = config.cluster.image_id is not None, machine.gpu_fabric
    if fabric is not None:
        yield Finding.info("fabric.gpu-nics", CLUSTER, f"{machine.name}: {_fabric_words(fabric)}")
    elif nodes.max > 1:
        speed = machine.network_gbps.value
        yield Finding.warning(
            "fabric.none",
            CLUSTER,
            f"{machine.name} has no GPU NICs: gradients go over TCP"
            + ("" if speed is None else f" at {speed:g} Gbit/s"),
            "choose a3-megagpu-8g or newer, or one node",
        )
    if config.trains:
        yield from nccl_findings(machine, own_image, nodes.max, f"{CLUSTER}.image_id", IMAGE_NCCL)
    else:
        yield from runs_commands(machine)
        yield from _over_tcp(config, planned)
        yield from rendezvous_findings(config)
    least = fabric_min_gbps(config, planned)
    yield from _ignored(config, planned)
    uses = f"{machine.name}, whose GPU NICs, if any, the default image does not use,"
    yield from ignored_check(config, least, uses)
    yield from fabric_check(config, least)
    yield from _secure_boot(config, planned)
    context = LadderContext(machine, planned.zone, zone_is_assumed(config), nodes.min, nodes.max, config.work.max_hours)
    yield from capacity_findings(config.cluster.capacity, context)


def _over_tcp(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    """GPU NICs that the nodes of a command have, and do not use: NCCL's plug-in goes with the trainer's image."""
    if planned.meets and planned.gpu_machine.gpu_fabric is not None:
        yield Finding.warning(
            "fabric.not-for-commands",
            "gangway:job.command",
            f"nodes give a command no plug-in of NCCL's for the GPU NICs of {planned.machine.name}: its gradients go "
            "over TCP",
            "run it on one node, or take machines without GPU NICs, which cost less",
        )


def _ignored(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    """A section that somebody wrote, of a part that this stack does not have."""
    if config.head.model_fields_set and not planned.head:
        yield Finding.warning(
            "head.ignored",
            "gangway:head",
            "of no effect: nodes of one rung that do not meet have no head node, and nothing scrapes their metrics",
            "remove the section",
        )


def _fabric_words(fabric: GpuDirectFabric | RoceFabric) -> str:
    if isinstance(fabric, RoceFabric):
        return (
            f"{fabric.num_gpu_nics.value} RDMA NICs a node in one RoCE network of its zone, "
            f"{fabric.num_host_nics.value} gVNICs for everything else"
        )
    protocol, nics = fabric.protocol.value.upper(), fabric.num_gpu_nics.value
    return f"{nics} gVNICs for the GPUs beside the machine's own, each in a network of its own (GPUDirect-{protocol})"


def _secure_boot(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    """Says why a protection is off, which is on everywhere else."""
    plugin = nccl_plugin(planned.gpu_machine, own_image=config.cluster.image_id is not None)
    reasons = [f"the {plugin.name} plug-in of NCCL"] if plugin is not None and plugin.host.unsigned else []
    if config.storage is not None and config.storage.kind == "lustre":
        reasons.append("Lustre's client")
    if reasons:
        yield Finding.info(
            "machine.secure-boot-off",
            CLUSTER,
            f"the nodes start without Secure Boot, for modules that nobody signs: those of {' and '.join(reasons)}",
        )


def _storage(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    storage = config.storage
    if storage is None:
        return
    if storage.kind == "lustre":
        yield from lustre_kernel(config, planned)
        yield from service_findings(
            "Managed Lustre",
            load_lustre_zones(),
            "gcp",
            planned.zone,
            "gangway:storage.kind",
            f"`gcloud lustre locations list --project {planned.project}` names its zones; or take kind: filestore",
            datetime.now(UTC).date(),
        )
        yield Finding.info(
            "network.private-services",
            "gangway:storage",
            "Lustre is reached over private service access: `up` connects the network to Google's services, "
            "and a destroy may have to wait until the file system has left it",
        )
    if storage.source is not None and not (storage.kind == "lustre" and planned.head):
        yield Finding.info(
            "storage.copied-by-node",
            "gangway:storage.source",
            "the first machine copies the data onto the file system before the job begins",
        )
    if storage.source is not None and get_prefix(storage.source):
        yield Finding.info(
            "storage.whole-bucket",
            "gangway:storage.source",
            f"whoever brings the data may read all of {get_bucket(storage.source)}, not only what is below the prefix: "
            "listing a part of a bucket takes the right to list it",
            "keep the data in a bucket of its own where the bucket has more than these machines may see",
        )


def _money(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    yield _currency(config)
    if not planned.standing:
        yield from nodes_stay(config)


def _currency(config: StackConfig) -> Finding:
    """Google takes a budget in the billing account's currency alone."""
    section, usd = config.section(GcpConfig), config.budget.monthly_usd
    if section.currency is None or section.monthly_amount is None:
        return Finding.info(
            "budget.currency",
            "gangway:budget.monthly_usd",
            f"the budget is of {usd:,.2f} USD: Google refuses it, and `up` fails, where the billing account is kept in "
            "another currency",
            "in that case add to gangway:gcp its currency: EUR and monthly_amount: in it",
        )
    amount = f"{section.monthly_amount:,.2f} {section.currency}"
    return Finding.info(
        "budget.currency",
        "gangway:gcp.monthly_amount",
        f"the budget, its alarms and its stop are of {amount} a month; prices are in dollars, and are compared with "
        f"monthly_usd, {usd:,.2f} USD",
    )
