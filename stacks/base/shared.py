"""Parts of a plan that are the same for all providers: head node, zone, tags, job, connections, a site's machine."""

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from gangway.components.catalog.loader import Catalog, Provider, load_provider
from gangway.components.catalog.schema import MachinePrice, MachineType, Region
from gangway.components.catalog.site import SiteConfig, SiteMachine, site_machine, site_price, site_region
from gangway.components.core.fields import Egress
from gangway.components.core.findings import Finding, InputError
from gangway.components.core.job import JobSpec, OwnCommand, Rendezvous, Training, Volume, fabric_variables
from gangway.components.core.limits import HeadPortsArgs, metrics_ports
from gangway.components.core.tags import TagPolicy, carbon_class
from gangway.images.shell import OWN_NOTICES
from gangway.images.slurm.conf import SlurmMachine
from gangway.images.specs import EXPORTER_PORTS, Breaker, IdleStop, JobLimit, ended_object
from gangway.stacks.base.registry import get_provider
from gangway.stacks.config.job_settings import effective_config
from gangway.stacks.config.own_command import command_variables, output_folder
from gangway.stacks.config.sections import CommandConfig
from gangway.stacks.config.stack_config import StackConfig, image_signature
from gangway.trainer.core.host import BUSY_VARIABLE

RENDEZVOUS_PORT = 29400
METRICS_PORT = 9400
PCIE_BUS_GBPS = 80.0
"""Required bandwidth of GPUs that are connected over PCIe only: 10 GB/s. Eight of them reached 28 GB/s inside one
machine with PCIe 5 (github.com/NVIDIA/nccl, issue 1639), independent of the network between machines.
"""


def get_site(config: StackConfig) -> SiteConfig:
    """The section of the site, which the loader requires."""
    assert config.site is not None, "checked by gangway.stacks.loading.unsupported_settings"
    return config.site


def get_machine(config: StackConfig) -> SiteMachine:
    """One machine of the site. InputError: the accelerator's power is unknown."""
    site, cluster = get_site(config), config.cluster
    accelerator = site.accelerator or cluster.accelerator
    assert accelerator is not None, "checked by gangway.stacks.loading.unsupported_settings"
    return site_machine(site, config.provider, accelerator, cluster.machine_type or "")


def get_region(config: StackConfig) -> Region:
    """The site as a region, with its grid and data centre."""
    return site_region(get_site(config), config.provider, config.region)


def get_price(config: StackConfig, machine: SiteMachine) -> MachinePrice:
    """The owner's price of a machine hour, if the stack file has it."""
    return site_price(get_site(config), machine, config.region)


def find_machine(config: StackConfig, catalog: Catalog, unfit: Mapping[str, str] = MappingProxyType({})) -> MachineType:
    """The type of the nodes, by its name or accelerator. `unfit`: types to avoid, with the reason. InputError: none."""
    cluster = config.cluster
    if cluster.machine_type is not None:
        return catalog.machine(cluster.machine_type, "gangway:cluster.machine_type")
    assert cluster.accelerator is not None, "StackConfig requires one of the two"
    place = "gangway:cluster.accelerator"
    return catalog.machine_for(cluster.accelerator, config.provider, place, config.region, unfit)


def check_head(provider: Provider, machine_type: str) -> None:
    """InputError: the head node's type, and with it its price, is not in the catalogue."""
    services = load_provider(provider).get_services(provider)
    known = sorted(name.removeprefix("instance-") for name in services if name.startswith("instance-"))
    if machine_type not in known:
        raise InputError.not_among(
            "gangway:head.machine_type", "not a machine type that Gangway knows for a head node", machine_type, known
        )


def named_zone(zone: str, zones: Sequence[str], region: str) -> str:
    """The cluster's `zone` in the stack file. InputError: the region does not have it."""
    if zone in zones:
        return zone
    first = repr(zones[0]) if zones and zones[0].isdigit() else next(iter(zones), "")  # YAML reads digits as a number
    raise InputError(
        "gangway:cluster.zone",
        f"no such zone in {region}",
        value=zone,
        allowed=", ".join(zones) or "none: it has no zones",
        fix=f"set zone: {first}, or leave it out" if zones else "leave zone out",
    )


