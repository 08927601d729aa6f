"""What a StackConfig means on OpenStack, before any resource exists: machine, fabric, addresses, share, disks, tags,
and the job.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address

from components.catalog.schema import Region
from components.catalog.site import SiteFabricPlan, SiteMachine, plan_site_fabric
from components.core.findings import InputError
from components.core.job import JobSpec, Rendezvous
from components.openstack.capacity import check_flavour, check_ladder
from components.openstack.launch import plan_boot_source
from components.openstack.network import NetworkPlan, check_services, plan_network
from components.openstack.storage import check_share
from stacks.base import shared
from stacks.base.command_nodes import nodes_meet
from stacks.base.shared import RENDEZVOUS_PORT, get_machine, get_price, get_region, get_site, tag_policy
from stacks.config.stack_config import StackConfig
from stacks.estimates.run_context import cloud_context
from stacks.providers.openstack.settings import OpenstackConfig

_PLACE = "gangway:openstack"
MOUNT = "/shared"


@dataclass(frozen=True)
class OpenstackPlan:
    """What the configuration means on OpenStack.

    Attributes:
        machine: of the nodes, as the stack file states it; its name is the flavour's.
        num_machines: of them.
        fabric: adapters for RDMA, and what the job is told of them.
        rdma_ports: of a node, that `up` makes.
        region: with its grid.
        zone: of everything; empty where OpenStack chooses.
        network: who has which address.
        boot_volume_gib: of a node; None for the flavour's own disk.
        head: whether there is a head node: where several nodes have to meet.
        member_key: whether they know each other by a key there; torchrun's of a command know none.
        tags: of every resource.
    """

    machine: SiteMachine
    num_machines: int
    fabric: SiteFabricPlan
    rdma_ports: int
    region: Region
    zone: str
    network: NetworkPlan
    boot_volume_gib: int | None
    head: bool
    member_key: bool
    tags: dict[str, str]


def get_section(config: StackConfig) -> OpenstackConfig:
    """The provider's own section."""
    return config.section(OpenstackConfig)


def plan(config: StackConfig) -> OpenstackPlan:
    """Looks everything up and checks it, without declaring a resource. InputError: a rung, a range, a share or an
    image that OpenStack would refuse; a setting that is missing or that nothing would read; a wrong tag.
    """
    own, cluster, meets = get_section(config), config.cluster, nodes_meet(config)
    check_ladder(cluster.capacity)
    check_flavour(cluster.capacity, cluster.machine_type or "")
    machine, region = get_machine(config), get_region(config)
    network = plan_network(config.network.cidr)
    check_services(config.network.egress, list(own.service_cidrs))
    _check_nameservers(own)
    for mistake in (*_missing(config), *_idle(config)):
        raise mistake
    if config.storage is not None:
        check_share(config.storage.capacity_gib, own.share_protocol, share_network=own.share_network)
    volume = cluster.root_volume_gib if own.boot == "volume" else None
    plan_boot_source(own.image, volume, own.volume_type, f"{_PLACE}.image")
    plan_boot_source(own.head_image or own.image, volume, own.volume_type, f"{_PLACE}.head_image")
    fabric = plan_site_fabric(machine.site_fabric, get_site(config).interface)
    return OpenstackPlan(
        machine=machine,
        num_machines=cluster.nodes.max,
        fabric=fabric,
        rdma_ports=fabric.num_devices if own.rdma_network_id else 0,
        region=region,
        zone=cluster.zone or "",
        network=network,
        boot_volume_gib=volume,
        head=meets,
        member_key=config.trains and meets,
        tags=tag_policy(config, machine, region).openstack(),
    )


def _check_nameservers(own: OpenstackConfig) -> None:
    for index, server in enumerate(own.dns_nameservers):
        try:
            IPv4Address(server)
        except ValueError as error:
            raise InputError(
                f"{_PLACE}.dns_nameservers[{index}]",
                str(error),
                value=server,
                allowed="an IPv4 address",
                fix="write the address of a name server that the machines reach",
            ) from None


