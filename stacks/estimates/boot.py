"""How long a node takes until its job can start, with and without a machine image, and what that costs. Pure."""

from collections.abc import Iterable, Mapping

from gangway.components.catalog.boot import load_boot
from gangway.components.catalog.schema import Fact, MachineType
from gangway.components.core.findings import Finding
from gangway.components.estimate.cost import CostEstimate
from gangway.stacks.base.registry import get_provider
from gangway.stacks.base.shared import has_exporters
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.run_costs import rung_in_use, rung_lines, rung_nodes

PLACE = "gangway:cluster.machine_image"
_HOST_ACCELERATORS = 8

Steps = Mapping[str, Fact[float]]
"""Step -> its minutes."""


def boot_findings(config: StackConfig, machine: MachineType, cost: CostEstimate | None) -> Iterable[Finding]:
    """One line, for stacks whose nodes may have a machine image. Images of `image_id` are unknown."""
    settings, cluster = get_provider(config.provider).settings, config.cluster
    is_possible = PLACE.removeprefix("gangway:") not in settings.unsupported and machine.backend == "nccl"
    if not is_possible or config.engine.kind == "kubernetes" or cluster.image_id is not None:
        return
    without, with_image = boot_steps(config, machine)
    waits = [_minutes(steps) for steps in (without, with_image)]
    usd_per_hour = None if cost is None else _node_usd_per_hour(config, machine, cost)
    dollars = "" if usd_per_hour is None else _dollars(usd_per_hour, *waits)
    yield Finding.info(
        "boot.minutes",
        PLACE,
        f"a job can start about {waits[0]:.0f} minutes after its node is launched: {_listed(without)}. With a "
        f"machine image after {waits[1]:.0f}: {_listed(with_image)}{dollars}",
        "" if cluster.machine_image else "to start sooner, set machine_image: {keep: 3}, which `up` builds first",
    )


def boot_steps(config: StackConfig, machine: MachineType) -> tuple[Steps, Steps]:
    """The steps without and with a machine image. Those that take the same are not in either."""
    table = load_boot()
    is_host = machine.num_accelerators.value >= _HOST_ACCELERATORS
    start = {"boot": table.start_minutes_of_host if is_host else table.start_minutes}
    planned = {
        "Lustre client": (table.lustre_minutes, config.storage is not None and config.storage.kind == "lustre"),
        "Slurm": (table.slurm_minutes, config.engine.kind == "slurm"),
        "container": (_per_container(table.container_minutes_per_gib), config.job is not None),
        "exporters": (table.exporters_minutes, has_exporters(config)),
    }
    installs = {name: fact for name, (fact, is_needed) in planned.items() if is_needed}
    reads = {"first read of the container's files": _per_container(table.first_read_minutes_per_gib)}
    return start | installs, start | (reads if config.job is not None else {})


def _per_container(each: Fact[float]) -> Fact[float]:
    """As sure as the size, which is the less certain factor."""
    size = load_boot().container_gib
    return size.model_copy(update={"value": each.value * size.value})


def _minutes(steps: Steps) -> float:
    return sum(fact.value for fact in steps.values())


def _listed(steps: Steps) -> str:
    return ", ".join(f"{name} {fact.value:.2g} ({fact.confidence})" for name, fact in steps.items())


def _node_usd_per_hour(config: StackConfig, machine: MachineType, cost: CostEstimate) -> float | None:
    """On the rung of the bill; None if a price is unknown or was paid before."""
    position = rung_in_use(config, cost)
    hourly = [line.hourly for line in rung_lines(config, cost.components, position)]
    known = [usd for usd in hourly if usd is not None]
    nodes = rung_nodes(config, machine, position)
    return sum(known) / nodes if len(known) == len(hourly) and nodes and any(known) else None


def _dollars(usd_per_hour: float, without: float, with_image: float) -> str:
    before, after = (usd_per_hour * minutes / 60 for minutes in (without, with_image))
    return f". At {usd_per_hour:.2f} USD an hour a node's start costs {after:.2f} instead of {before:.2f} USD"
