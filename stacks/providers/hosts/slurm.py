"""A Slurm cluster on existing machines: the first is the controller, and all are nodes."""

from collections.abc import Iterable, Mapping
from typing import Any

import pulumi

from gangway.components.core.findings import Finding
from gangway.components.core.munge_key import munge_key
from gangway.components.hosts.node_pool import MUNGE_KEY, HostArgs, HostPool
from gangway.components.hosts.wireguard import INTERFACE
from gangway.images.render import BIN_DIR
from gangway.images.slurm.conf import SRUN_PORTS, SlurmHost, SlurmRung, SlurmSpec
from gangway.images.slurm.hosts import MUNGE_SOCKET, SlurmHostSpec
from gangway.stacks.base.shared import queue_fabric, slurm_machine
from gangway.stacks.config.engine_settings import MAIN_QUEUE
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.hosts.plan import HostsPlan, find_rdma, get_hosts
from gangway.stacks.providers.hosts.settings import HostsConfig

HOSTS = "gangway:hosts"


def slurm_spec(config: StackConfig, planned: HostsPlan) -> SlurmSpec:
    """The cluster, with one partition of all machines."""
    own = get_hosts(config)
    hosts = tuple(
        SlurmHost(machine.label, address) for machine, address in zip(own.machines, own.job_addresses, strict=True)
    )
    return SlurmSpec(
        cluster=config.stack,
        # Newer releases read it too; the machine refuses older ones.
        release="22.05",
        head_host=hosts[0].address,
        head_name=hosts[0].name,
        machine=slurm_machine(planned.machine, planned.fabric.link_layer if planned.fabric.num_devices else None),
        rungs=(SlurmRung(MAIN_QUEUE, "on-demand", len(hosts), hosts),),
        nodes_up=len(hosts),
        bin_dir=BIN_DIR,
        munge_socket=MUNGE_SOCKET,
    )


def machine_spec(config: StackConfig, planned: HostsPlan, position: int) -> SlurmHostSpec:
    """The settings of the machine at `position`."""
    own, several = get_hosts(config), config.cluster.nodes.max > 1
    return SlurmHostSpec(
        stack=config.stack,
        slurm=slurm_spec(config, planned),
        node=own.machines[position].label,
        is_head=position == 0,
        fabric=find_rdma(planned),
        allowed=(*own.job_addresses, *own.firewall_sources) if own.firewall else None,
        wireguard=INTERFACE if own.wireguard and several else None,
        job_fabric=queue_fabric(config, planned.machine, planned.fabric.nccl_env, planned.fabric.gbps),
    )


def slurm_pool(
    config: StackConfig, machines: list[HostArgs], opts: pulumi.ResourceOptions
) -> Mapping[str, pulumi.Input[Any]]:
    """Declares the machines and returns what the stack exports."""
    own = get_hosts(config)
    keys: dict[str, pulumi.Input[str]] = {MUNGE_KEY: munge_key(config.stack)}
    pool = HostPool(config.stack, {"machines": machines, "private_key": own.private_key, "keys": keys}, opts)
    return {
        "group_names": pool.host_names,
        "host_addresses": pool.addresses,
        "mount_point": own.shared_dir,
        "run_bucket": own.run_store,
        "run_bucket_url": own.run_store,
        "submit_on": f"slurm:{own.shared_dir or '/shared'}/jobs@{MAIN_QUEUE}",
    }


def slurm_findings(config: StackConfig, planned: HostsPlan) -> Iterable[Finding]:
    """Findings about the cluster."""
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
        ports = f"{spec.controller_port}, {spec.node_port} and {SRUN_PORTS[0]} to {SRUN_PORTS[1]}"
        yield Finding.info(
            "hosts.ports",
            f"{HOSTS}.machines",
            f"{'only these machines reach' if own.firewall else 'every machine reaches'} ports {ports}; other ports "
            f"are not changed, and traffic between jobs' processes {_describe_encryption(own)}",
            "keep the machines in a separate network",
        )


def _describe_encryption(own: HostsConfig) -> str:
    return "goes through WireGuard's tunnels" if own.wireguard is not None else "is unencrypted"
