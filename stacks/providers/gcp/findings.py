"""Findings of stacks on Google Cloud: problems, each automatic choice with its reason, and service perimeters."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from gangway.components.catalog.loader import load_lustre_zones
from gangway.components.catalog.offerings import service_findings
from gangway.components.catalog.schema import GpuDirectFabric, RoceFabric
from gangway.components.core.capacity import AnyRung, Reservation, Spot
from gangway.components.core.fields import Egress
from gangway.components.core.findings import Finding, Severity
from gangway.components.core.limits import QuotaFinding
from gangway.components.estimate.cost import CostEstimate
from gangway.components.gcp.capacity import (
    NETWORKS_QUOTA,
    LadderContext,
    QuotaContext,
    capacity_findings,
    ignored_settings,
    machine_quotas,
    pool_quotas,
    slice_quotas,
    storage_quota,
    zone_unnamed,
)
from gangway.components.gcp.fabric import nccl_findings, nccl_plugin, secure_boot_allowed
from gangway.components.gcp.identity import get_bucket, get_prefix
from gangway.components.gcp.network import perimeter_name, plan_perimeter
from gangway.components.gcp.tpu.reconciler import PAUSES_SEC, PERIOD_MINUTES, WINDOW_SEC
from gangway.stacks.base.shared import image_place, rendezvous_findings
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.common_findings import common_findings
from gangway.stacks.estimates.provider_findings import (
    CLUSTER,
    fabric_check,
    ignored_check,
    member_key_refreshed,
    nodes_stay,
    offering_findings,
    runs_commands,
    spot_notice,
    ways_out,
    zone,
)
from gangway.stacks.providers.gcp.existing import get_existing
from gangway.stacks.providers.gcp.existing_findings import existing_findings
from gangway.stacks.providers.gcp.kubernetes_findings import cluster_findings
from gangway.stacks.providers.gcp.plan import GcpPlan, fabric_min_gbps, imports, zone_is_assumed
from gangway.stacks.providers.gcp.settings import GcpConfig, PerimeterConfig

# Settings of the cluster without effect on slices, and why.
_UNUSED_BY_SLICES = {
    "fabric_check": "the network between chips is not tested",
    "breaker": "a single host of a slice is never replaced",
    "root_volume_gib": "hosts have a disk of a fixed size",
    "image_id": "hosts use the image of their TPU runtime",
    "image_refresh": "hosts use the image of their TPU runtime",
}
# How long a machine has between Google's notice and its end (Compute Engine documentation, "Spot VMs").
NOTICE_SEC = 30
# The version in images/locks/trainer.lock, a dependency of torch.
IMAGE_NCCL = "2.30.7"


def _slice_findings(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    yield from _shape(config, planned)
    yield from _state(config)
    yield from _ignored_slice_settings(config)
    yield from _rung(config.cluster.capacity[0])
    if zone_is_assumed(config):
        yield from zone_unnamed(config.cluster.capacity[0], f"{CLUSTER}.capacity[0]", planned.zone)
    watts = planned.machine.accelerator_watts
    if watts.value is None:
        yield Finding.info("energy.unknown", CLUSTER, f"energy and carbon are not estimated: {watts.source}")


def _shape(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    tpu, nodes = planned.tpu, config.cluster.nodes
    assert tpu is not None, "called only for slices"
    hosts = f"{tpu.hosts} host{'s' if tpu.hosts > 1 else ''} of {tpu.chips_per_host} chips"
    yield Finding.info(
        "tpu.slice",
        f"{CLUSTER}.accelerator",
        f"{tpu.accelerator_type}: {tpu.chips} chips as {tpu.topology}, {hosts}, image {tpu.runtime_version}; one node "
        "is one slice",
    )
    if nodes.min != nodes.max:
        yield Finding.error(
            "tpu.fixed-number",
            f"{CLUSTER}.nodes",
            f"the number of slices is fixed, as they start and train together: {nodes.min} to {nodes.max} is not "
            "possible",
            f"set nodes: {{min: {(num := _even_slices(config, planned))}, max: {num}}}",
        )
    if nodes.max > 1:
        yield Finding.info(
            "tpu.multislice",
            f"{CLUSTER}.nodes",
            f"{nodes.max} slices train as one job of {planned.num_machines} hosts over the data centre's network: the "
            "job starts when all are running, and stops when one is preempted. Hosts read libtpu's settings "
            "(MEGASCALE_...) from their metadata, which was tested with a simulated server only",
            "use one larger slice if there is one: the network between its chips is faster",
        )


def _even_slices(config: StackConfig, planned: GcpPlan) -> int:
    """The largest number of slices that divides the batch evenly, as XLA requires; the maximum if there is none."""
    batch_size, chips = config.training.effective_config().batch_size, planned.machine.num_accelerators.value
    most = config.cluster.nodes.max
    return next((num for num in range(most, 0, -1) if batch_size % (num * chips) == 0), most)


def _state(config: StackConfig) -> Iterable[Finding]:
    if config.storage is None:
        yield Finding.info(
            "tpu.state-in-bucket",
            "gangway:storage",
            "hosts mount a folder of the run bucket as the run directory: it outlives the slices, but is slower than "
            "a file system",
            "add storage if checkpoints or data are large",
        )


def _ignored_slice_settings(config: StackConfig) -> Iterable[Finding]:
    for name, why in _UNUSED_BY_SLICES.items():
        if name in config.cluster.model_fields_set:
            yield Finding.warning(
                "tpu.ignored-setting", f"{CLUSTER}.{name}", f"no effect with TPUs: {why}", f"remove {name}"
            )
    if config.head.model_fields_set:
        yield Finding.warning(
            "tpu.ignored-setting",
            "gangway:head",
            "no effect with TPUs: the first host runs the rendezvous store, and metrics are not scraped",
            "remove the section",
        )


def _rung(rung: AnyRung) -> Iterable[Finding]:
    path = f"{CLUSTER}.capacity[0]"
    yield from ignored_settings(rung, path)
    if isinstance(rung, Spot):
        yield Finding.info(
            "tpu.preemption",
            path,
            "if a slice is preempted, all slices are deleted and requested again: a schedule checks every "
            f"{PERIOD_MINUTES} minutes until the job ends, and gives up after {len(PAUSES_SEC)} preemptions within "
            f"{WINDOW_SEC // 3600} hours. Tested with a simulated queue only",
        )
    if isinstance(rung, Reservation):
        yield Finding.info(
            "tpu.calendar-mode",
            path,
            f"{rung.id} must not be a reservation in calendar mode, which needs the provisioning model "
            "reservation-bound: version 2 of the TPU API does not have it",
        )


def _lustre_kernel(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    """Google builds the modules of Lustre's client for some kernels only."""
    if planned.tpu is not None:
        yield Finding.warning(
            "storage.lustre-kernel",
            "gangway:storage.kind",
            "Google builds the modules of Lustre's client for some kernels only, and the kernel of TPU runtime images "
            "is untested: hosts try to build them, and if that fails they restart again and again while the slice is "
            "billed",
            "try one small slice first, or set kind: filestore",
        )
        return
    own_image = config.cluster.image_id is not None
    secure_boot = secure_boot_allowed(planned.gpu_machine, own_image=own_image)
    if own_image and secure_boot:
        yield Finding.warning(
            "storage.lustre-secure-boot",
            f"{CLUSTER}.image_id",
            "nodes use Secure Boot, which loads no modules built on the node, and Google builds those of Lustre's "
            "client for some kernels only: unless the image has a signed client for its kernel, every node may fail "
            "to start",
            "try one node first, or set kind: filestore",
        )
    elif not own_image:
        built = "builds them, which takes minutes and is untested"
        yield Finding.info(
            "storage.newest-image",
            f"{CLUSTER}.image_id",
            "nodes use the newest image of the family at the first `up`, and keep it; Google builds the modules of "
            "Lustre's client for some kernels only: a node with another kernel "
            + ("fails to start, since Secure Boot loads no modules built on the node" if secure_boot else built),
            "in that case set image_id to an older image; increase image_refresh for a newer one",
        )


