"""The job of a stack on existing machines, and each machine's script, which installs and removes it."""

from gangway.components.core.job import JobSpec, Rendezvous, Volume
from gangway.components.hosts.node_pool import MEMBER_KEY, SIGNING_KEY
from gangway.components.hosts.wireguard import INTERFACE
from gangway.images.hosts import HostSpec, render_host_installer
from gangway.images.specs import TRAINER_UID, RdmaSetup, stack_uid
from gangway.stacks.base import shared
from gangway.stacks.base.shared import METRICS_PORT, RENDEZVOUS_PORT, container_labels
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.run_context import cloud_context
from gangway.stacks.providers.hosts.plan import HostsPlan, get_hosts

COMMAND_GRACE_SEC = 90
"""Time for a custom command to shut down; these machines are not preempted."""


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
    context = cloud_context(config, planned.machine, planned.region, [planned.price], image.rpartition("@")[2])
    training = shared.get_training(
        config,
        run_dir=state,
        data_dir=own.data_dir or "",
        fabric_min_gbps=fabric_min_gbps(config, planned),
    )
    return shared.get_job(
        config,
        image,
        context,
        training,
        state=state,
        processes_per_node=processes,
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
        # A command on one machine does not use RDMA.
        fabric=find_rdma(planned) if config.trains or planned.meets else None,
        shared_dir=own.shared_dir if several else None,
        container_engine=own.container_engine,
        labels=container_labels(config, planned.labels),
        port=RENDEZVOUS_PORT if planned.meets and first else None,
        member_key=MEMBER_KEY if planned.member_key else None,
        signing_key=SIGNING_KEY,
        prometheus_image=config.head.prometheus_image if keeps else None,
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
