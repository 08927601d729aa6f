"""What the trainer's controller may change on a stack's machines, what it asks for in vain there, and bounds that no
machine or price allows. Pure.
"""

from collections.abc import Iterable
from math import ceil

from components.catalog.schema import MachineType
from components.core.findings import Finding, InputError
from components.estimate.cost import CostEstimate, foreign_mark
from stacks.config.stack_config import StackConfig
from stacks.estimates.autoscale import why_not_scaled
from stacks.estimates.run_costs import rung_lines, unmet_caps
from stacks.estimates.throughput import get_train_config
from stacks.estimates.trainer_findings import node_of
from trainer.config.control_bounds import misfits
from trainer.config.refusals import refusals
from trainer.config.values.control import Bounds, ControlSettings

_PLACE = "gangway:job.controller"
_BOUNDS = f"{_PLACE}.bounds"
_FREE = ("loader_threads", "prefetch", "threads")
"""May change without bounds, as far as the node has cores."""
_BOUNDED = ("batch_gpu", "batch_size", "precision", "compile", "watts", "nodes")
_NEEDS_ROOT = (
    "NVML sets a power limit for root alone, and the job's container is nobody's and has no capabilities: it is "
    "refused, and told in the run's events"
)
_NOBODYS = "a run starts and stops no nodes, and none of its policies asks for any: job.autoscale does"
_ON_XLA = {
    "threads": "operators run on the chips",
    "watts": "a TPU takes no power limit",
    "compile": "PyTorch/XLA compiles by itself",
}
"""What a TPU ignores, and why."""


def controller_findings(config: StackConfig, machine: MachineType, cost: CostEstimate | None) -> Iterable[Finding]:
    """`cost`: the priced plan; None where nothing is priced. InputError: a bound that cannot be kept on this machine,
    or at its price.
    """
    asked = config.work.controller
    if asked is None:
        return
    _check_run(config, machine, asked.bounds)
    _check_watts(machine, asked.bounds)
    if cost is not None:
        _check_money(config, machine, asked, cost)
    yield _in_short(config, machine, asked)
    yield from _idle(asked)
    yield from _in_vain(config, machine, asked.bounds)
    if cost is not None:
        yield from _too_dear(config, machine, asked.bounds, cost)
    yield from _meter(machine, asked)
    yield from _cores(machine, asked.bounds)
    yield from _refused(config, machine, asked.bounds)
    yield from _outside(config, machine, asked.bounds)


def _check_run(config: StackConfig, machine: MachineType, bounds: Bounds) -> None:
    """What the trainer would refuse when it starts."""
    nodes, each = config.cluster.nodes, machine.num_accelerators.value
    trained, fewest = get_train_config(config, machine), max(1, nodes.min) * each
    for found in misfits(bounds, trained, nodes.max * each, least_workers=fewest):
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
            f"above the limit of {machine.accelerator.rpartition('x')[0] or machine.accelerator}, {limit.value:g} W "
            f"({limit.source})",
            value=[least, most],
            allowed=f"at most {limit.value:g}",
            fix=f"write watts: [{min(least, limit.value):g}, {limit.value:g}]",
        )


def _check_money(config: StackConfig, machine: MachineType, asked: ControlSettings, cost: CostEstimate) -> None:
    """The fewest nodes on the cheapest rung have to fit below what an hour may cost, and an aim needs its prices."""
    bound, each = asked.bounds.usd_per_hour, _node_prices(config, machine, cost)
    if not each:
        if asked.objective == "cost" or bound is not None:
            name, value = ("objective", "cost") if asked.objective == "cost" else ("bounds.usd_per_hour", bound)
            raise InputError(
                f"{_PLACE}.{name}",
                f"nobody knows what an hour of {machine.name} costs in {config.region}",
                value=value,
                allowed="only where the price of a rung is known",
                fix=f"run `gangway prices refresh`, or leave {name.rpartition('.')[2]} out",
            )
        return
    fewest = config.cluster.nodes.min
    least = fewest * min(each)
    if bound is not None and bound < least:
        nodes = "one node costs" if fewest == 1 else f"the fewest nodes, {fewest}, cost"
        raise InputError(
            f"{_BOUNDS}.usd_per_hour",
            f"below what {nodes} on the cheapest rung",
            value=bound,
            allowed=f"at least {least:.2f} USD{foreign_mark(cost.components)}",
            fix=f"write usd_per_hour: {ceil(least)}",
        )


def _node_prices(config: StackConfig, machine: MachineType, cost: CostEstimate) -> list[float]:
    """US dollars an hour of a node on each rung that machines come to and whose price is known."""
    unmet, each = unmet_caps(config, machine), []
    for position in range(len(config.cluster.capacity)):
        lines = [line.hourly for line in rung_lines(config, cost.components, position)]
        known = [hourly for hourly in lines if hourly is not None]
        if position not in unmet and len(known) == len(lines):
            each.append(sum(known) / config.cluster.nodes.max)
    return each


def _in_short(config: StackConfig, machine: MachineType, asked: ControlSettings) -> Finding:
    """Who decides what, within which bounds, and what stays as it is."""
    if asked.policy == "fixed":
        return Finding.info("controller", _PLACE, "policy fixed decides nothing: what others are compared with")
    ignored, bounds = _ignored(config, machine), asked.bounds
    within = [
        f"{name} {_range(getattr(bounds, name))}"
        for name in (*_FREE, *_BOUNDED)
        if getattr(bounds, name) and name not in ignored
    ]
    free = [name for name in _FREE if getattr(bounds, name) is None and name not in ignored]
    changes = [*within, f"{' and '.join(free)} as far as a node has cores"] if free else within
    stays = [name for name in _BOUNDED if not getattr(bounds, name)]
    acts = "may change" if asked.mode == "act" else "changes nothing and tells what it would do with"
    says = f"policy {asked.policy}, for {asked.objective}, {acts} {', '.join(changes)}"
    return Finding.info("controller", _PLACE, f"{says}; as started: {', '.join(stays)}" if stays else says)