def tag_policy(config: StackConfig, machine: MachineType, region: Region) -> TagPolicy:
    """The tags of all resources, before the provider adapts their characters."""
    return TagPolicy(
        stack=config.stack,
        team=config.tags["team"],
        cost_center=config.tags["cost_center"],
        run="shared",
        energy_class=machine.accelerator,
        carbon_class=carbon_class(region.intensity_g_per_kwh.value),
        extra={k: v for k, v in config.tags.items() if k not in ("team", "cost_center")},
    )


def container_labels(config: StackConfig, tags: Mapping[str, str]) -> dict[str, str]:
    """The tags that Gangway sets itself. User data has no user tags, since a new one would replace nodes."""
    return {key: value for key, value in tags.items() if key not in config.tags}


def state_root(config: StackConfig, mount: str) -> str:
    """The folder for runs on a node: the shared file system at `mount`, or else the boot disk."""
    return mount if config.storage else "/var/lib/gangway"


def run_dir(config: StackConfig, mount: str) -> str:
    """The run's directory, the same on every node."""
    return f"{state_root(config, mount)}/runs/{config.stack}"


def scrapes(config: StackConfig) -> bool:
    """Whether the head runs Prometheus, whose image endpoints do not reach; metrics of a command are unknown."""
    has_hardware = config.observe.hardware and (command_meets(config) or config.engine.has_queue)
    has_metrics = config.trains or has_hardware
    has_own_network = "network" in get_provider(config.provider).settings.unsupported
    has_internet = has_own_network or config.network.egress is Egress.NAT
    return has_metrics and config.head.prometheus_image is not None and has_internet


def has_exporters(config: StackConfig) -> bool:
    """Whether workers run exporters of hardware metrics."""
    return config.observe.hardware and scrapes(config)


def machine_settings(config: StackConfig, job: JobSpec, bucket_url: str, mount: str) -> dict[str, Any]:
    """User data settings of every machine. `mount`: of the file system, if any."""
    folder = run_dir(config, mount)
    return {
        "stack": config.stack,
        "job": _with_busy_file(config, job, folder),
        "image_registry": job.image.partition("/")[0],
        "bucket_uri": f"{bucket_url}/{config.stack}",
        "run_dir": folder,
        "max_hours": config.work.max_hours,
        "limit": job_limit(config),
        "hardware_metrics": has_exporters(config),
    }


def ended_key(config: StackConfig, job: JobSpec) -> str:
    """Key of the mark of the job's end, in the stack's folder of the run bucket. More hours or dollars change it."""
    return ended_object(job, config.work.max_hours, job_limit(config))


def job_limit(config: StackConfig) -> JobLimit | None:
    """What the stack's job may spend on its nodes."""
    limits = config.budget.limits
    if config.job is None or limits is None or limits.job_usd is None:
        return None
    assert limits.usd_per_node_hour is not None, "checked by gangway.stacks.loading.unsupported_settings"
    return JobLimit(limits.job_usd, limits.usd_per_node_hour)


def _with_busy_file(config: StackConfig, job: JobSpec, folder: str) -> JobSpec:
    """The job, with the file in which it shows that it works without its GPUs (watch-idle.sh reads it)."""
    if config.cluster.idle_stop is None:
        return job
    return job.model_copy(update={"env": {BUSY_VARIABLE: f"{folder}/.busy", **job.env}})


def worker_settings(config: StackConfig, machine: MachineType, tags: Mapping[str, str]) -> dict[str, Any]:
    """User data settings of workers in groups that replace them."""
    return {
        "scratch_mount_point": "/scratch" if machine.instance_store_gib.value else None,
        "labels": container_labels(config, tags),
        "terminate_when_done": config.work.terminate_when_done,
        "breaker": Breaker(config.cluster.given_up_limit, config.cluster.breaker.minutes),
        "idle_stop": IdleStop(idle.minutes, idle.below_percent) if (idle := config.cluster.idle_stop) else None,
    }


def head_settings(config: StackConfig) -> dict[str, Any]:
    """User data settings of a head node."""
    prometheus_image = config.head.prometheus_image if scrapes(config) else None
    return {"port": RENDEZVOUS_PORT, "metrics_port": METRICS_PORT, "prometheus_image": prometheus_image}