def _egress(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    """Endpoints reach only Google's APIs, and most packages that machines install come from elsewhere."""
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
            "the default image has no Docker, and endpoints reach only Google's APIs: nodes could not install it, and "
            "would fail to start",
            "set egress: nat"
            + ("" if planned.head else f", or set image_id to an image with {_image_holds(config, planned)}"),
        )
    elif planned.meets or (planned.head and (config.trains or imports(config, planned))):
        yield _head_without_packages(planned)
    else:
        yield Finding.info(
            "network.image-holds",
            f"{CLUSTER}.image_id",
            f"endpoints reach only Google's APIs, so the image must contain {_image_holds(config, planned)}",
            "set gangway:network.egress: nat if it lacks any of them",
        )


def _head_without_packages(planned: GcpPlan) -> Finding:
    """Without rendezvous the head of a custom command runs no container, but it may import data."""
    installs, so = "Docker", "workers would wait, billed, for the rendezvous"
    if planned.commands and not planned.meets:
        installs, so = "Lustre's client", "the node would wait, billed, for the data"
    return Finding.error(
        "network.head-no-packages",
        "gangway:network.egress",
        f"the head node uses Canonical's image, not image_id, and must install {installs}, but endpoints reach only "
        f"Google's APIs: {so}",
        "set egress: nat",
    )