def _range(bound: tuple[float, float] | tuple[str, ...] | bool) -> str:
    if isinstance(bound, bool):
        return "on or off"
    words = [each if isinstance(each, str) else f"{each:g}" for each in bound]
    return (" or " if isinstance(bound[0], str) else " to ").join(words)


def _idle(asked: ControlSettings) -> Iterable[Finding]:
    if asked.policy == "fixed" and asked.bounds != Bounds():
        yield Finding.warning(
            "controller.ignored", _BOUNDS, "of no effect: policy fixed changes nothing", "remove bounds, or the policy"
        )


def _ignored(config: StackConfig, machine: MachineType) -> dict[str, str]:
    """Settings that nothing on these machines carries out, and why."""
    if machine.backend == "xla":
        return {**_ON_XLA, "nodes": _NOBODYS}
    fixed = {"watts": _NEEDS_ROOT, "nodes": _NOBODYS}
    if why := _compiled_for_good(config, machine):
        fixed["compile"] = why
    return fixed


def _compiled_for_good(config: StackConfig, machine: MachineType) -> str:
    """Why losses stay as compiled, or not, as they are at the beginning; empty where they can be switched."""
    trained = get_train_config(config, machine)
    if trained.compile == "off":
        return "the job's settings have compile: off"
    if trained.cuda_graphs:
        return "CUDA graphs are recorded of what was compiled"
    if not trained.batch_gpu and config.cluster.nodes.max * machine.num_accelerators.value > 1:
        return "the compiled graphs of several workers average gradients, and stay as they are"
    return ""


def _in_vain(config: StackConfig, machine: MachineType, bounds: Bounds) -> Iterable[Finding]:
    """Bounds of what cannot be changed here."""
    ignored = _ignored(config, machine)
    for name in bounds.model_fields_set:
        if getattr(bounds, name) and name in ignored:
            yield Finding.warning(
                "controller.ignored", f"{_BOUNDS}.{name}", f"of no effect: {ignored[name]}", f"remove {name}"
            )


def _too_dear(config: StackConfig, machine: MachineType, bounds: Bounds, cost: CostEstimate) -> Iterable[Finding]:
    """What all nodes may cost, where the group asks for more of them than that pays on a rung, and nothing keeps it."""
    bound, nodes = bounds.usd_per_hour, config.cluster.nodes.max
    dearest = max(_node_prices(config, machine, cost), default=0.0)
    if bound is None or nodes * dearest <= bound:
        return
    scaled = config.work.autoscale is not None and not why_not_scaled(config, machine)
    keeps = (
        f"`gangway job {config.stack_name} --scale` keeps to it, whenever it is called"
        if scaled
        else "nobody keeps to it"
    )
    yield Finding.warning(
        "controller.usd-per-hour",
        f"{_BOUNDS}.usd_per_hour",
        f"{nodes} nodes, for which the group asks at first, cost {nodes * dearest:.2f} USD an hour on the "
        f"dearest rung{foreign_mark(cost.components)}, above {bound:g}: {keeps}",
        "fewer cluster.nodes.max" if scaled else "fewer cluster.nodes.max, or job.autoscale where groups are scaled",
    )


def _meter(machine: MachineType, asked: ControlSettings) -> Iterable[Finding]:
    if asked.objective in ("energy", "carbon") and machine.backend == "xla":
        yield Finding.warning(
            "controller.no-meter",
            f"{_PLACE}.objective",
            f"{asked.objective} needs joules, and a TPU has no energy counter that the trainer reads: without one it "
            "decides nothing, and says so",
            "set objective: time, or cost",
        )


def _cores(machine: MachineType, bounds: Bounds) -> Iterable[Finding]:
    """Threads of one worker beyond its share of the node's."""
    share = max(1, int(machine.vcpus_per_accelerator))
    for name in ("loader_threads", "threads"):
        bound = getattr(bounds, name)
        if bound is not None and bound[1] > share:
            yield Finding.warning(
                "controller.cores",
                f"{_BOUNDS}.{name}",
                f"up to {bound[1]} threads a worker, and {machine.name} has {share} for each of its "
                f"{machine.num_accelerators.value} workers ({machine.vcpus.value} in all)",
                f"set {name}: [{min(bound[0], share)}, {share}]",
            )


def _refused(config: StackConfig, machine: MachineType, bounds: Bounds) -> Iterable[Finding]:
    """Numbers that the trainer would refuse to compute in on these accelerators."""
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


def _outside(config: StackConfig, machine: MachineType, bounds: Bounds) -> Iterable[Finding]:
    """A micro-batch that the run begins with and that its own bounds leave out."""
    trained = get_train_config(config, machine)
    workers = config.cluster.nodes.max * machine.num_accelerators.value
    start, bound = trained.batch_gpu or ceil(trained.batch_size / workers), bounds.batch_gpu
    if bound is not None and not bound[0] <= start <= bound[1]:
        yield Finding.warning(
            "controller.begins-outside",
            f"{_BOUNDS}.batch_gpu",
            f"the run begins with {start} images at once, outside {bound[0]} to {bound[1]}: there is no way back to "
            "what it began with",
            f"set batch_gpu: [{min(bound[0], start)}, {max(bound[1], start)}]",
        )
