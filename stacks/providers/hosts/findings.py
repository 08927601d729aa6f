"""What a person should know before `up` on machines that are there already: what is wrong, assumed, or left to them.
What is about the site's figures is `components.catalog.site`'s; what cannot be planned at all raises in `plan`.
"""

from collections.abc import Iterable

from components.catalog.site import site_findings
from components.core.findings import Finding
from components.estimate.cost import CostEstimate
from components.hosts.wireguard import INTERFACE
from stacks.base.command_nodes import open_rendezvous_findings
from stacks.base.shared import METRICS_PORT, RENDEZVOUS_PORT, get_site
from stacks.config.stack_config import StackConfig
from stacks.estimates import provider_findings
from stacks.estimates.common_findings import common_findings
from stacks.providers.hosts.plan import HostsPlan, get_hosts
from stacks.providers.hosts.settings import HostsConfig
from stacks.providers.hosts.slurm import slurm_findings
from stacks.providers.hosts.user_data import fabric_min_gbps

HOSTS = "gangway:hosts"
_NAMED = 3
"""Machines that one finding names one by one."""


def findings(config: StackConfig, planned: HostsPlan, cost: CostEstimate | None) -> tuple[Finding, ...]:
    """All findings of a stack; `cost` as in `common_findings`."""
    own = get_hosts(config)
    if config.engine.has_queue:
        return (
            *common_findings(config, planned.machine, cost, shared=True),
            *site_findings(get_site(config), planned.machine),
            *slurm_findings(config, planned),
            *_unknown_keys(own),
            *_open_ports(own),
            *_tunnels(config, planned, own),
            *_ssh(own),
            _not_enforced("nothing ends a job but its own max_hours"),
        )
    least = fabric_min_gbps(config, planned)
    return (
        *common_findings(config, planned.machine, cost, shared=True),
        *(provider_findings.trainable if config.trains else provider_findings.runs_commands)(planned.machine),
        *site_findings(get_site(config), planned.machine),
        *provider_findings.ignored_check(config, least, f"{planned.machine.name}, without a fabric,"),
        *provider_findings.fabric_check(config, least),
        *_state(config, own),
        *_unknown_keys(own),
        *_open_ports(own),
        *_tunnels(config, planned, own),
        *_ssh(own),
        *_network(config, planned, own),
        *provider_findings.member_key_refreshed(config, has_key=planned.member_key),
        *_meeting(config, own),
        *_nobody_looks(config),
    )


def _state(config: StackConfig, own: HostsConfig) -> Iterable[Finding]:
    """Checkpoints must be where every machine reads them, and records where the machine's end does not reach."""
    if config.cluster.nodes.max > 1 and own.shared_dir is None:
        yield Finding.error(
            "storage.not-shared",
            f"{HOSTS}.shared_dir",
            "several machines need one file system for checkpoints, and no folder of one is named",
            "mount one on every machine, and write its folder: shared_dir: /shared/gangway",
        )
    if own.run_store.startswith("/"):
        whose = "the first machine" if config.trains or config.cluster.nodes.max < 2 else "each machine"
        what = "records are" if config.trains else "the command's folder is, once it has ended,"
        yield Finding.info(
            "storage.records-in-folder",
            f"{HOSTS}.run_store",
            f"{what} copied to {own.run_store} of {whose}: it outlives the stack, and the machine only where "
            "it is on another's disk",
            "name a bucket to have them elsewhere: s3://, gs:// or az://",
        )


def _meeting(config: StackConfig, own: HostsConfig) -> Iterable[Finding]:
    """Who reaches the ports by which a command's machines meet. They listen at all of a machine's addresses, so that
    tunnels keep nobody out.
    """
    where = "the workers' own ports, which firewall leaves open," if own.firewall else "these machines"
    yield from open_rendezvous_findings(config, where, "keep them in a network of their own")


def _open_ports(own: HostsConfig) -> Iterable[Finding]:
    if own.firewall_sources and not own.firewall:
        yield Finding.warning(
            "network.firewall-sources",
            f"{HOSTS}.firewall_sources",
            "is ignored: without firewall everybody reaches the job's ports",
            "set firewall: true, or remove firewall_sources",
        )