def _image_holds(config: StackConfig, planned: GcpPlan) -> str:
    plugin = nccl_plugin(planned.gpu_machine, own_image=True) if config.trains else None
    modules = plugin.host.kernel_modules if plugin is not None else ()
    things = ["Docker", "NVIDIA's driver", "NVIDIA's container toolkit"]
    if config.storage is not None:
        things.append("the Lustre client" if config.storage.kind == "lustre" else "nfs-common")
    things += [f"the kernel module {name}" for name in modules]
    return f"{', '.join(things[:-1])} and {things[-1]}"


def _hosts_without_packages(config: StackConfig) -> Finding:
    """Google's "TPU software versions": a runtime's image has Docker. No list names its file system clients."""
    kind = "bucket" if config.storage is None else config.storage.kind
    client = {"bucket": "Cloud Storage FUSE", "filestore": "nfs-common", "lustre": "the Lustre client"}[kind]
    return Finding(
        Severity.ERROR if kind == "lustre" else Severity.WARNING,
        "network.no-packages",
        "gangway:network.egress",
        f"a TPU's runtime image has Docker, but perhaps not {client}: endpoints reach only Google's APIs, so that a "
        "host could not install it, and would fail to start",
        "set egress: nat",
    )


def findings(config: StackConfig, planned: GcpPlan, cost: CostEstimate | None) -> tuple[Finding, ...]:
    """All findings of a stack; `cost` as in `common_findings`."""
    if planned.standing:
        return (
            *cluster_findings(config, planned, cost),
            *existing_findings(config, planned),
            *_quotas(config, planned),
            *_money(config, planned),
        )
    nodes = _slice_findings(config, planned) if planned.tpu else _machines(config, planned)
    return (
        *common_findings(config, planned.machine, cost, shared=planned.tpu is not None),
        *offering_findings(config, planned.machine, "gcp", planned.zone, datetime.now(UTC).date()),
        *nodes,
        *zone(planned.zone, planned.zone_reason),
        *spot_notice(config, NOTICE_SEC),
        *_storage(config, planned),
        *existing_findings(config, planned),
        *_egress(config, planned),
        *member_key_refreshed(config, has_key=planned.has_member_key),
        *perimeter_findings(config, planned),
        *_rights(config, planned),
        *_quotas(config, planned),
        *_money(config, planned),
    )


