"""What the trainer's controller may change on a stack's machines; useless settings and impossible bounds. Pure."""

from collections.abc import Iterable
from math import ceil

from gangway.components.catalog.schema import MachineType
from gangway.components.core.findings import Finding, InputError
from gangway.components.estimate.cost import CostEstimate, foreign_mark
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.autoscale import why_not_scaled
from gangway.stacks.estimates.run_costs import rung_lines, unmet_caps
from gangway.stacks.estimates.throughput import get_train_config
from gangway.stacks.estimates.trainer_findings import node_of
from gangway.trainer.config.refusals import bounds_misfits, refusals
from gangway.trainer.config.values.control import Bounds, ControlSettings

_PLACE = "gangway:job.controller"
_BOUNDS = f"{_PLACE}.bounds"
_FREE = ("loader_threads", "prefetch", "threads")
"""May change without bounds, up to the node's cores."""
_BOUNDED = ("batch_gpu", "batch_size", "precision", "compile", "watts", "nodes")
_NEEDS_ROOT = (
    "NVML sets a power limit for root only, and the job's container has neither root nor capabilities: the change is "
    "refused, and recorded in the run's events"
)
_NODES_UNUSED = "a run does not start or stop nodes; job.autoscale does"
_ON_XLA = {
    "threads": "operators run on the chips",
    "watts": "a TPU takes no power limit",
    "compile": "PyTorch/XLA compiles by itself",
}
"""What a TPU ignores, and why."""


def controller_findings(config: StackConfig, machine: MachineType, cost: CostEstimate | None) -> Iterable[Finding]:
    """Findings about the controller. `cost`: None if nothing is priced. InputError: a bound that is impossible on this
    machine, or at its price.
    """
    asked = config.work.controller
    if asked is None:
        return
    _check_run(config, machine, asked.bounds)
    _check_watts(machine, asked.bounds)
    if cost is not None:
        _check_money(config, machine, asked, cost)
    yield _summary(config, machine, asked)
    yield from _ignored_bounds(asked)
    yield from _ineffective(config, machine, asked.bounds)
    if cost is not None:
        yield from _over_bound(config, machine, asked.bounds, cost)
    yield from _missing_meter(machine, asked)
    yield from _excess_threads(machine, asked.bounds)
    yield from _refused_precisions(config, machine, asked.bounds)
    yield from _start_outside(config, machine, asked.bounds)


def _check_run(config: StackConfig, machine: MachineType, bounds: Bounds) -> None:
    """InputError: bounds that the trainer would refuse at its start."""
    nodes, each = config.cluster.nodes, machine.num_accelerators.value
    trained, fewest = get_train_config(config, machine), max(1, nodes.min) * each
    for found in bounds_misfits(bounds, trained, nodes.max * each, least_workers=fewest):
        raise InputError(
            f"{_BOUNDS}.{found.field}",
            found.problem,
            value=list(found.value),
            allowed=found.allowed,
            fix=f"write {found.field}: [{', '.join(map(str, found.fix))}]",
        )


def _check_watts(machine: MachineType, bounds: Bounds) -> None:
    limit = machine.accelerator_watts
    if bounds.watts is None or limit.value is None:
        return
    least, most = bounds.watts
    if most > limit.value:
        raise InputError(
            f"{_BOUNDS}.watts",
            f"above the power limit of {machine.accelerator.rpartition('x')[0] or machine.accelerator}, "
            f"{limit.value:g} W ({limit.source})",
            value=[least, most],
            allowed=f"at most {limit.value:g}",
            fix=f"write watts: [{min(least, limit.value):g}, {limit.value:g}]",
        )