def _missing(config: StackConfig) -> Iterator[InputError]:
    """What no default can stand in for in a cloud that nobody here knows."""
    if config.cluster.machine_type is None:
        yield InputError(
            "gangway:cluster.machine_type",
            "missing: instances are made of a flavour",
            allowed="the name of a flavour of this cloud; gangway:site says what is in it",
            fix="write machine_type in place of accelerator, as `openstack flavor list` shows it, and gangway:site: "
            f"{{accelerator: {config.cluster.accelerator}}}",
        )
    if nodes_meet(config) and config.head.machine_type is None:
        yield InputError(
            "gangway:head.machine_type",
            "missing: several nodes meet at a head node",
            allowed="the name of a small flavour of this cloud, of 2 GiB and more",
            fix="add one, as `openstack flavor list` shows it",
        )
    if config.encryption == "customer-key":
        yield InputError(
            "gangway:encryption",
            "OpenStack lets a project's member set up no key for volumes: an administrator makes a volume type of it",
            value=config.encryption,
            allowed="provider-key",
            fix="leave encryption out, and write gangway:openstack: {boot: volume, volume_type: ...}, a type that "
            "`openstack volume type list --encryption-type` shows as encrypted",
        )


def _idle(config: StackConfig) -> Iterator[InputError]:
    """Settings that are written and that nothing of this stack reads."""
    own, site = get_section(config), get_site(config)
    volume, share, meets = own.boot == "volume", config.storage is not None, nodes_meet(config)
    sr_iov = own.rdma_network_id is not None
    # Config path: whether something reads it, whether it is written, and what it needs beside it.
    read = {
        "gangway:cluster.root_volume_gib": (
            volume,
            "root_volume_gib" in config.cluster.model_fields_set,
            "gangway:openstack.boot: volume; else the flavour has its disk",
        ),
        f"{_PLACE}.volume_type": (volume, own.volume_type is not None, f"{_PLACE}.boot: volume"),
        f"{_PLACE}.share_type": (share, own.share_type is not None, "gangway:storage"),
        f"{_PLACE}.share_network": (share, own.share_network, "gangway:storage"),
        f"{_PLACE}.share_protocol": (share, "share_protocol" in own.model_fields_set, "gangway:storage"),
        f"{_PLACE}.data_dir": (share, own.data_dir is not None, "gangway:storage"),
        f"{_PLACE}.head_image": (meets, own.head_image is not None, "several nodes that meet"),
        "gangway:head.machine_type": (meets, config.head.machine_type is not None, "several nodes that meet"),
        f"{_PLACE}.rdma_network_id": (site.fabric.kind != "none", sr_iov, "gangway:site.fabric"),
        f"{_PLACE}.rdma_vnic_type": (sr_iov, "rdma_vnic_type" in own.model_fields_set, f"{_PLACE}.rdma_network_id"),
    }
    for path, (is_read, is_written, beside) in read.items():
        if is_written and not is_read:
            name = path.rpartition(".")[2]
            yield InputError(
                path, f"of no effect without {beside}", allowed=f"only with {beside}", fix=f"remove {name}"
            )


def job_spec(config: StackConfig, planned: OpenstackPlan, image: str) -> JobSpec:
    """The job the nodes run. State lives on the share, so that any node can take it up again.

    Workers meet at the head's address: it is fixed, and not every cloud gives instances names.
    """
    head = Rendezvous(host=planned.network.head, port=RENDEZVOUS_PORT)
    if config.own_command is not None:
        return shared.command_job_on(
            planned.machine, config, config.own_command, image, MOUNT, at=head, env=planned.fabric.nccl_env
        )
    prices = [get_price(config, planned.machine)]
    context = cloud_context(config, planned.machine, planned.region, prices, image.rpartition("@")[2])
    training = shared.get_training(
        config,
        run_dir=run_dir(config),
        data_dir=data_dir(config) or "",
        fabric_min_gbps=fabric_min_gbps(config, planned),
    )
    return shared.get_job(
        config,
        image,
        context,
        training,
        state=shared.state_root(config, MOUNT),
        processes_per_node=planned.machine.num_accelerators.value,
        at=head if planned.head else Rendezvous(standalone=True),
        env=planned.fabric.nccl_env,
    )


def data_dir(config: StackConfig) -> str | None:
    """Where what the job trains on is on a node; None where the trainer brings it."""
    folder = get_section(config).data_dir
    return None if folder is None else f"{MOUNT}/{folder}"


def fabric_min_gbps(config: StackConfig, planned: OpenstackPlan) -> float | None:
    """The bus bandwidth below which the job does not start; None where there is nothing to test."""
    return shared.least_bus_gbps(config, planned.machine, planned.fabric.gbps) if planned.fabric.num_devices else None


def run_dir(config: StackConfig) -> str:
    """The run's directory, the same on every node."""
    return shared.run_dir(config, MOUNT)