def _rights(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    path = "gangway:gcp.project"
    if planned.tpu is None:
        yield Finding.info(
            "rights.group-tag",
            path,
            "machines may change only groups with the stack's tag (untested on Google Cloud). To run `up` you need "
            "Tag Administrator and Tag User (roles/resourcemanager.tagAdmin, .tagUser), even as Owner",
            "have both granted on the project: without them `up` fails before it creates a group",
        )
    elif config.work.terminate_when_done:
        yield Finding.info(
            "rights.whole-project",
            path,
            "queued resources have no tags and no policies: a host that deletes its own may delete those of other "
            "stacks too",
            "use a separate project for the stack, or set terminate_when_done: false",
        )


def _quotas(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    cluster, storage = config.cluster, config.storage
    context = QuotaContext(planned.project, config.region, planned.zone, cluster.nodes.max)
    existing = get_existing(config)
    if planned.tpu is None:
        found = machine_quotas(planned.gpu_machine, cluster.capacity, context)
    elif planned.standing:
        found = pool_quotas(planned.tpu, cluster.capacity, context)
    else:
        found = slice_quotas(planned.tpu, cluster.capacity[0], context)
    made = existing.network is None
    yield from (one for one in found if made or not isinstance(one, QuotaFinding) or one.need.name != NETWORKS_QUOTA)
    if storage is not None and existing.file_system is None:
        yield storage_quota(storage.kind, storage.capacity_gib, context)


def _machines(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    machine, nodes = planned.gpu_machine, config.cluster.nodes
    own_image, fabric = config.cluster.image_id is not None, machine.gpu_fabric
    if fabric is not None:
        yield Finding.info("fabric.gpu-nics", CLUSTER, f"{machine.name}: {_describe_fabric(fabric)}")
    elif nodes.max > 1:
        speed = machine.network_gbps.value
        yield Finding.warning(
            "fabric.none",
            CLUSTER,
            f"{machine.name} has no GPU NICs: gradients use TCP" + ("" if speed is None else f" at {speed:g} Gbit/s"),
            "choose a3-megagpu-8g or newer, or use one node",
        )
    if config.trains:
        yield from nccl_findings(machine, own_image, nodes.max, f"{CLUSTER}.image_id", IMAGE_NCCL)
    else:
        yield from runs_commands(machine)
        yield from _command_fabric(config, planned)
        yield from rendezvous_findings(config)
    least = fabric_min_gbps(config, planned)
    yield from _ignored_head(config, planned)
    uses = f"{machine.name}, whose GPU NICs, if any, the default image does not use,"
    yield from ignored_check(config, least, uses)
    yield from fabric_check(config, least)
    yield from _secure_boot(config, planned)
    context = LadderContext(machine, planned.zone, zone_is_assumed(config), nodes.min, nodes.max, config.work.max_hours)
    yield from capacity_findings(config.cluster.capacity, context)


def _command_fabric(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    """Commands do not use GPU NICs: NCCL's plug-in works with the trainer's image only."""
    if planned.meets and planned.gpu_machine.gpu_fabric is not None:
        yield Finding.warning(
            "fabric.not-for-commands",
            "gangway:job.command",
            f"custom commands get no NCCL plug-in for the GPU NICs of {planned.machine.name}: gradients use TCP",
            "run it on one node, or use machines without GPU NICs, which cost less",
        )


def _ignored_head(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    if config.head.model_fields_set and not planned.head:
        yield Finding.warning(
            "head.ignored",
            "gangway:head",
            "no effect: a stack with one rung and no rendezvous has no head node",
            "remove the section",
        )


def _describe_fabric(fabric: GpuDirectFabric | RoceFabric) -> str:
    if isinstance(fabric, RoceFabric):
        return (
            f"{fabric.num_gpu_nics.value} RDMA NICs per node in one RoCE network of the zone, "
            f"{fabric.num_host_nics.value} gVNICs for other traffic"
        )
    protocol, nics = fabric.protocol.value.upper(), fabric.num_gpu_nics.value
    return f"{nics} gVNICs for the GPUs in addition to the machine's, each in a separate network (GPUDirect-{protocol})"


def _secure_boot(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    plugin = nccl_plugin(planned.gpu_machine, own_image=config.cluster.image_id is not None)
    reasons = [f"the {plugin.name} plug-in of NCCL"] if plugin is not None and plugin.host.unsigned else []
    if config.storage is not None and config.storage.kind == "lustre":
        reasons.append("Lustre's client")
    if reasons:
        yield Finding.info(
            "machine.secure-boot-off",
            CLUSTER,
            f"nodes start without Secure Boot, because the modules of {' and '.join(reasons)} are unsigned",
        )


def _storage(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    storage = config.storage
    if storage is None:
        return
    if storage.kind == "lustre":
        yield from _lustre_kernel(config, planned)
    if storage.kind == "lustre" and get_existing(config).file_system is None:
        yield from service_findings(
            "Managed Lustre",
            load_lustre_zones(),
            "gcp",
            planned.zone,
            "gangway:storage.kind",
            f"`gcloud lustre locations list --project {planned.project}` lists its zones; or set kind: filestore",
            datetime.now(UTC).date(),
        )
    if storage.kind == "lustre" and get_existing(config).network is None:
        yield Finding.info(
            "network.private-services",
            "gangway:storage",
            "Lustre uses private service access: `up` connects the network to Google's services, and `destroy` may "
            "have to wait until the file system has left it",
        )
    if storage.source is not None and not imports(config, planned):
        yield Finding.info(
            "storage.copied-by-node",
            "gangway:storage.source",
            "the first machine copies the data to the file system before the job starts",
        )
    if storage.source is not None and get_prefix(storage.source):
        yield Finding.info(
            "storage.whole-bucket",
            "gangway:storage.source",
            f"the identity that copies the data may read all of {get_bucket(storage.source)}, not only the prefix: "
            "listing a prefix requires permission to list the bucket",
            "if the bucket has other data that these machines must not read, keep this data in a separate one",
        )


def _money(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    yield _currency(config)
    if not planned.standing:
        yield from nodes_stay(config)


def _currency(config: StackConfig) -> Finding:
    """Google accepts budgets only in the currency of the billing account."""
    section, usd = config.section(GcpConfig), config.budget.monthly_usd
    if section.currency is None or section.monthly_amount is None:
        return Finding.info(
            "budget.currency",
            "gangway:budget.monthly_usd",
            f"the budget is {usd:,.2f} USD: Google refuses it, and `up` fails, if the billing account has another "
            "currency",
            "in that case add currency, for example currency: EUR, and monthly_amount in it to gangway:gcp",
        )
    amount = f"{section.monthly_amount:,.2f} {section.currency}"
    return Finding.info(
        "budget.currency",
        "gangway:gcp.monthly_amount",
        f"the budget, its alarms and its stop use {amount} per month; the plan compares its prices with monthly_usd, "
        f"{usd:,.2f} USD",
    )


PATH = "gangway:gcp.service_perimeter"
_DNS = "Google's resolver resolves every name"
_OTHERS = "into other projects' buckets and registries"
_NO_PERIMETER = (
    "set gangway:gcp.service_perimeter, or ask your organisation's administrator to put the project into a VPC "
    "Service Controls perimeter; machines already use restricted.googleapis.com, which enforces it"
)


def perimeter_findings(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    """The remaining ways out, what the perimeter requires, and what is untested."""
    perimeter = config.section(GcpConfig).service_perimeter
    remaining, fix = _ways_out(perimeter)
    yield from ways_out(config, remaining, fix)
    if perimeter is None:
        return
    if perimeter.existing is not None:
        yield Finding.info(
            "network.perimeter",
            PATH,
            f"preview and `up` read {perimeter_name(perimeter.access_policy, perimeter.existing)}, and fail unless it "
            "contains the project and all services that machines call; its other rules are not checked. Untested on a "
            "real organisation",
            "to run `up` you need to read it (roles/accesscontextmanager.policyReader)",
        )
        return
    yield _new_perimeter(perimeter, planned)
    yield from _outside_sources(config, planned, perimeter)
    if perimeter.mode == "enforced" and (planned.tpu is not None or config.budget.stop_at_percent is not None):
        yield Finding.warning(
            "network.perimeter-workflow",
            PATH,
            "the workflow that requests slices again, or stops groups at the budget limit, calls Google's services "
            "from outside the project's networks; whether an enforced perimeter allows that is untested",
            "check the dry run's log first; if the workflow's account appears there, add it to operators",
        )


def _ways_out(perimeter: PerimeterConfig | None) -> tuple[Mapping[str, str], str]:
    """The ways out with `egress: endpoints`, with reasons, and the fix."""
    dns = {"by DNS": _DNS}
    if perimeter is None:
        return {**dns, _OTHERS: "only a service perimeter restricts projects, and the stack has none"}, _NO_PERIMETER
    if perimeter.existing is not None:
        why = f"the owner of {perimeter.existing} decides what it allows"
        return {**dns, "if the perimeter's rules allow it": why}, ""
    if perimeter.mode == "dry-run":
        why = "the perimeter's dry run refuses nothing"
        return {**dns, _OTHERS: why}, "check its log, then set mode: enforced"
    if perimeter.reads_from:
        numbers = ", ".join(map(str, perimeter.reads_from))
        return {**dns, f"into registries of {numbers}": "reads_from allows pulling images there, and so pushing"}, ""
    return dns, ""


def _new_perimeter(perimeter: PerimeterConfig, planned: GcpPlan) -> Finding:
    name = plan_perimeter(perimeter.access_policy, planned.project, perimeter.operators).name
    place = "from anywhere" if not perimeter.access_levels else f"from {', '.join(perimeter.access_levels)}"
    does = "refuses" if perimeter.mode == "enforced" else "would refuse (dry run: it only logs)"
    message = (
        f"{name} {does} all calls from outside to the project's storage, secrets, images, logs, metrics, machines and "
        f"TPUs, except by {', '.join(perimeter.operators)} {place}, and all calls from inside to other projects. A "
        "project can be in one perimeter only, so no other stack in it can have one; a change takes up to 30 minutes "
        "to take effect. Untested on a real organisation"
    )
    fix = (
        "to run `up` you must be Access Context Manager Editor (roles/accesscontextmanager.policyEditor) of the "
        "organisation; `gcloud access-context-manager lookup-configured-perimeter --resource=projects/NUMBER` shows "
        "whether the project is already in a perimeter"
    )
    return (Finding.warning if perimeter.mode == "enforced" else Finding.info)("network.perimeter", PATH, message, fix)


def _outside_sources(config: StackConfig, planned: GcpPlan, perimeter: PerimeterConfig) -> Iterable[Finding]:
    if perimeter.reads_from:
        return
    of_image = None if planned.repository_id is None else planned.repository_id.split("/")[1]
    if of_image is not None and of_image != planned.project:
        yield Finding.warning(
            "network.perimeter-image",
            image_place(config),
            f"the image is in project {of_image}, outside the perimeter: once it is enforced, machines cannot pull it",
            f"add the number of {of_image} to gangway:gcp.service_perimeter.reads_from",
        )
    if config.storage is not None and config.storage.source is not None:
        yield Finding.info(
            "network.perimeter-source",
            "gangway:storage.source",
            "a bucket of another project is outside the perimeter: once it is enforced, machines cannot read it",
            "if it belongs to another project, add that project's number to gangway:gcp.service_perimeter.reads_from",
        )
