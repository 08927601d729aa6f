"""The plan of a stack on existing machines: machine, fabric, price and folders of runs."""

from dataclasses import dataclass

from gangway.components.catalog.schema import MachinePrice, Region
from gangway.components.catalog.site import SiteFabricPlan, SiteMachine, plan_site_fabric
from gangway.components.core.findings import InputError
from gangway.components.hosts.node_pool import check_ladder
from gangway.components.hosts.wireguard import INTERFACE
from gangway.stacks.base.command_nodes import nodes_meet
from gangway.stacks.base.shared import get_machine, get_price, get_region, get_site, tag_policy
from gangway.stacks.config.own_command import RUN_DIR, outputs_in_mounts
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.hosts.settings import HostsConfig

OWN_STATE = "/var/lib/gangway"
"""The folder of runs on a single machine without shared_dir."""


@dataclass(frozen=True)
class HostsPlan:
    """The planned stack.

    Attributes:
        machine: type of all machines.
        num_machines: number of machines.
        fabric: fabric of a machine, and NCCL's settings.
        region: the site, with its grid.
        price: price of a machine per hour.
        state_dir: folder of runs, on every machine.
        record_uri: folder of uploaded records.
        labels: labels of the trainer's container.
        meets: whether the first machine runs a rendezvous.
        member_key: whether machines authenticate with a key; torchrun of a custom command does not support it.
    """

    machine: SiteMachine
    num_machines: int
    fabric: SiteFabricPlan
    region: Region
    price: MachinePrice
    state_dir: str
    record_uri: str
    labels: dict[str, str]
    meets: bool
    member_key: bool

    @property
    def run_dirs(self) -> str:
        """The folder of all runs."""
        return f"{self.state_dir}/runs"


def plan(config: StackConfig) -> HostsPlan:
    """Plans and checks the stack without declaring a resource. InputError: an accelerator of unknown power draw, an
    unsupported rung, a wrong number of nodes, a wrong tag.
    """
    own = get_hosts(config)
    machine = get_machine(config)
    check_ladder(config.cluster.capacity)
    _check_number(config, own)
    _check_outputs(config, own)
    region = get_region(config)
    return HostsPlan(
        machine=machine,
        num_machines=len(own.machines),
        fabric=plan_site_fabric(machine.site_fabric, INTERFACE if own.wireguard else get_site(config).interface),
        region=region,
        price=get_price(config, machine),
        state_dir=own.shared_dir or OWN_STATE,
        record_uri=f"{own.run_store.rstrip('/')}/{config.stack}",
        labels=tag_policy(config, machine, region).hosts(),
        meets=nodes_meet(config),
        member_key=config.trains and nodes_meet(config),
    )


def get_hosts(config: StackConfig) -> HostsConfig:
    """The section gangway:hosts."""
    return config.section(HostsConfig)


def _check_outputs(config: StackConfig, own: HostsConfig) -> None:
    """InputError: an output inside a folder that the machine mounts, or around one."""
    outputs = config.own_command.outputs if config.own_command else ()
    for folder, mount in outputs_in_mounts(outputs, filter(None, (own.shared_dir, own.data_dir))):
        raise InputError(
            "gangway:job.outputs",
            f"the machine mounts {mount} in the container",
            value=folder,
            allowed=f"a folder outside {mount}",
            fix=f"write to ${RUN_DIR}, or to another folder such as /work/results",
        )


def _check_number(config: StackConfig, own: HostsConfig) -> None:
    """InputError: more machines than nodes, or fewer."""
    nodes, there = config.cluster.nodes, len(own.machines)
    if nodes.max != there:
        raise InputError(
            "gangway:cluster.nodes.max",
            f"gangway:hosts.machines has {there}",
            value=nodes.max,
            allowed=f"{there}, the number of machines",
            fix=f"set nodes: {{min: {min(nodes.min, there)}, max: {there}}}, or change the list of machines",
        )
