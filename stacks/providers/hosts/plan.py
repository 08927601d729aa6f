"""What a StackConfig means on machines that are there already: the machine, its fabric, its price, where runs are."""

from dataclasses import dataclass

from components.catalog.schema import MachinePrice, Region
from components.catalog.site import SiteFabricPlan, SiteMachine, plan_site_fabric
from components.core.findings import InputError
from components.hosts.node_pool import check_ladder
from components.hosts.wireguard import INTERFACE
from stacks.base.command_nodes import nodes_meet
from stacks.base.shared import get_machine, get_price, get_region, get_site, tag_policy
from stacks.config.own_command import RUN_DIR, outputs_in_mounts
from stacks.config.stack_config import StackConfig
from stacks.providers.hosts.settings import HostsConfig

OWN_STATE = "/var/lib/gangway"
"""Where runs are on a machine that trains alone, and has no folder named."""


@dataclass(frozen=True)
class HostsPlan:
    """What the configuration means.

    Attributes:
        machine: each of them.
        num_machines: how many there are.
        fabric: what a machine must have, and the job be told.
        region: the place, with its grid.
        price: of an hour of a machine.
        state_dir: the folder that runs are in, on every machine.
        record_uri: below it records are put.
        labels: of the trainer's container.
        meets: whether the machines meet, at the first of them.
        member_key: whether they know each other by a key there; torchrun's of a command know none.
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
    """Looks everything up and checks it, without declaring a resource. InputError: an accelerator nobody knows the
    draw of, a rung there is not, a wrong number of nodes, a wrong tag.
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
    """The provider's own section."""
    return config.section(HostsConfig)


def _check_outputs(config: StackConfig, own: HostsConfig) -> None:
    """No output in which a folder of the machine's is mounted, or that is in one."""
    outputs = config.own_command.outputs if config.own_command else ()
    for folder, mount in outputs_in_mounts(outputs, filter(None, (own.shared_dir, own.data_dir))):
        raise InputError(
            "gangway:job.outputs",
            f"the machine mounts {mount} in the container",
            value=folder,
            allowed=f"a folder apart from {mount}",
            fix=f"write to ${RUN_DIR}, or to another folder such as /work/results",
        )


def _check_number(config: StackConfig, own: HostsConfig) -> None:
    """As many nodes as there are machines: one that is named and gets nothing would be a mistake nobody sees."""
    nodes, there = config.cluster.nodes, len(own.machines)
    if nodes.max != there:
        raise InputError(
            "gangway:cluster.nodes.max",
            f"gangway:hosts.machines names {there}",
            value=nodes.max,
            allowed=f"{there}: every machine that is named trains",
            fix=f"set nodes: {{min: {min(nodes.min, there)}, max: {there}}}, or change the list of machines",
        )
