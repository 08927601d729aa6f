"""Findings of stacks on existing machines. `gangway.components.catalog.site` has those about the site's figures."""

from collections.abc import Iterable

from gangway.components.catalog.site import site_findings
from gangway.components.core.findings import Finding
from gangway.components.estimate.cost import CostEstimate
from gangway.components.hosts.wireguard import INTERFACE
from gangway.images.slurm.conf import SRUN_PORTS
from gangway.stacks.base.shared import RENDEZVOUS_PORT, get_site, metrics_text, open_rendezvous_findings, scrapes
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates import provider_findings
from gangway.stacks.estimates.common_findings import common_findings
from gangway.stacks.providers.hosts.plan import HostsPlan, fabric_min_gbps, get_hosts, slurm_spec
from gangway.stacks.providers.hosts.settings import HostsConfig

HOSTS = "gangway:hosts"
_MAX_LISTED = 3  # the number of machines that a finding lists


def findings(config: StackConfig, planned: HostsPlan, cost: CostEstimate | None) -> tuple[Finding, ...]:
    """All findings of a stack; `cost` as in `common_findings`."""
    own = get_hosts(config)
    if config.engine.has_queue:
        return (
            *common_findings(config, planned.machine, cost, shared=True),
            *site_findings(get_site(config), planned.machine),
            *_slurm(config, planned),
            *_unknown_keys(own),
            *_open_ports(own),
            *_tunnels(config, planned, own),
            *_ssh(own),
            _unenforced_budget("only max_hours of a job ends it"),
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
        *_monitoring(config),
    )


def _slurm(config: StackConfig, planned: HostsPlan) -> Iterable[Finding]:
    own, spec = get_hosts(config), slurm_spec(config, planned)
    if len(own.machines) > 1 and own.shared_dir is None:
        yield Finding.error(
            "storage.not-shared",
            f"{HOSTS}.shared_dir",
            "several machines need a shared file system for jobs and their runs",
            "mount one on every machine, and set its folder: shared_dir: /shared/gangway",
        )
    yield Finding.info(
        "hosts.slurm",
        "gangway:engine",
        f"{own.machines[0].label} is the controller and also a node: while it is down no job starts. Install Slurm "
        "22.05 or later and munge, and give users the same user id on all machines",
        "submit on one of the machines, or over SSH: gangway job submit FILE --on slurm:FOLDER@main",
    )
    if len(own.machines) > 1:
        how = "goes through WireGuard's tunnels" if own.wireguard is not None else "is unencrypted"
        ports = f"{spec.controller_port}, {spec.node_port} and {SRUN_PORTS[0]} to {SRUN_PORTS[1]}"
        yield Finding.info(
            "hosts.ports",
            f"{HOSTS}.machines",
            f"{'only these machines reach' if own.firewall else 'every machine reaches'} ports {ports}; other ports "
            f"are not changed, and traffic between jobs' processes {how}",
            "keep the machines in a separate network",
        )


def _state(config: StackConfig, own: HostsConfig) -> Iterable[Finding]:
    if config.cluster.nodes.max > 1 and own.shared_dir is None:
        yield Finding.error(
            "storage.not-shared",
            f"{HOSTS}.shared_dir",
            "several machines need a shared file system for checkpoints",
            "mount one on every machine, and set its folder: shared_dir: /shared/gangway",
        )
    if own.run_store.startswith("/"):
        whose = "the first machine" if config.trains or config.cluster.nodes.max < 2 else "each machine"
        what = "records are" if config.trains else "the command's folder is, after its end,"
        yield Finding.info(
            "storage.records-in-folder",
            f"{HOSTS}.run_store",
            f"{what} copied to {own.run_store} on {whose}: that folder survives the stack, but not the loss of its "
            "disk",
            "name a bucket (s3://, gs:// or az://) to store them elsewhere",
        )


def _meeting(config: StackConfig, own: HostsConfig) -> Iterable[Finding]:
    """Access to the ports of a command's rendezvous, which listen on all addresses, also outside tunnels."""
    where = "the workers' ports, which firewall leaves open," if own.firewall else "these machines"
    yield from open_rendezvous_findings(config, where, "keep the machines in a separate network")