def _check_money(config: StackConfig, machine: MachineType, asked: ControlSettings, cost: CostEstimate) -> None:
    """InputError: the fewest nodes on the cheapest rung exceed the limit per hour, or a needed price is unknown."""
    bound, each = asked.bounds.usd_per_hour, _node_prices(config, machine, cost)
    if not each:
        if asked.objective == "cost" or bound is not None:
            name, value = ("objective", "cost") if asked.objective == "cost" else ("bounds.usd_per_hour", bound)
            raise InputError(
                f"{_PLACE}.{name}",
                f"the price of {machine.name} in {config.region} is unknown",
                value=value,
                allowed="only with a known price of a rung",
                fix=f"run `gangway prices refresh`, or leave {name.rpartition('.')[2]} out",
            )
        return
    fewest = config.cluster.nodes.min
    least = fewest * min(each)
    if bound is not None and bound < least:
        nodes = "one node costs" if fewest == 1 else f"the fewest nodes, {fewest}, cost"
        raise InputError(
            f"{_BOUNDS}.usd_per_hour",
            f"less than {nodes} on the cheapest rung",
            value=bound,
            allowed=f"at least {least:.2f} USD{foreign_mark(cost.components)}",
            fix=f"write usd_per_hour: {ceil(least)}",
        )


def _node_prices(config: StackConfig, machine: MachineType, cost: CostEstimate) -> list[float]:
    """US dollars per node hour of each rung in reach with a known price."""
    unmet, each = unmet_caps(config, machine), []
    for position in range(len(config.cluster.capacity)):
        lines = [line.hourly for line in rung_lines(config, cost.components, position)]
        known = [hourly for hourly in lines if hourly is not None]
        if position not in unmet and len(known) == len(lines):
            each.append(sum(known) / config.cluster.nodes.max)
    return each


def _summary(config: StackConfig, machine: MachineType, asked: ControlSettings) -> Finding:
    """The policy, what it may change within which bounds, and what stays as it is."""
    if asked.policy == "fixed":
        return Finding.info("controller", _PLACE, "policy fixed changes nothing; it is the baseline for other policies")
    ignored, bounds = _ignored(config, machine), asked.bounds
    within = [
        f"{name} {_range(getattr(bounds, name))}"
        for name in (*_FREE, *_BOUNDED)
        if getattr(bounds, name) and name not in ignored
    ]
    free = [name for name in _FREE if getattr(bounds, name) is None and name not in ignored]
    changes = [*within, f"{' and '.join(free)} up to the node's cores"] if free else within
    stays = [name for name in _BOUNDED if not getattr(bounds, name)]
    acts = "may change" if asked.mode == "act" else "changes nothing, but reports what it would do with"
    message = f"policy {asked.policy}, for {asked.objective}, {acts} {', '.join(changes)}"
    return Finding.info("controller", _PLACE, f"{message}; unchanged: {', '.join(stays)}" if stays else message)


def _range(bound: tuple[float, float] | tuple[str, ...] | bool) -> str:
    if isinstance(bound, bool):
        return "on or off"
    words = [each if isinstance(each, str) else f"{each:g}" for each in bound]
    return (" or " if isinstance(bound[0], str) else " to ").join(words)


def _ignored_bounds(asked: ControlSettings) -> Iterable[Finding]:
    if asked.policy == "fixed" and asked.bounds != Bounds():
        yield Finding.warning(
            "controller.ignored", _BOUNDS, "of no effect: policy fixed changes nothing", "remove bounds, or the policy"
        )


def _ignored(config: StackConfig, machine: MachineType) -> dict[str, str]:
    """Settings without effect on these machines, and why."""
    if machine.backend == "xla":
        return {**_ON_XLA, "nodes": _NODES_UNUSED}
    fixed = {"watts": _NEEDS_ROOT, "nodes": _NODES_UNUSED}
    if why := _fixed_compile(config, machine):
        fixed["compile"] = why
    return fixed


def _fixed_compile(config: StackConfig, machine: MachineType) -> str:
    """Why compilation of losses cannot be switched during the run; empty if it can."""
    trained = get_train_config(config, machine)
    if trained.compile == "off":
        return "the job's settings have compile: off"
    if trained.cuda_graphs:
        return "CUDA graphs record the compiled code"
    if not trained.batch_gpu and config.cluster.nodes.max * machine.num_accelerators.value > 1:
        return "with several workers, the compiled graphs average gradients and cannot change"
    return ""


