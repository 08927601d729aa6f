"""What the plan of every provider does the same way: head node's type, zone, tag policy, and the job's command line.

Pure. Only what is one rule everywhere; what a cloud spells its own way comes in as an argument.
"""

from collections.abc import Sequence

from components.catalog import MachineType, Provider, Region, load_provider
from components.findings import InputError, nearest_hint
from components.job import Rendezvous
from components.tags import TagPolicy, carbon_class
from stacks.settings.config import StackConfig
from stacks.settings.job_settings import trainer_flags

__all__ = [
    "METRICS_PORT",
    "RENDEZVOUS_PORT",
    "check_head",
    "head_host",
    "named_zone",
    "rendezvous",
    "run_dir",
    "state_root",
    "tag_policy",
    "train_argv",
]

RENDEZVOUS_PORT = 29400
METRICS_PORT = 9400


def check_head(provider: Provider, machine_type: str) -> None:
    """Refuses a head node's type that the catalogue does not know: its price would not be known either."""
    services = load_provider(provider).services_of(provider)
    known = sorted(name.removeprefix("instance-") for name in services if name.startswith("instance-"))
    if machine_type not in known:
        raise InputError(
            "gangway:head.machine_type",
            "no machine type that Gangway knows for a head node",
            value=machine_type,
            allowed=", ".join(known),
            fix=nearest_hint(machine_type, known),
        )


def named_zone(zone: str, zones: Sequence[str], region: str) -> str:
    """`zone`, which the stack file names for the cluster, where the region has it.

    Raises:
        InputError: it has no such zone.
    """
    if zone in zones:
        return zone
    raise InputError(
        "gangway:cluster.zone",
        f"no such zone in {region}",
        value=zone,
        allowed=", ".join(zones) or "none: it has no zones",
        fix=f"set zone: {_as_text(zones[0])}, or leave it out" if zones else "leave zone out",
    )


def _as_text(zone: str) -> str:
    """As it is written in YAML, where a number is text only in quotes."""
    return repr(zone) if zone.isdigit() else zone


def tag_policy(config: StackConfig, machine: MachineType, region: Region) -> TagPolicy:
    """What every resource carries, to be spelled in the provider's alphabet."""
    return TagPolicy(
        stack=config.stack,
        team=config.tags["team"],
        cost_center=config.tags["cost_center"],
        run="shared",
        energy_class=machine.accelerator,
        carbon_class=carbon_class(region.intensity_g_per_kwh.value),
        extra={k: v for k, v in config.tags.items() if k not in ("team", "cost_center")},
    )


def state_root(config: StackConfig, mount: str) -> str:
    """Where runs live on a node: the shared file system at `mount`, or the boot disk where there is none."""
    return mount if config.storage else "/var/lib/gangway"


def run_dir(config: StackConfig, mount: str) -> str:
    """The run's directory, the same on every node."""
    return f"{state_root(config, mount)}/runs/{config.stack}"


def head_host(config: StackConfig) -> str:
    """The head node's fixed private name."""
    return f"head.{config.stack}.gangway.internal"


def rendezvous(config: StackConfig, *, at_head: bool) -> Rendezvous:
    """Where workers meet: at the head node, or nowhere where one machine, or something else, brings them together."""
    return Rendezvous(host=head_host(config), port=RENDEZVOUS_PORT) if at_head else Rendezvous(standalone=True)


def train_argv(
    config: StackConfig, *, run_dir: str, data_dir: str, fabric_min_gbps: float | None, backend: str | None = None
) -> tuple[str, ...]:
    """The trainer's arguments.

    Args:
        config: the stack.
        run_dir: as every node sees it.
        data_dir: where the objects of `storage.source` appear, or what a site's machines have; empty for none. Not said
            to the trainer where there is no source.
        fabric_min_gbps: bus bandwidth below which the job does not start; None to start without a test.
        backend: where it is not the trainer's own choice.
    """
    job = config.job
    return (
        "train",
        *trainer_flags(job.preset, job.settings, job.overrides(backend)),
        *("--run-dir", run_dir),
        *(("--data", data_dir) if data_dir and _has_data(config) else ()),
        *("--metrics-port", str(METRICS_PORT)),
        # The cloud's log service makes metrics of these lines.
        *("--log-format", "json"),
        *(("--fabric-min-gbps", f"{fabric_min_gbps:g}") if fabric_min_gbps else ()),
    )


def _has_data(config: StackConfig) -> bool:
    """Whether there is anything in the folder: a site's data is there without a source."""
    return config.hosts is not None or (config.storage is not None and config.storage.source is not None)
