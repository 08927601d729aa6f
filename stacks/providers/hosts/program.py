"""The resources of a stack on existing machines. `plan` checks what can be checked before a resource is declared."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pulumi
import pulumi_command as command

from gangway.components.core.keys import member_key, munge_key, signing_key
from gangway.components.estimate.cost import CostComponent, Declared, from_fact
from gangway.components.hosts.node_pool import MEMBER_KEY, MUNGE_KEY, SIGNING_KEY, HostArgs, HostPool
from gangway.components.hosts.wireguard import WIREGUARD_FILE, Peer, config_text, private_key
from gangway.images.slurm.hosts import render_slurm_host_installer
from gangway.stacks.base.kept import keep_job, keep_text
from gangway.stacks.base.shared import get_machine, get_price
from gangway.stacks.config.engine_settings import MAIN_QUEUE
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.hosts.findings import findings
from gangway.stacks.providers.hosts.plan import HostsPlan, get_hosts, installer, job_spec, machine_spec, plan
from gangway.stacks.providers.hosts.settings import HostsConfig

__all__ = ["HostsPlan", "build", "findings", "plan", "price"]


def price(config: StackConfig, resources: Sequence[Declared]) -> list[CostComponent]:
    """The cost of the machines, from the stack file."""
    machine, num = get_machine(config), len(get_hosts(config).machines)
    price_fact = get_price(config, machine).on_demand
    return [from_fact(f"{config.stack}-0-on-demand: {num} x {machine.name}", price_fact, num)]


def build(config: StackConfig, planned: HostsPlan) -> Mapping[str, pulumi.Input[Any]]:
    """Declares the stack's resources and returns what it exports."""
    own, several = get_hosts(config), config.cluster.nodes.max > 1
    provider = command.Provider(config.stack)
    if config.engine.has_queue:
        made = [
            pulumi.Output.from_input(render_slurm_host_installer(machine_spec(config, planned, at)))
            for at in range(len(own.machines))
        ]
    else:
        job = keep_job(config, job_spec(config, planned))
        made = [job.apply(partial(installer, config, planned, position=at)) for at in range(len(own.machines))]
    machines = [_machine(own, keep_text(config, own.machines[at].label, script), at) for at, script in enumerate(made)]
    if own.wireguard is not None and several:
        machines = _add_wireguard(config.stack, own, own.wireguard.port, machines)
    opts = pulumi.ResourceOptions(providers={"command": provider})
    if config.engine.has_queue:
        return _slurm_pool(config, machines, opts)
    # The only component: everything else exists.
    signing = signing_key(config.stack)
    keys: dict[str, pulumi.Input[str]] = {SIGNING_KEY: signing.pem}
    if planned.member_key:
        keys[MEMBER_KEY] = member_key(config.stack, config.work.member_key_refresh)
    pool = HostPool(config.stack, {"machines": machines, "private_key": own.private_key, "keys": keys}, opts)
    return {
        "job": job.apply(lambda spec: spec.model_dump(mode="json")),
        "image": job.apply(lambda spec: spec.image),
        "run_bucket": own.run_store,
        "run_bucket_url": own.run_store,
        "group_names": pool.host_names,
        "host_addresses": pool.addresses,
        "mount_point": own.shared_dir,
        "signing_public_key": signing.public,
    }


def _add_wireguard(stack: str, own: HostsConfig, port: int, machines: Sequence[HostArgs]) -> list[HostArgs]:
    addresses = zip(own.machines, own.job_addresses, strict=True)
    peers = [Peer(machine.label, machine.reached_at, address) for machine, address in addresses]
    keys = pulumi.Output.all(**{peer.name: private_key(stack, peer.name) for peer in peers})

    def config_file(name: str) -> pulumi.Output[str]:
        return keys.apply(lambda known: config_text(peers, known, name, port))

    return [{**machine, "keys": {WIREGUARD_FILE: config_file(machine["name"])}} for machine in machines]


def _machine(own: HostsConfig, script: pulumi.Output[str], position: int) -> HostArgs:
    machine = own.machines[position]
    return {
        "name": machine.label,
        "address": machine.address,
        "port": machine.port,
        "user": machine.user or own.user,
        "host_key": machine.host_key,
        "installer": script,
    }


def _slurm_pool(
    config: StackConfig, machines: list[HostArgs], opts: pulumi.ResourceOptions
) -> Mapping[str, pulumi.Input[Any]]:
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