def command_job(
    config: StackConfig,
    own: CommandConfig,
    image: str,
    *,
    run_dir: str,
    state: str,
    accelerators: int,
    at: Rendezvous | None = None,
    volumes: Sequence[Volume] = (),
    env: Mapping[str, str] = MappingProxyType({}),
    shutdown_timeout_sec: int = 25,
) -> JobSpec:
    """The job of a custom command. `accelerators`: per node; `at`: the rendezvous of torchrun on several nodes; the
    rest as in `gangway.stacks.estimates.run_context.training_job`. The command's own `env` overrides `env`.
    """
    nodes = config.cluster.nodes
    several = {"GANGWAY_NNODES": f"{nodes.min}:{nodes.max}"} if nodes.max > 1 else {}
    # Each round of workers needs a new store: torch 2.15 passes the first one on to nodes that join later.
    several |= {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"} if at else {}
    return JobSpec(
        name=config.stack,
        image=image,
        image_signature=image_signature(config),
        backend="nccl",
        num_nodes_min=nodes.min,
        num_nodes_max=nodes.max,
        processes_per_node=accelerators,
        rendezvous=at or Rendezvous(standalone=True),
        volumes=(
            Volume(source=state, target=state),
            *volumes,
            *(Volume(source=output_folder(run_dir, folder), target=folder) for folder in own.outputs),
        ),
        env={**env, **several, **command_variables(own, run_dir, OWN_NOTICES)},
        command=OwnCommand(
            words=own.command,
            workdir=own.workdir or "",
            torchrun_processes=own.processes_per_node or 0,
            outputs=own.outputs,
        ),
        shutdown_timeout_sec=shutdown_timeout_sec,
    )


def command_job_on(
    machine: MachineType,
    config: StackConfig,
    own: CommandConfig,
    image: str,
    mount: str,
    *,
    at: Rendezvous,
    volumes: Sequence[Volume] = (),
    env: Mapping[str, str] = MappingProxyType({}),
) -> JobSpec:
    """The same on `machine`. `at`, `volumes` and `env` are only used if the nodes connect."""
    meets = command_meets(config)
    return command_job(
        config,
        own,
        image,
        run_dir=run_dir(config, mount),
        state=state_root(config, mount),
        accelerators=machine.num_accelerators.value,
        at=at if meets else None,
        volumes=volumes if meets else (),
        env=env if meets else {},
    )


def steps_alarm_minutes(config: StackConfig) -> int | None:
    """Minutes without a step before an alarm; None for a custom command, which does not report steps."""
    return config.observe.no_steps_minutes if config.own_command is None else None


def image_place(config: StackConfig) -> str:
    """The setting that names an existing image."""
    return "gangway:image.prebuilt" if config.own_command is None else "gangway:job.image"


def refused_image(config: StackConfig, allowed: str, registry: str) -> InputError:
    """The error for an existing image that nodes cannot pull. `registry`: to which to push it."""
    return InputError(
        image_place(config),
        "nodes cannot pull this image",
        value=config.ready_image,
        allowed=allowed,
        fix=f"push the image to {registry}"
        + (", or remove this setting and let `up` build it" if config.own_command is None else ""),
    )


def head_ports(config: StackConfig, *, lustre: bool = False) -> HeadPortsArgs:
    """The ports of the head node. `lustre`: it mounts the file system."""
    ports: HeadPortsArgs = {"rendezvous_port": RENDEZVOUS_PORT, "metrics_port": METRICS_PORT, "lustre": lustre}
    if has_exporters(config):
        ports["last_metrics_port"] = max(EXPORTER_PORTS.values())
    return ports


def metrics_text(config: StackConfig) -> str:
    """The ports of the workers' metrics in a message: `9400`, or with exporters `9400 to 9402`."""
    ports = metrics_ports(head_ports(config))
    return " to ".join(dict.fromkeys((str(ports[0]), str(ports[-1]))))


def head_host(config: StackConfig) -> str:
    """The head node's fixed private name."""
    return f"head.{config.stack}.gangway.internal"


def rendezvous(config: StackConfig, *, at_head: bool, host: str = "") -> Rendezvous:
    """The rendezvous of workers at the head node; standalone if they need none. `host`: instead of `head_host`."""
    if not at_head:
        return Rendezvous(standalone=True)
    return Rendezvous(host=host or head_host(config), port=RENDEZVOUS_PORT)


def get_training(
    config: StackConfig, *, run_dir: str, data_dir: str, fabric_min_gbps: float | None, backend: str | None = None
) -> Training:
    """The training of the nodes. Settings that the backend does not support stay in it: `trainer_findings` reports them
    as errors of the plan, and no stack with an error comes up.
    """
    job = config.training
    try:
        document = effective_config(job.preset, job.settings, job.overrides(backend)).document()
    except InputError:
        document = {**job.effective_config().document(), "backend": backend}
    return Training(
        config=document,
        run_dir=run_dir,
        data_dir=data_dir,
        metrics_port=METRICS_PORT,
        log_format="json",  # the cloud's log service makes metrics of these lines
        fabric_min_gbps=fabric_min_gbps,
        controller=None if job.controller is None else job.controller.document(),
    )


def lustre_args(config: StackConfig) -> dict[str, Any]:
    """The arguments of every provider's `plan_lustre`."""
    assert config.storage is not None, "only with a file system"
    names = ("capacity_gib", "throughput_mbps_per_tib", "deployment", "efa", "metadata_iops")
    return {**{name: getattr(config.storage, name) for name in names}, "region": config.region}


def has_source(config: StackConfig) -> bool:
    """Whether the file system is filled from `storage.source`."""
    return config.storage is not None and config.storage.source is not None


def least_bus_gbps(config: StackConfig, machine: MachineType, fabric_gbps: float) -> float | None:
    """The bus bandwidth below which a job does not start: by default at most what PCIe carries; None without a test."""
    check = config.cluster.fabric_check
    if not check.enabled or config.cluster.nodes.max < 2 or config.own_command is not None:
        return None
    least = fabric_gbps * check.min_fraction
    by_pcie = machine.interconnect.value == "pcie" and "min_fraction" not in check.model_fields_set
    return min(least, PCIE_BUS_GBPS) if by_pcie else least


def queue_fabric(
    config: StackConfig, machine: MachineType, nccl: Mapping[str, str], fabric_gbps: float | None
) -> dict[str, str]:
    """Environment of queue jobs on several whole nodes; `fabric_gbps` None if unknown."""
    if config.cluster.nodes.max < 2 or machine.backend != "nccl":
        return {}
    return fabric_variables(nccl, None if fabric_gbps is None else least_bus_gbps(config, machine, fabric_gbps))


_PLACE = "gangway:job.command"


def nodes_meet(config: StackConfig) -> bool:
    """Whether the job's nodes connect: a command without torchrun runs on each of them by itself."""
    own = config.own_command
    return config.cluster.nodes.max > 1 and (own is None or own.processes_per_node is not None)


def command_meets(config: StackConfig) -> bool:
    """Whether the job is a custom command whose nodes connect."""
    return config.own_command is not None and nodes_meet(config)


def rendezvous_findings(
    config: StackConfig, keep_out: str = "put nothing else into the stack's network"
) -> Iterable[Finding]:
    """How a command's nodes connect: plain torchrun does not know the trainer's member key."""
    own = config.own_command
    if own is None or config.cluster.nodes.max < 2:
        return
    if nodes_meet(config):
        yield Finding.info(
            "job.rendezvous-without-key",
            _PLACE,
            "torchrun's store on the head has no key, and workers unpickle its values: anyone who reaches its port, "
            "which only the stack's machines do, can run code in the containers",
            keep_out,
        )
    else:
        yield Finding.info(
            "job.nodes-do-not-meet",
            "gangway:job.processes_per_node",
            "the command runs on each node by itself: nothing connects the nodes, and no head runs a store",
            "write processes_per_node to start it with torchrun as one job",
        )


def open_rendezvous_findings(config: StackConfig, where: str, fix: str) -> Iterable[Finding]:
    """The same for ports that others can reach. `where`: in which network."""
    if command_meets(config):
        yield Finding.warning(
            "job.rendezvous-without-key",
            _PLACE,
            f"torchrun's store has no key, and workers unpickle its values: anyone who reaches {where} can run code in "
            "the containers",
            fix,
        )
    else:
        yield from rendezvous_findings(config)


def slurm_machine(machine: MachineType, fabric: str | None) -> SlurmMachine:
    """A machine of the catalogue or a site for Slurm. `fabric`: network between nodes besides Ethernet, if any."""
    gpus = machine.num_accelerators.value if machine.backend == "nccl" else 0
    model = re.sub(r"[^a-z0-9]", "_", machine.accelerator.rpartition("x")[0].lower())
    return SlurmMachine(
        cpus=machine.vcpus.value,
        memory_gib=machine.memory_gib.value,
        gpus=gpus,
        gpu_type=model if gpus else "",
        fabric=fabric,
    )