def _tunnels(config: StackConfig, planned: HostsPlan, own: HostsConfig) -> Iterable[Finding]:
    """What WireGuard does not do, where it is asked for."""
    if own.wireguard is None:
        return
    place = f"{HOSTS}.wireguard"
    if config.cluster.nodes.max < 2:
        yield Finding.warning("network.no-tunnels", place, "is ignored: one machine has nobody to tell", "leave it out")
    elif planned.fabric.num_devices:
        yield Finding.error(
            "network.past-tunnels",
            place,
            "RDMA goes past it: gradients would travel in the clear all the same",
            "leave it out, or the machine's fabric: data then go over TCP, through the tunnels",
        )
    elif get_site(config).interface is not None:
        yield Finding.warning(
            "network.interface",
            "gangway:site.interface",
            f"is ignored: NCCL and gloo take WireGuard's, {INTERFACE}",
            "leave it out",
        )


def _unknown_keys(own: HostsConfig) -> Iterable[Finding]:
    unknown = [machine.address for machine in own.machines if machine.accept_unknown_host_key]
    if unknown:
        more = f" and {len(unknown) - _NAMED} more" if len(unknown) > _NAMED else ""
        yield Finding.warning(
            "hosts.unknown-key",
            f"{HOSTS}.machines",
            f"whoever answers at {', '.join(unknown[:_NAMED])}{more} is believed to be that machine, and is handed "
            "what root shall run there",
            "write host_key, as `ssh-keyscan -t ed25519 ADDRESS` prints it behind the address, on a network you trust",
        )


def _ssh(own: HostsConfig) -> Iterable[Finding]:
    if own.private_key is None:
        yield Finding.info(
            "hosts.agent",
            f"{HOSTS}.private_key",
            "none: whoever runs `up` or `destroy` has the key in an SSH agent (SSH_AUTH_SOCK)",
            "`pulumi config set --path --secret gangway:hosts.private_key < KEYFILE` where no person does",
        )


def _network(config: StackConfig, planned: HostsPlan, own: HostsConfig) -> Iterable[Finding]:
    """What has to be open between machines whose firewall is somebody else's."""
    if config.cluster.nodes.max < 2:
        return
    yield Finding.info(
        "hosts.ports",
        f"{HOSTS}.machines",
        f"{'these machines alone are let to' if own.firewall else 'nobody is kept from'} ports {RENDEZVOUS_PORT} and "
        f"{METRICS_PORT}; no other is closed or opened: all reach {own.job_addresses[0]} at {RENDEZVOUS_PORT}, "
        f"it reaches theirs at {METRICS_PORT}, and each reaches every other at all ports for "
        f"{'NCCL' if planned.fabric.num_devices else 'NCCL, also for the gradients'}; {_travels(own)}",
        "keep them in a network of their own",
    )


def _travels(own: HostsConfig) -> str:
    if own.wireguard is None:
        return "gradients travel in the clear"
    return f"all of it in WireGuard's tunnels, for which each reaches each at UDP port {own.wireguard.port}"


def _not_enforced(instead: str) -> Finding:
    return Finding.warning(
        "budget.not-enforced",
        "gangway:budget",
        "nobody bills these machines: the plan compares the budget with what they cost their owner, no mail is sent, "
        "and nothing is stopped by it",
        instead,
    )


def _nobody_looks(config: StackConfig) -> Iterable[Finding]:
    """What clouds do and nobody does here."""
    scraped = (
        "figures in the first one's Prometheus (`ssh -L 9090:localhost:9090`)"
        if config.head.prometheus_image and config.trains
        else "no Prometheus"
    )
    yield _not_enforced("job.max_hours ends the job, whatever it cost")
    yield Finding.info(
        "observe.prometheus-only",
        "gangway:observe",
        "no log service and no alarms: lines are in each machine's journal (`journalctl -u gangway-trainer`), "
        f"{scraped}",
    )
