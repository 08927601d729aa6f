"""Findings of stacks on AWS: problems, and automatic choices with reasons. What cannot be planned raises in `plan`."""

from collections.abc import Iterable
from datetime import UTC, datetime

from gangway.components.aws.capacity import (
    LadderContext,
    QuotaContext,
    capacity_findings,
    helper_quota,
    ladder_quotas,
    network_quotas,
    storage_quota,
)
from gangway.components.aws.eks_nodes import SYSTEM_MACHINE, SYSTEM_NODES
from gangway.components.aws.launch import count_efa
from gangway.components.catalog.loader import load
from gangway.components.catalog.schema import MachineType
from gangway.components.core.capacity import preferred_zone
from gangway.components.core.fields import Egress
from gangway.components.core.findings import Finding, Severity
from gangway.components.estimate.cost import CostEstimate
from gangway.stacks.base.shared import rendezvous_findings
from gangway.stacks.config.engine_settings import SlurmConfig
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.common_findings import common_findings
from gangway.stacks.estimates.provider_findings import (
    fabric_check,
    member_key_refreshed,
    nodes_stay,
    offering_findings,
    runs_commands,
    spot_caps,
    trainable,
    ways_out,
    zone,
)
from gangway.stacks.providers.aws.existing_findings import existing_findings
from gangway.stacks.providers.aws.plan import AwsPlan, eks_findings, fabric_min_gbps, head_type
from gangway.stacks.providers.aws.settings import get_existing
from gangway.stacks.providers.aws.slurm import slurm_findings


def findings(config: StackConfig, planned: AwsPlan, cost: CostEstimate | None) -> tuple[Finding, ...]:
    """All findings of a stack; `cost` as in `common_findings`."""
    existing, nodes, now = get_existing(config), config.cluster.nodes, datetime.now(UTC)
    context = LadderContext(
        machine=planned.machine,
        zone=planned.zone,
        zone_assumed=config.cluster.zone is None and preferred_zone(config.cluster.capacity) is None,
        num_nodes_min=nodes.min,
        num_nodes_max=nodes.max,
        max_hours=None if config.job is None else config.job.max_hours,
        now=now,
    )
    return (
        *common_findings(config, planned.machine, cost),
        *(trainable if config.trains else runs_commands)(planned.machine),
        *offering_findings(config, planned.machine, "aws", planned.zone, now.date()),
        *_fabric(config, planned),
        *zone(planned.zone, planned.zone_reason),
        *capacity_findings(config.cluster.capacity, context),
        *(_storage(config) if planned.eks is None else eks_findings(config, planned.eks)),
        *(slurm_findings(config, config.engine) if isinstance(config.engine, SlurmConfig) else ()),
        *_scratch(config),
        *_storage_fabric(config, planned.machine),
        *_metrics(config, planned),
        *(_network(config) if existing.vpc_id is None else ()),
        *existing_findings(config, planned),
        *member_key_refreshed(config, has_key=planned.member_key),
        *rendezvous_findings(config, "put nothing else into the stack's security groups"),
        *spot_caps(config, planned.machine, "aws"),
        *_quotas(config, planned),
        *_money(config),
    )


def _fabric(config: StackConfig, planned: AwsPlan) -> Iterable[Finding]:
    machine, efa = planned.machine, count_efa(planned.machine)
    if efa:
        layout = f"{machine.name}: 1 ENA and {efa} EFA interfaces per node, {machine.network_gbps.value:g} Gbit/s"
        yield Finding.info("fabric.efa", "gangway:cluster", layout)
    elif config.cluster.nodes.max > 1:
        yield Finding.warning(
            "fabric.none",
            "gangway:cluster",
            f"{machine.name} has no EFA: gradients use TCP at {machine.network_gbps.value:g} Gbit/s",
            "choose a machine type with EFA, or use one node",
        )
    yield from fabric_check(config, fabric_min_gbps(config, planned))


def _storage(config: StackConfig) -> Iterable[Finding]:
    if config.storage is None:
        return
    newest = config.cluster.image_id is None
    if config.network.egress is Egress.ENDPOINTS and (newest or config.storage.efa):
        what = "the Lustre client" if newest else "the setup script of EFA clients"
        yield Finding(
            # A custom image may set up LNet's interfaces itself; AWS's newest image does not.
            Severity.ERROR if newest else Severity.WARNING,
            "storage.lustre-client",
            "gangway:network.egress",
            f"nodes download {what} from the internet, which endpoints do not reach: every node would fail to start",
            "set egress: nat, or set image_id to an image that includes it",
        )
    if newest:
        yield Finding.info(
            "storage.newest-image",
            "gangway:cluster.image_id",
            "nodes use AWS's newest image at the first `up`, and keep it; if FSx's repository has no Lustre client for "
            "its kernel yet, no node can mount the file system",
            "in that case set image_id to an older AMI; increase image_refresh for a newer one",
        )