def _ineffective(config: StackConfig, machine: MachineType, bounds: Bounds) -> Iterable[Finding]:
    """Bounds of settings that cannot be changed here."""
    ignored = _ignored(config, machine)
    for name in bounds.model_fields_set:
        if getattr(bounds, name) and name in ignored:
            yield Finding.warning(
                "controller.ignored", f"{_BOUNDS}.{name}", f"of no effect: {ignored[name]}", f"remove {name}"
            )


def _over_bound(config: StackConfig, machine: MachineType, bounds: Bounds, cost: CostEstimate) -> Iterable[Finding]:
    """All nodes on the most expensive rung cost more than the limit per hour."""
    bound, nodes = bounds.usd_per_hour, config.cluster.nodes.max
    highest = max(_node_prices(config, machine, cost), default=0.0)
    if bound is None or nodes * highest <= bound:
        return
    scaled = config.work.autoscale is not None and not why_not_scaled(config, machine)
    keeps = (
        f"only `gangway job {config.stack_name} --scale` enforces it, when it runs" if scaled else "nothing enforces it"
    )
    yield Finding.warning(
        "controller.usd-per-hour",
        f"{_BOUNDS}.usd_per_hour",
        f"the group starts with {nodes} nodes, which cost {nodes * highest:.2f} USD an hour on the most expensive "
        f"rung{foreign_mark(cost.components)}, above {bound:g}: {keeps}",
        "lower cluster.nodes.max" if scaled else "lower cluster.nodes.max, or use job.autoscale if it can scale",
    )


def _missing_meter(machine: MachineType, asked: ControlSettings) -> Iterable[Finding]:
    if asked.objective in ("energy", "carbon") and machine.backend == "xla":
        yield Finding.warning(
            "controller.no-meter",
            f"{_PLACE}.objective",
            f"{asked.objective} needs an energy meter, which TPUs do not offer to the trainer: the controller will "
            "change nothing, and say so",
            "set objective: time, or cost",
        )


def _excess_threads(machine: MachineType, bounds: Bounds) -> Iterable[Finding]:
    """Threads of one worker above its share of the node's cores."""
    share = max(1, int(machine.vcpus_per_accelerator))
    for name in ("loader_threads", "threads"):
        bound = getattr(bounds, name)
        if bound is not None and bound[1] > share:
            yield Finding.warning(
                "controller.cores",
                f"{_BOUNDS}.{name}",
                f"up to {bound[1]} threads per worker, but {machine.name} has {share} for each of its "
                f"{machine.num_accelerators.value} workers ({machine.vcpus.value} in total)",
                f"set {name}: [{min(bound[0], share)}, {share}]",
            )


def _refused_precisions(config: StackConfig, machine: MachineType, bounds: Bounds) -> Iterable[Finding]:
    """Precisions that the trainer would refuse on these accelerators."""
    if machine.backend not in ("nccl", "xla"):
        return
    trained, node = get_train_config(config, machine), node_of(machine)
    for precision in bounds.precision:
        other = trained.model_copy(update={"precision": precision})
        found = next((one for one in refusals(other, node, config.cluster.nodes.min) if one.field == "precision"), None)
        if found is not None and precision != trained.precision:
            rest = [each for each in bounds.precision if each != precision]
            yield Finding.error(
                "controller.precision",
                f"{_BOUNDS}.precision",
                f"the trainer refuses {found.problem}; allowed: {found.allowed}",
                f"set precision: [{', '.join(rest)}]" if rest else "remove precision",
            )


def _start_outside(config: StackConfig, machine: MachineType, bounds: Bounds) -> Iterable[Finding]:
    """The run starts with a micro-batch outside its bounds."""
    trained = get_train_config(config, machine)
    workers = config.cluster.nodes.max * machine.num_accelerators.value
    start, bound = trained.batch_gpu or ceil(trained.batch_size / workers), bounds.batch_gpu
    if bound is not None and not bound[0] <= start <= bound[1]:
        yield Finding.warning(
            "controller.begins-outside",
            f"{_BOUNDS}.batch_gpu",
            f"the run starts with {start} images at once, outside {bound[0]} to {bound[1]}: the controller cannot "
            "return to this value",
            f"set batch_gpu: [{min(bound[0], start)}, {max(bound[1], start)}]",
        )
