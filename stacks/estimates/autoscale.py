"""How many nodes a stack's job should have: speed curve, objective and findings.
`gangway.components.estimate.autoscale` decides, `gangway.jobs.systemd.autoscale_now` requests the nodes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from math import ceil, floor, inf

from gangway.components.catalog.schema import MachineType
from gangway.components.core.capacity import plan_rung
from gangway.components.core.findings import Finding, InputError
from gangway.components.estimate.autoscale import Decision, Rate, State, Targets, decide
from gangway.components.estimate.cost import CostEstimate, foreign_mark
from gangway.stacks.base.registry import get_provider
from gangway.stacks.config.sections import AutoscaleConfig
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.run_costs import first_in_reach, rung_in_use, rung_lines, stops
from gangway.stacks.estimates.throughput import throughput

_PLACE = "gangway:job.autoscale"
_DOLLARS = "bounds.usd_per_hour"
_MAX_POINTS = 64
"""Most points of the curve; of more node counts, evenly spaced ones with both ends."""


def autoscale_findings(
    config: StackConfig, machine: MachineType, cost: CostEstimate | None, now: datetime
) -> Iterable[Finding]:
    """Findings about autoscale. `cost`: None if nothing is priced. InputError: a deadline in the past, or a budget
    below an hour of one node.
    """
    asked = config.work.autoscale
    if asked is None:
        return
    _check_deadline(asked, now)
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


def find_curve(config: StackConfig, machine: MachineType) -> Mapping[int, Rate]:
    """Images a second by number of nodes, with checkpoints and interruptions; empty if unknown."""
    least, most = config.cluster.nodes.min, config.cluster.nodes.max
    steps = min(most - least, _MAX_POINTS - 1)
    numbers = [most] if steps == 0 else [least + round(at * (most - least) / steps) for at in range(steps + 1)]
    found = {}
    for nodes in numbers:
        band = throughput(config, machine, nodes).images_per_second
        if band is not None:
            found[nodes] = Rate(*(_net_rate(config, machine, nodes, each) for each in (band.low, band.mid, band.high)))
    return {nodes: rate for nodes, rate in found.items() if rate.mid > 0}


def _net_rate(config: StackConfig, machine: MachineType, nodes: int, images_per_sec: float) -> float:
    """Images a second with checkpoints and interruptions on the first rung in reach; 0 if the run never ends."""
    position = first_in_reach(config, machine) or 0
    hours = stops(config, machine, position, nodes, images_per_sec).hours
    return 0.0 if hours == inf else config.training.kimg * 1000 / hours / 3600


def wanted_nodes(
    config: StackConfig,
    machine: MachineType,
    cost: CostEstimate | None,
    curve: Mapping[int, Rate],
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
    )
    targets = Targets(
        deadline=asked.deadline is not None,
        images_per_sec=asked.images_per_sec,
        budget=asked.budget_usd is not None,
        least_images_per_usd=asked.least_images_per_usd,
        hold_sec=asked.hold_minutes * 60,
    )
    paid, why = _affordable(config, curve, node_usd, state)
    found = decide(targets, paid, state)
    if why:
        found = replace(found, reason=f"{found.reason}; {why}", left_out_by=_DOLLARS)
    has_dollars = why or targets.budget or targets.least_images_per_usd is not None
    mark = foreign_mark(cost.in_use) if cost is not None and has_dollars else ""
    return replace(found, reason=f"{found.reason}{mark}") if mark else found


def _affordable(
    config: StackConfig, curve: Mapping[int, Rate], node_usd: float | None, state: State
) -> tuple[Mapping[int, Rate], str]:
    """The node counts within the controller's limit of dollars an hour, and the reason if some are not. The fewest
    nodes and reserved ones are always included.
    """
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


def _check_deadline(asked: AutoscaleConfig, now: datetime) -> None:
    if asked.deadline is not None and asked.deadline <= now:
        raise InputError(
            f"{_PLACE}.deadline",
            "in the past",
            value=asked.deadline.isoformat(),
            allowed=f"after {now.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
            fix="write a later time, or leave it out",
        )


def _check_budget(config: StackConfig, machine: MachineType, asked: AutoscaleConfig, cost: CostEstimate) -> None:
    """InputError: the budget is below an hour of one node of the rung in use, or its price is unknown."""
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
    """An error if even the fast end of the expected speed is too slow."""
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
    """Settings without effect, and who scales the group."""
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
