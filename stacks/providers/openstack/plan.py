"""The plan of a stack on OpenStack, before any resource exists: machine, fabric, addresses, share, disks, tags, job."""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address

from gangway.components.catalog.schema import Region
from gangway.components.catalog.site import SiteFabricPlan, SiteMachine, plan_site_fabric
from gangway.components.core.findings import InputError
from gangway.components.core.job import JobSpec, Rendezvous
from gangway.components.openstack.capacity import check_flavour, check_ladder
from gangway.components.openstack.launch import plan_boot_source
from gangway.components.openstack.network import NetworkPlan, check_services, plan_addresses, plan_network
from gangway.components.openstack.storage import check_share
from gangway.images.specs import Flavour
from gangway.stacks.base import shared
from gangway.stacks.base.shared import (
    RENDEZVOUS_PORT,
    get_machine,
    get_price,
    get_region,
    get_site,
    nodes_meet,
    tag_policy,
)
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.run_context import training_job
from gangway.stacks.providers.openstack.settings import OpenstackConfig

_PLACE = "gangway:openstack"
MOUNT = "/shared"


@dataclass(frozen=True)
class OpenstackPlan:
    """The planned stack. `machine`: its name is the flavour's; `rdma_ports`: SR-IOV ports per node that `up` creates;
    `zone`: empty if OpenStack chooses; `boot_volume_gib`: None for the flavour's disk; `head`: for the rendezvous of
    several nodes; `member_key`: nodes authenticate, which torchrun of a custom command does not support.
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
    flavour: Flavour = "cuda"


def get_section(config: StackConfig) -> OpenstackConfig:
    """The section gangway:openstack."""
    return config.section(OpenstackConfig)


def plan(config: StackConfig) -> OpenstackPlan:
    """Plan and check the stack without a resource. InputError: a setting is missing, without effect or refused."""
    own, cluster, meets = get_section(config), config.cluster, nodes_meet(config)
    check_ladder(cluster.capacity)
    check_flavour(cluster.capacity, cluster.machine_type or "")
    machine, region = get_machine(config), get_region(config)
    machine_cidr = own.existing.machine_cidr
    if machine_cidr is None:
        network = plan_network(config.network.cidr)
    else:
        network = plan_addresses(machine_cidr, cluster.nodes.max, f"{_PLACE}.existing.machine_cidr")
    check_services(config.network.egress, list(own.service_cidrs))
    _check_nameservers(own)
    for mistake in (*_missing_settings(config), *_unused_settings(config)):
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
                fix="write the address of a DNS server that the machines reach",
            ) from None


def _missing_settings(config: StackConfig) -> Iterator[InputError]:
    """Settings without a default that fits every private cloud."""
    if config.cluster.machine_type is None:
        yield InputError(
            "gangway:cluster.machine_type",
            "missing: instances need a flavour",
            allowed="the name of a flavour of this cloud; gangway:site describes its hardware",
            fix=(
                "replace accelerator by machine_type, from `openstack flavor list`, and add gangway:site: "
                f"{{accelerator: {config.cluster.accelerator}}}"
            ),
        )
    if nodes_meet(config) and config.head.machine_type is None:
        yield InputError(
            "gangway:head.machine_type",
            "missing: several nodes need a head node",
            allowed="the name of a small flavour of this cloud with at least 2 GiB",
            fix="add one from `openstack flavor list`",
        )
    if config.encryption == "customer-key":
        yield InputError(
            "gangway:encryption",
            "only an OpenStack administrator can set up volume encryption, as a volume type",
            value=config.encryption,
            allowed="provider-key",
            fix=(
                "remove encryption, and add gangway:openstack: {boot: volume, volume_type: ...} with an encrypted "
                "type from `openstack volume type list --encryption-type`"
            ),
        )


def _unused_settings(config: StackConfig) -> Iterator[InputError]:
    own, site = get_section(config), get_site(config)
    volume, share, meets = own.boot == "volume", config.storage is not None, nodes_meet(config)
    sr_iov = own.rdma_network_id is not None
    # Config path: whether it is read, whether it is written, and what it requires.
    read = {
        "gangway:cluster.root_volume_gib": (
            volume,
            "root_volume_gib" in config.cluster.model_fields_set,
            "gangway:openstack.boot: volume, as flavours have a disk of a fixed size",
        ),
        f"{_PLACE}.volume_type": (volume, own.volume_type is not None, f"{_PLACE}.boot: volume"),
        f"{_PLACE}.share_type": (share, own.share_type is not None, "gangway:storage"),
        f"{_PLACE}.share_network": (share, own.share_network, "gangway:storage"),
        f"{_PLACE}.share_protocol": (share, "share_protocol" in own.model_fields_set, "gangway:storage"),
        f"{_PLACE}.data_dir": (share, own.data_dir is not None, "gangway:storage"),
        f"{_PLACE}.head_image": (meets, own.head_image is not None, "a rendezvous of several nodes"),
        "gangway:head.machine_type": (meets, config.head.machine_type is not None, "a rendezvous of several nodes"),
        f"{_PLACE}.rdma_network_id": (site.fabric.kind != "none", sr_iov, "gangway:site.fabric"),
        f"{_PLACE}.rdma_vnic_type": (sr_iov, "rdma_vnic_type" in own.model_fields_set, f"{_PLACE}.rdma_network_id"),
    }
    for path, (is_read, is_written, beside) in read.items():
        if is_written and not is_read:
            name = path.rpartition(".")[2]
            yield InputError(path, f"no effect without {beside}", allowed=f"only with {beside}", fix=f"remove {name}")


def job_spec(config: StackConfig, planned: OpenstackPlan, image: str) -> JobSpec:
    """The job of the nodes. Its state is on the share, so that any node can resume it. The rendezvous is at the head's
    fixed address: not every cloud has names.
    """
    head = Rendezvous(host=planned.network.head, port=RENDEZVOUS_PORT)
    if config.own_command is not None:
        return shared.command_job_on(
            planned.machine, config, config.own_command, image, MOUNT, at=head, env=planned.fabric.nccl_env
        )
    return training_job(
        config,
        planned.machine,
        planned.region,
        [get_price(config, planned.machine)],
        image,
        state=shared.state_root(config, MOUNT),
        run_dir=shared.run_dir(config, MOUNT),
        data_dir=data_dir(config) or "",
        fabric_min_gbps=fabric_min_gbps(config, planned),
        at=head if planned.head else Rendezvous(standalone=True),
        env=planned.fabric.nccl_env,
    )


def data_dir(config: StackConfig) -> str | None:
    """The folder of the training data on a node; None if the trainer provides the data."""
    folder = get_section(config).data_dir
    return None if folder is None else f"{MOUNT}/{folder}"


def fabric_min_gbps(config: StackConfig, planned: OpenstackPlan) -> float | None:
    """The minimum bus bandwidth for the job to start; None if there is no fabric to test."""
    return shared.least_bus_gbps(config, planned.machine, planned.fabric.gbps) if planned.fabric.num_devices else None
