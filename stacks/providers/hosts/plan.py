"""The plan of a stack on existing machines: machine, fabric, price, job, and each machine's script or Slurm part."""

from dataclasses import dataclass

from gangway.components.catalog.schema import MachinePrice, Region
from gangway.components.catalog.site import SiteFabricPlan, SiteMachine, plan_site_fabric
from gangway.components.core.findings import InputError
from gangway.components.core.job import JobSpec, Rendezvous, Volume
from gangway.components.hosts.node_pool import MEMBER_KEY, SIGNING_KEY, check_ladder
from gangway.components.hosts.wireguard import INTERFACE
from gangway.images.hosts import HostSpec, render_host_installer
from gangway.images.render import BIN_DIR
from gangway.images.slurm.conf import SlurmHost, SlurmRung, SlurmSpec
from gangway.images.slurm.hosts import MUNGE_SOCKET, SlurmHostSpec
from gangway.images.specs import TRAINER_UID, Flavour, RdmaSetup, stack_uid
from gangway.stacks.base import shared
from gangway.stacks.base.shared import (
    METRICS_PORT,
    RENDEZVOUS_PORT,
    container_labels,
    get_machine,
    get_price,
    get_region,
    get_site,
    has_exporters,
    job_limit,
    nodes_meet,
    queue_fabric,
    scrapes,
    slurm_machine,
    tag_policy,
)
from gangway.stacks.config.engine_settings import MAIN_QUEUE
from gangway.stacks.config.own_command import RUN_DIR, outputs_in_mounts
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.run_context import training_job
from gangway.stacks.providers.hosts.settings import HostsConfig

OWN_STATE = "/var/lib/gangway"  # the folder of runs on a single machine without shared_dir


@dataclass(frozen=True)
class HostsPlan:
    """The planned stack. `machine`: of all; `price`: per machine-hour; `state_dir`: of runs, on every machine;
    `record_uri`: of uploaded records; `meets`: whether the first machine runs a rendezvous; `member_key`: machines
    authenticate, which torchrun of a custom command does not support.
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
    flavour: Flavour = "cuda"

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
    nodes, there = config.cluster.nodes, len(own.machines)
    if nodes.max != there:
        raise InputError(
            "gangway:cluster.nodes.max",
            f"gangway:hosts.machines has {there}",
            value=nodes.max,
            allowed=f"{there}, the number of machines",
            fix=f"set nodes: {{min: {min(nodes.min, there)}, max: {there}}}, or change the list of machines",
        )


COMMAND_GRACE_SEC = 90  # time for a custom command to shut down; these machines are not preempted


def run_dir(config: StackConfig, planned: HostsPlan) -> str:
    """The run directory, the same on every machine."""
    return f"{planned.run_dirs}/{config.stack}"


def fabric_min_gbps(config: StackConfig, planned: HostsPlan) -> float | None:
    """The minimum bus bandwidth for the job to start; None if there is no fabric to test."""
    return shared.least_bus_gbps(config, planned.machine, planned.fabric.gbps) if planned.fabric.num_devices else None


def job_spec(config: StackConfig, planned: HostsPlan) -> JobSpec:
    """The job of the machines. The first runs the rendezvous; data is mounted read-only."""
    own = get_hosts(config)
    image = config.ready_image or ""
    data = (Volume(source=own.data_dir, target=own.data_dir, read_only=True),) if own.data_dir else ()
    # Only its own run: other stacks may use the same file system.
    state = run_dir(config, planned)
    processes = planned.machine.num_accelerators.value
    meeting = Rendezvous(host=own.job_addresses[0], port=RENDEZVOUS_PORT) if planned.meets else None
    if config.own_command is not None:
        return shared.command_job(
            config,
            config.own_command,
            image,
            run_dir=state,
            state=state,
            accelerators=processes,
            shutdown_timeout_sec=COMMAND_GRACE_SEC,
            at=meeting,
            volumes=data,
            env=planned.fabric.nccl_env if planned.meets else {},
        )
    return training_job(
        config,
        planned.machine,
        planned.region,
        [planned.price],
        image,
        state=state,
        run_dir=state,
        data_dir=own.data_dir or "",
        fabric_min_gbps=fabric_min_gbps(config, planned),
        at=meeting or Rendezvous(standalone=True),
        volumes=data,
        env=planned.fabric.nccl_env,
    )


def installer(config: StackConfig, planned: HostsPlan, job: JobSpec, position: int) -> str:
    """The script of the machine at `position`; the first has the rendezvous store and the record."""
    own, several, first = get_hosts(config), config.cluster.nodes.max > 1, position == 0
    # A command has no known metrics, and its results are uploaded at its end.
    keeps = first and config.trains
    spec = HostSpec(
        stack=config.stack,
        job=job,
        image_registry=job.image.partition("/")[0],
        bucket_uri=planned.record_uri,
        run_dir=run_dir(config, planned),
        max_hours=config.work.max_hours,
        limit=job_limit(config),
        # A command on one machine does not use RDMA.
        fabric=find_rdma(planned) if config.trains or planned.meets else None,
        shared_dir=own.shared_dir if several else None,
        container_engine=own.container_engine,
        labels=container_labels(config, planned.labels),
        port=RENDEZVOUS_PORT if planned.meets and first else None,
        member_key=MEMBER_KEY if planned.member_key else None,
        signing_key=SIGNING_KEY,
        prometheus_image=config.head.prometheus_image if first and scrapes(config) else None,
        hardware_metrics=has_exporters(config),
        workers=own.job_addresses if first else (),
        metrics_port=METRICS_PORT,
        allowed=(*own.job_addresses, *own.firewall_sources) if own.firewall else None,
        wireguard=INTERFACE if own.wireguard and several else None,
        keeps_record=keeps,
        # A unique user, as other stacks' jobs may write to the same folder.
        uid=stack_uid(config.stack) if own.shared_dir is not None else TRAINER_UID,
    )
    return render_host_installer(spec)


def find_rdma(planned: HostsPlan) -> RdmaSetup | None:
    """The fabric that a machine checks, if any."""
    fabric = planned.fabric
    if not fabric.num_devices:
        return None
    return RdmaSetup(
        link_layer="InfiniBand" if fabric.link_layer == "InfiniBand" else "Ethernet",
        num_devices=fabric.num_devices,
        gbps_each=fabric.gbps_each,
        hcas=fabric.hcas,
        devices=fabric.devices,
    )


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
