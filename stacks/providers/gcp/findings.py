"""What a person should know before `up` on Google Cloud: what is wrong, and every automatic choice with its reason.

Pure. What all providers share is `stacks.planning.checks`, what is about TPU slices `tpu_findings`, what is about
installing things at boot `package_findings`; what cannot be planned at all raises in `plan`.
"""

from collections.abc import Iterable

from components.catalog import GpuDirectFabric, RoceFabric
from components.cost import CostEstimate
from components.findings import Finding, Severity
from components.gcp.capacity_findings import LadderContext, capacity_findings
from components.gcp.nccl import nccl_findings, nccl_plugin
from components.gcp.policies import bucket_of, prefix_of
from stacks.planning.checks import common_findings
from stacks.providers.gcp.job import fabric_min_gbps
from stacks.providers.gcp.package_findings import egress, lustre_kernel
from stacks.providers.gcp.plan import GcpPlan, zone_is_assumed
from stacks.providers.gcp.tpu_findings import slice_findings
from stacks.providers.shared_findings import CLUSTER, fabric_check, ignored_check, nodes_stay, spot_notice, zone
from stacks.settings.config import StackConfig

__all__ = ["findings"]

# How long a machine has between Google's notice and its end (Compute Engine documentation, "Spot VMs").
NOTICE_SEC = 30
# Torch's own, as images/locks/trainer.lock pins it.
IMAGE_NCCL = "2.30.7"


def findings(config: StackConfig, planned: GcpPlan, cost: CostEstimate | None) -> tuple[Finding, ...]:
    """All findings of a stack; `cost` as in `common_findings`."""
    nodes = slice_findings(config, planned) if planned.tpu else _machines(config, planned)
    return (
        *common_findings(config, planned.machine, cost, shared=planned.tpu is not None),
        *nodes,
        *zone(planned.zone, planned.zone_reason),
        *spot_notice(config, NOTICE_SEC),
        *_storage(config, planned),
        *egress(config, planned),
        *_money(config, planned),
    )


def _machines(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    """GPU machines: their fabric, and the ladder they come from."""
    machine, nodes = planned.gpu_machine, config.cluster.nodes
    own_image, fabric = config.cluster.image_id is not None, machine.gpu_fabric
    if fabric is not None:
        yield Finding(Severity.INFO, "fabric.gpu-nics", CLUSTER, f"{machine.name}: {_fabric_words(fabric)}")
    elif nodes.max > 1:
        speed = machine.network_gbps.value
        yield Finding(
            Severity.WARNING,
            "fabric.none",
            CLUSTER,
            f"{machine.name} has no GPU NICs: gradients go over TCP"
            + ("" if speed is None else f" at {speed:g} Gbit/s"),
            "choose a3-megagpu-8g or newer, or one node",
        )
    yield from nccl_findings(machine, own_image, nodes.max, f"{CLUSTER}.image_id", IMAGE_NCCL)
    least = fabric_min_gbps(config, planned)
    yield from _ignored(config, planned)
    uses = f"{machine.name}, whose GPU NICs, if any, the default image does not use,"
    yield from ignored_check(config, least, uses)
    yield from fabric_check(config, least)
    yield from _secure_boot(config, planned)
    context = LadderContext(machine, planned.zone, zone_is_assumed(config), nodes.min, nodes.max, config.job.max_hours)
    yield from capacity_findings(config.cluster.capacity, context)


def _ignored(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    """A section that somebody wrote, of a part that this stack does not have."""
    if config.head.model_fields_set and not planned.head:
        yield Finding(
            Severity.WARNING,
            "head.ignored",
            "gangway:head",
            "of no effect: one node of one rung has no head node, and nothing scrapes its metrics",
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
        yield Finding(
            Severity.INFO,
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
        yield Finding(
            Severity.INFO,
            "network.private-services",
            "gangway:storage",
            "Managed Lustre is reached over private service access: `up` connects the network to Google's services, "
            "and a destroy may have to wait until the file system has left it",
        )
    if storage.source is not None and not (storage.kind == "lustre" and planned.head):
        yield Finding(
            Severity.INFO,
            "storage.copied-by-node",
            "gangway:storage.source",
            "the first machine copies the data onto the file system before the job begins",
        )
    if storage.source is not None and prefix_of(storage.source):
        yield Finding(
            Severity.INFO,
            "storage.whole-bucket",
            "gangway:storage.source",
            f"whoever brings the data may read all of {bucket_of(storage.source)}, not only what is below the prefix: "
            "listing a part of a bucket takes the right to list it",
            "keep the data in a bucket of its own where the bucket has more than these machines may see",
        )


def _money(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    yield _currency(config)
    if config.budget.stop_at_percent is not None:
        yield Finding(
            Severity.INFO,
            "budget.late",
            "gangway:budget.stop_at_percent",
            "no hard limit: Google brings billing data up to date a few times a day, so the stop comes hours late",
        )
    yield from nodes_stay(config, can_leave=planned.tpu is None)


def _currency(config: StackConfig) -> Finding:
    """Google takes a budget in the billing account's currency alone."""
    section, usd = config.gcp, config.budget.monthly_usd
    assert section is not None, "stacks.providers.settings has seen to it"
    if section.currency is None or section.monthly_amount is None:
        return Finding(
            Severity.INFO,
            "budget.currency",
            "gangway:budget.monthly_usd",
            f"the budget is of {usd:,.2f} USD: Google refuses it, and `up` fails, where the billing account is kept in "
            "another currency",
            "in that case add to gangway:gcp its currency: EUR and monthly_amount: in it",
        )
    amount = f"{section.monthly_amount:,.2f} {section.currency}"
    return Finding(
        Severity.INFO,
        "budget.currency",
        "gangway:gcp.monthly_amount",
        f"the budget, its alarms and its stop are of {amount} a month; prices are in dollars, and are compared with "
        f"monthly_usd, {usd:,.2f} USD",
    )