def _open_ports(own: HostsConfig) -> Iterable[Finding]:
    if own.firewall_sources and not own.firewall:
        yield Finding.warning(
            "network.firewall-sources",
            f"{HOSTS}.firewall_sources",
            "no effect: without firewall every machine reaches the job's ports",
            "set firewall: true, or remove firewall_sources",
        )


def _tunnels(config: StackConfig, planned: HostsPlan, own: HostsConfig) -> Iterable[Finding]:
    if own.wireguard is None:
        return
    place = f"{HOSTS}.wireguard"
    if config.cluster.nodes.max < 2:
        yield Finding.warning("network.no-tunnels", place, "no effect with one machine", "leave it out")
    elif planned.fabric.num_devices:
        yield Finding.error(
            "network.past-tunnels",
            place,
            "RDMA bypasses the tunnels: gradients would be unencrypted",
            "remove it, or remove the machine's fabric: gradients then use TCP through the tunnels",
        )
    elif get_site(config).interface is not None:
        yield Finding.warning(
            "network.interface",
            "gangway:site.interface",
            f"no effect: NCCL and gloo use WireGuard's, {INTERFACE}",
            "leave it out",
        )


def _unknown_keys(own: HostsConfig) -> Iterable[Finding]:
    unknown = [machine.address for machine in own.machines if machine.accept_unknown_host_key]
    if unknown:
        more = f" and {len(unknown) - _MAX_LISTED} more" if len(unknown) > _MAX_LISTED else ""
        yield Finding.warning(
            "hosts.unknown-key",
            f"{HOSTS}.machines",
            f"the SSH server at {', '.join(unknown[:_MAX_LISTED])}{more} is not verified, but receives secrets and "
            "scripts that run as root",
            "copy into host_key what `ssh-keyscan -t ed25519 ADDRESS` prints after the address, on a network you trust",
        )


def _ssh(own: HostsConfig) -> Iterable[Finding]:
    if own.private_key is None:
        yield Finding.info(
            "hosts.agent",
            f"{HOSTS}.private_key",
            "not set: `up` and `destroy` need the key in an SSH agent (SSH_AUTH_SOCK)",
            "without an agent, as in CI, run `pulumi config set --path --secret gangway:hosts.private_key < KEYFILE`",
        )


def _network(config: StackConfig, planned: HostsPlan, own: HostsConfig) -> Iterable[Finding]:
    if config.cluster.nodes.max < 2:
        return
    metrics = metrics_text(config)
    yield Finding.info(
        "hosts.ports",
        f"{HOSTS}.machines",
        f"{'only these machines reach' if own.firewall else 'every machine reaches'} ports {RENDEZVOUS_PORT} and "
        f"{metrics}; other ports are not changed. The job needs port {RENDEZVOUS_PORT} of {own.job_addresses[0]} "
        f"from all, {metrics} of all from there, and all ports between machines for "
        f"{'NCCL' if planned.fabric.num_devices else 'NCCL and the gradients'}; {_describe_encryption(own)}",
        "keep the machines in a separate network",
    )


def _describe_encryption(own: HostsConfig) -> str:
    if own.wireguard is None:
        return "gradients are unencrypted"
    return f"all of it through WireGuard's tunnels, which need UDP port {own.wireguard.port} between machines"


def _unenforced_budget(instead: str) -> Finding:
    return Finding.warning(
        "budget.not-enforced",
        "gangway:budget",
        "there is no bill for these machines: the plan compares the budget with their cost in the stack file, but it "
        "sends no mails and stops nothing",
        instead,
    )


def _monitoring(config: StackConfig) -> Iterable[Finding]:
    scraped = (
        "metrics are in Prometheus on the first machine (`ssh -L 9090:localhost:9090`)"
        if scrapes(config)
        else "there is no Prometheus"
    )
    yield _unenforced_budget("set job.max_hours, which ends the job whatever it costs")
    yield Finding.info(
        "observe.prometheus-only",
        "gangway:observe",
        "no log service and no alarms: logs are in each machine's journal (`journalctl -u gangway-trainer`), "
        f"{scraped}",
    )
