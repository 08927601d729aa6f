"""How many nodes a stack's job should have, and what the trainer's controller may change on its machines."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from math import ceil, floor, inf

from gangway.components.catalog.schema import MachineType
from gangway.components.core.capacity import plan_rung
from gangway.components.core.findings import Finding, InputError
from gangway.components.estimate.autoscale import Decision, State, decide
from gangway.components.estimate.cost import CostEstimate, foreign_mark
from gangway.components.estimate.statistics import Band
from gangway.stacks.base.registry import get_provider
from gangway.stacks.config.sections import AutoscaleConfig
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.run_costs import first_in_reach, rung_in_use, rung_lines, stops, unmet_caps
from gangway.stacks.estimates.throughput import get_train_config, throughput
from gangway.stacks.estimates.trainer_findings import node_of
from gangway.trainer.config.refusals import bounds_misfits, refusals
from gangway.trainer.config.values.control import Bounds, ControlSettings

_PLACE = "gangway:job.autoscale"
_DOLLARS = "bounds.usd_per_hour"
_MAX_POINTS = 64  # most points of the curve; of more node counts, evenly spaced ones with both ends


def autoscale_findings(
    config: StackConfig, machine: MachineType, cost: CostEstimate | None, now: datetime
) -> Iterable[Finding]:
    """InputError: a deadline in the past, or a budget below an hour of one node. `cost`: None if nothing is priced."""
    asked = config.work.autoscale
    if asked is None:
        return
    if asked.deadline is not None and asked.deadline <= now:
        raise InputError(
            f"{_PLACE}.deadline",
            "in the past",
            value=asked.deadline.isoformat(),
            allowed=f"after {now.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
            fix="write a later time, or leave it out",
        )
    if cost is not None:
        _check_budget(config, machine, asked, cost)
    curve = find_curve(config, machine)
    if not curve:
        yield Finding.warning(
            "autoscale.speed-unknown",
            _PLACE,
            f"the job's speed on {machine.name} is unknown, so no number of nodes is proposed",
            "write gangway:estimate.images_per_second from an earlier run",
        )
        return
    wanted = wanted_nodes(config, machine, cost, curve, now)
    if not wanted.reached:
        yield _unmet_objective(config, asked, wanted, now)
    yield Finding.info("autoscale.begins", _PLACE, f"the job would start with {wanted.reason}")
    yield from _ineffective(config, machine, asked)


def why_not_scaled(config: StackConfig, machine: MachineType) -> str:
    """Why `gangway job --scale` cannot scale a stack; empty if it can."""
    if "scaling" not in get_provider(config.provider).adapters:
        return "Gangway cannot resize groups of this provider"
    if machine.backend == "xla":
        return "the slices of one request start and end together"
    if config.cluster.capacity[0].kind == "flex-start":
        return "all nodes of a flex-start rung come with one request"
    return ""


def find_curve(config: StackConfig, machine: MachineType) -> Mapping[int, Band]:
    """Images a second by number of nodes, with checkpoints and interruptions; empty if unknown."""
    least, most = config.cluster.nodes.min, config.cluster.nodes.max
    steps = min(most - least, _MAX_POINTS - 1)
    numbers = [most] if steps == 0 else [least + round(at * (most - least) / steps) for at in range(steps + 1)]
    found = {}
    for nodes in numbers:
        band = throughput(config, machine, nodes).images_per_second
        if band is not None:
            found[nodes] = band.map(partial(_net_rate, config, machine, nodes))
    return {nodes: rate for nodes, rate in found.items() if rate.mid > 0}


def _net_rate(config: StackConfig, machine: MachineType, nodes: int, images_per_sec: float) -> float:
    position = first_in_reach(config, machine) or 0
    hours = stops(config, machine, position, nodes, images_per_sec).hours
    return 0.0 if hours == inf else config.training.kimg * 1000 / hours / 3600


def wanted_nodes(
    config: StackConfig,
    machine: MachineType,
    cost: CostEstimate | None,
    curve: Mapping[int, Band],
    now: datetime,
    *,
    images_done: float = 0.0,
    spent_usd: float = 0.0,
    present: int | None = None,
    since_change_sec: float = inf,
) -> Decision:
    """How many nodes the job should have now. `curve`: not empty; `present`: its current nodes, None in a plan."""
    asked, nodes = config.work.autoscale, config.cluster.nodes.max
    assert asked is not None, "only for autoscaled jobs"
    node_usd, around_usd = None, 0.0
    reserved = plan_rung(config.cluster.capacity[0]).reserved
    if cost is not None:
        lines = [line.hourly for line in rung_lines(config, cost.components, rung_in_use(config, cost))]
        known = [hourly for hourly in lines if hourly is not None]
        node_usd = sum(known) / nodes if known and len(known) == len(lines) else None
        around_usd = cost.hourly - sum(known)
    state = State(
        images_left=max(1.0, config.training.kimg * 1000 - images_done),
        nodes=present,
        since_change_sec=since_change_sec,
        left_sec=inf if asked.deadline is None else (asked.deadline - now).total_seconds(),
        left_usd=inf if asked.budget_usd is None else asked.budget_usd - spent_usd,
        node_usd_per_hour=node_usd,
        around_usd_per_hour=around_usd,
        paid_nodes=nodes if reserved else 0,
        restart_sec=config.estimate.restart_sec,
        images_per_sec=asked.images_per_sec,
        least_images_per_usd=asked.least_images_per_usd,
        hold_sec=asked.hold_minutes * 60,
    )
    paid, why = _affordable(config, curve, node_usd, state)
    found = decide(paid, state)
    if why:
        found = replace(found, reason=f"{found.reason}; {why}", left_out_by=_DOLLARS)
    has_dollars = why or asked.budget_usd is not None or asked.least_images_per_usd is not None
    mark = foreign_mark(cost.in_use) if cost is not None and has_dollars else ""
    return replace(found, reason=f"{found.reason}{mark}") if mark else found


def _affordable(
    config: StackConfig, curve: Mapping[int, Band], node_usd: float | None, state: State
) -> tuple[Mapping[int, Band], str]:
    asked = config.work.controller
    bound, fewest = None if asked is None else asked.bounds.usd_per_hour, min(curve)
    if bound is None:
        return curve, ""
    if node_usd is None:
        most, why = state.nodes or fewest, "the price of another node is unknown"
    else:
        # A limit of exactly three nodes' price allows three, despite rounding.
        most = floor(bound / node_usd * (1 + 1e-9)) if node_usd else max(curve)
        why = f"a node costs {node_usd:.2f} USD an hour"
    most = max(most, state.paid_nodes)
    paid = {nodes: rate for nodes, rate in curve.items() if nodes <= most} or {fewest: curve[fewest]}
    if len(paid) == len(curve):
        return curve, ""
    words = "less than the fewest nodes" if fewest > most else f"at most {max(paid)}"
    return paid, f"the controller's {_DOLLARS}, {bound:g}, allows {words}: {why}"


def _check_budget(config: StackConfig, machine: MachineType, asked: AutoscaleConfig, cost: CostEstimate) -> None:
    if asked.budget_usd is None or first_in_reach(config, machine) is None:
        return
    lines = rung_lines(config, cost.components, rung_in_use(config, cost))
    if any(line.hourly is None for line in lines):
        raise InputError(
            f"{_PLACE}.budget_usd",
            f"the price of {machine.name} in {config.region} is unknown",
            value=asked.budget_usd,
            allowed="only with a known price of the rung in use",
            fix="run `gangway prices refresh`, or leave budget_usd out",
        )
    least = sum(line.hourly or 0.0 for line in lines) / config.cluster.nodes.max
    if asked.budget_usd < least:
        raise InputError(
            f"{_PLACE}.budget_usd",
            "below an hour of one node",
            value=asked.budget_usd,
            allowed=f"at least {least:.2f} USD{foreign_mark(lines)}",
            fix=f"write budget_usd: {ceil(least)}",
        )


def _unmet_objective(config: StackConfig, asked: AutoscaleConfig, wanted: Decision, now: datetime) -> Finding:
    make = Finding.warning if wanted.possible else Finding.error
    keys = [name for name in ("deadline", "images_per_sec", "budget_usd") if getattr(asked, name) is not None]
    never = "will probably not be reached" if wanted.possible else "cannot be reached"
    ways = f"a later deadline than {asked.deadline:%Y-%m-%dT%H:%MZ}" if asked.deadline else f"a lower {keys[0]}"
    more = f"a higher job.controller.{wanted.left_out_by}, which limits the nodes"
    if not wanted.left_out_by:
        more = f"more nodes than cluster.nodes.max ({config.cluster.nodes.max}) if they are faster"
    return make(
        "autoscale.missed",
        f"{_PLACE}.{keys[0]}",
        f"{' and '.join(keys)} {never}: {wanted.reason} (as of {now.astimezone(UTC):%Y-%m-%d %H:%M} UTC)",
        f"allow {ways}, {more}, or less kimg",
    )


def _ineffective(config: StackConfig, machine: MachineType, asked: AutoscaleConfig) -> Iterable[Finding]:
    nodes = config.cluster.nodes
    if nodes.min == nodes.max:
        yield Finding.warning(
            "autoscale.one-number",
            _PLACE,
            f"of no effect: cluster.nodes has one number, {nodes.max}",
            "remove autoscale, or write a cluster.nodes.min below max",
        )
    else:
        yield _scaling_finding(config, machine)
    if asked.least_images_per_usd is not None and plan_rung(config.cluster.capacity[0]).reserved:
        yield Finding.warning(
            "autoscale.paid-anyway",
            f"{_PLACE}.least_images_per_usd",
            "of no effect: the nodes of capacity[0] are paid for, used or not",
            "remove least_images_per_usd",
        )


def _scaling_finding(config: StackConfig, machine: MachineType) -> Finding:
    most, why_not = config.cluster.nodes.max, why_not_scaled(config, machine)
    spot = any(rung.kind == "spot" for rung in config.cluster.capacity)
    stay = (
        "; spot nodes get no notice on Azure, so none are removed"
        if spot and not get_provider(config.provider).has_spot_notice
        else ""
    )
    if not why_not:
        return Finding.info(
            "autoscale.by-command",
            _PLACE,
            f"the group starts with {most} nodes; `gangway job {config.stack_name} --scale`, for example from a timer, "
            f"resizes it; `pulumi up` does not undo that, `up --refresh` does{stay}",
        )
    return Finding.warning(
        "autoscale.told-not-done",
        _PLACE,
        f"the plan and `gangway job` only report the number of nodes; the group always has {most}, and nothing starts "
        f"or stops nodes: {why_not}",
        "change cluster.nodes.max yourself, and run `pulumi up`",
    )


_CONTROLLER = "gangway:job.controller"
_BOUNDS = f"{_CONTROLLER}.bounds"
_FREE = ("loader_threads", "prefetch", "threads")  # may change without bounds, up to the node's cores
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
}  # what a TPU ignores, and why


def controller_findings(config: StackConfig, machine: MachineType, cost: CostEstimate | None) -> Iterable[Finding]:
    """InputError: a bound that is impossible on this machine, or at its price. `cost`: None if nothing is priced."""
    asked = config.work.controller
    if asked is None:
        return
    _check_run(config, machine, asked.bounds)
    _check_watts(machine, asked.bounds)
    if cost is not None:
        _check_money(config, machine, asked, cost)
    yield _summary(config, machine, asked)
    if asked.policy == "fixed" and asked.bounds != Bounds():
        yield Finding.warning(
            "controller.ignored", _BOUNDS, "of no effect: policy fixed changes nothing", "remove bounds, or the policy"
        )
    ignored = _ignored(config, machine)
    for name in asked.bounds.model_fields_set:
        if getattr(asked.bounds, name) and name in ignored:
            yield Finding.warning(
                "controller.ignored", f"{_BOUNDS}.{name}", f"of no effect: {ignored[name]}", f"remove {name}"
            )
    if cost is not None:
        yield from _over_bound(config, machine, asked.bounds, cost)
    if asked.objective in ("energy", "carbon") and machine.backend == "xla":
        yield Finding.warning(
            "controller.no-meter",
            f"{_CONTROLLER}.objective",
            f"{asked.objective} needs an energy meter, which TPUs do not offer to the trainer: the controller will "
            "change nothing, and say so",
            "set objective: time, or cost",
        )
    yield from _excess_threads(machine, asked.bounds)
    yield from _refused_precisions(config, machine, asked.bounds)
    yield from _start_outside(config, machine, asked.bounds)


def _check_run(config: StackConfig, machine: MachineType, bounds: Bounds) -> None:
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
    bound, each = asked.bounds.usd_per_hour, _node_prices(config, machine, cost)
    if not each:
        if asked.objective == "cost" or bound is not None:
            name, value = ("objective", "cost") if asked.objective == "cost" else ("bounds.usd_per_hour", bound)
            raise InputError(
                f"{_CONTROLLER}.{name}",
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
    unmet, each = unmet_caps(config, machine), []
    for position in range(len(config.cluster.capacity)):
        lines = [line.hourly for line in rung_lines(config, cost.components, position)]
        known = [hourly for hourly in lines if hourly is not None]
        if position not in unmet and len(known) == len(lines):
            each.append(sum(known) / config.cluster.nodes.max)
    return each


def _summary(config: StackConfig, machine: MachineType, asked: ControlSettings) -> Finding:
    if asked.policy == "fixed":
        return Finding.info(
            "controller", _CONTROLLER, "policy fixed changes nothing; it is the baseline for other policies"
        )
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
    return Finding.info("controller", _CONTROLLER, f"{message}; unchanged: {', '.join(stays)}" if stays else message)


def _range(bound: tuple[float, float] | tuple[str, ...] | bool) -> str:
    if isinstance(bound, bool):
        return "on or off"
    words = [each if isinstance(each, str) else f"{each:g}" for each in bound]
    return (" or " if isinstance(bound[0], str) else " to ").join(words)


def _ignored(config: StackConfig, machine: MachineType) -> dict[str, str]:
    if machine.backend == "xla":
        return {**_ON_XLA, "nodes": _NODES_UNUSED}
    fixed = {"watts": _NEEDS_ROOT, "nodes": _NODES_UNUSED}
    if why := _fixed_compile(config, machine):
        fixed["compile"] = why
    return fixed


def _fixed_compile(config: StackConfig, machine: MachineType) -> str:
    trained = get_train_config(config, machine)
    if trained.compile == "off":
        return "the job's settings have compile: off"
    if trained.cuda_graphs:
        return "CUDA graphs record the compiled code"
    if not trained.batch_gpu and config.cluster.nodes.max * machine.num_accelerators.value > 1:
        return "with several workers, the compiled graphs average gradients and cannot change"
    return ""


def _over_bound(config: StackConfig, machine: MachineType, bounds: Bounds, cost: CostEstimate) -> Iterable[Finding]:
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


def _excess_threads(machine: MachineType, bounds: Bounds) -> Iterable[Finding]:
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