def _scratch(config: StackConfig) -> Iterable[Finding]:
    if config.storage is not None and config.storage.deployment == "scratch" and not config.storage.export_runs:
        yield Finding.warning(
            "storage.scratch-checkpoints",
            "gangway:storage.deployment",
            "checkpoints on a scratch file system are lost if one of its servers fails",
            "set export_runs: true, or deployment: persistent",
        )


def _metrics(config: StackConfig, planned: AwsPlan) -> Iterable[Finding]:
    if planned.head and config.trains and config.head.prometheus_image and config.network.egress is Egress.ENDPOINTS:
        yield Finding.info(
            "head.no-prometheus",
            "gangway:head.prometheus_image",
            f"{config.head.prometheus_image} is not started: the head node cannot pull it over AWS's endpoints. The "
            "trainer's metrics are not scraped; CloudWatch shows those in the log",
            "set prometheus_image: null, or gangway:network.egress: nat",
        )


def _network(config: StackConfig) -> Iterable[Finding]:
    """The endpoints' policies leave one way out: DNS queries without the DNS firewall."""
    network = config.network
    by_name = {} if network.dns_firewall else {"by DNS": "the resolver forwards each query to the owner of the domain"}
    yield from ways_out(config, by_name, "remove gangway:network.dns_firewall, which is on by default")
    if network.egress is Egress.NAT and "dns_firewall" in network.model_fields_set:
        yield Finding.warning(
            "network.dns-firewall-ignored",
            "gangway:network.dns_firewall",
            "no effect with egress: nat, which opens the whole internet: only egress: endpoints filters names",
            "remove dns_firewall",
        )


def _quotas(config: StackConfig, planned: AwsPlan) -> Iterable[Finding]:
    cluster, storage = config.cluster, config.storage
    context = QuotaContext(config.region, cluster.nodes.max)
    yield from ladder_quotas(cluster.capacity, planned.machine, context)
    if planned.eks is not None:
        users = f"{SYSTEM_NODES} machines for system pods, and one more during an update"
        yield helper_quota("gangway:engine", SYSTEM_MACHINE, SYSTEM_NODES + 1, users, context)
    elif planned.head:
        yield helper_quota("gangway:head.machine_type", head_type(config), 1, "the head node", context)
    existing = get_existing(config)
    if storage is not None and existing.file_system is None:
        yield storage_quota(storage.deployment, storage.capacity_gib, context)
    if existing.vpc_id is None:
        yield from network_quotas(planned.machine, config.network.egress, context)


def _storage_fabric(config: StackConfig, machine: MachineType) -> Iterable[Finding]:
    """Nodes that cannot mount the file system as configured fail, one after the other."""
    if config.storage is None or not config.storage.efa:
        return
    family, excluded = machine.name.partition(".")[0], load().lustre["aws"].efa_excluded_families
    why = None
    if not count_efa(machine):
        why = "it has no EFA"
    elif family in excluded.value:
        why = f"FSx for Lustre does not support {family} as an EFA client ({excluded.confidence})"
    if why:
        yield Finding.error(
            "storage.efa-unreachable",
            "gangway:storage.efa",
            f"{machine.name} cannot mount the file system over EFA: {why}",
            "set efa: false; nodes then mount it over TCP",
        )


def _money(config: StackConfig) -> Iterable[Finding]:
    if not config.budget.activate_tag:
        yield _tag_not_activated(config.budget.stop_at_percent)
    if config.job is not None:
        yield from nodes_stay(config)


def _tag_not_activated(stop_at_percent: float | None) -> Finding:
    """A warning if a stop is set: a budget that counts nothing stops nothing."""
    counts = "the budget counts costs by the tag gangway:stack, which AWS does only after the tag is activated"
    fix = "a day after the first `up`, set activate_tag: true in one stack of the account"
    path = "gangway:budget.activate_tag"
    if stop_at_percent is None:
        return Finding.info("budget.tag-not-activated", path, counts, fix)
    message = f"{counts}: until then it counts nothing, and stop_at_percent: {stop_at_percent:g} stops nothing"
    return Finding.warning("budget.stop-without-tag", path, message, fix)
