"""How many nodes a stack's job should have (`components.estimate.autoscale`): the curve that the plan projects or has
measured, what is asked for, and findings. Who asks for nodes by it: `gangway.jobs.systemd.autoscale_now`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from math import ceil, floor, inf

from components.catalog.schema import MachineType
from components.core.capacity import plan_rung
from components.core.findings import Finding, InputError
from components.estimate.autoscale import Decision, Rate, State, Targets, decide
from components.estimate.cost import CostEstimate, foreign_mark
from stacks.base.registry import get_provider
from stacks.config.sections import AutoscaleConfig
from stacks.config.stack_config import StackConfig
from stacks.estimates.run_costs import first_in_reach, rung_in_use, rung_lines, stops
from stacks.estimates.throughput import throughput

_PLACE = "gangway:job.autoscale"
_DOLLARS = "bounds.usd_per_hour"
"""Providers of whose groups `gangway job --scale` asks for nodes."""
_MOST_LOOKED_AT = 64
"""Numbers of nodes that the curve has; of more, so many that are evenly spread, both ends among them."""


def autoscale_findings(
    config: StackConfig, machine: MachineType, cost: CostEstimate | None, now: datetime
) -> Iterable[Finding]:
    """`cost`: the priced plan; None where nothing is priced, and then money is not spoken of. InputError: a deadline in
    the past, a budget below an hour of one node.
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
            f"nobody knows how fast the job is on {machine.name}: no number of nodes is proposed",
            "write gangway:estimate.images_per_second, as a run has shown it",
        )
        return
    wanted = wanted_nodes(config, machine, cost, curve, now)
    if not wanted.reached:
        yield _missed(config, asked, wanted, now)
    yield Finding.info("autoscale.begins", _PLACE, f"it would begin with {wanted.reason}")
    yield from _in_vain(config, machine, asked)


def why_not_scaled(config: StackConfig, machine: MachineType) -> str:
    """Why `gangway job --scale` asks for no nodes of a stack; empty where it does."""
    if "scaling" not in get_provider(config.provider).adapters:
        return "nobody makes the call for it there"
    if machine.backend == "xla":
        return "the slices of one request come and go together"
    if config.cluster.capacity[0].kind == "flex-start":
        return "all nodes of a flex-start rung come by one request"
    return ""


def find_curve(config: StackConfig, machine: MachineType) -> Mapping[int, Rate]:
    """Images a second by number of nodes, checkpoints and interruptions included; empty where nobody can tell."""
    least, most = config.cluster.nodes.min, config.cluster.nodes.max
    steps = min(most - least, _MOST_LOOKED_AT - 1)
    numbers = [most] if steps == 0 else [least + round(at * (most - least) / steps) for at in range(steps + 1)]
    found = {}
    for nodes in numbers:
        band = throughput(config, machine, nodes).images_per_second
        if band is not None:
            found[nodes] = Rate(*(_kept(config, machine, nodes, each) for each in (band.low, band.mid, band.high)))
    return {nodes: rate for nodes, rate in found.items() if rate.mid > 0}


def _kept(config: StackConfig, machine: MachineType, nodes: int, images_per_sec: float) -> float:
    """With its checkpoints and interruptions on the first rung in reach; 0 where it never ends."""
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
    """What the job should have now. `curve`: not empty; `present`: nodes that it has, None where nobody asks."""
    asked, nodes = config.work.autoscale, config.cluster.nodes.max
    assert asked is not None, "whoever asks has looked"
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
    paid, why = _paid(config, curve, node_usd, state)
    found = decide(targets, paid, state)
    if why:
        found = replace(found, reason=f"{found.reason}; {why}", left_out_by=_DOLLARS)
    has_dollars = why or targets.budget or targets.least_images_per_usd is not None
    mark = foreign_mark(cost.in_use) if cost is not None and has_dollars else ""
    return replace(found, reason=f"{found.reason}{mark}") if mark else found


def _paid(
    config: StackConfig, curve: Mapping[int, Rate], node_usd: float | None, state: State
) -> tuple[Mapping[int, Rate], str]:
    """The numbers that the controller's bound of dollars an hour pays, the fewest and those that are paid for anyway
    in any case; and why not all.
    """
    asked = config.work.controller
    bound, fewest = None if asked is None else asked.bounds.usd_per_hour, min(curve)
    if bound is None:
        return curve, ""
    if node_usd is None:
        most, why = state.nodes or fewest, "nobody knows what one more costs an hour"
    else:
        # A bound of three nodes' price is one of three nodes, whatever the last bit says.
        most = floor(bound / node_usd * (1 + 1e-9)) if node_usd else max(curve)
        why = f"a node costs {node_usd:.2f} USD an hour"
    most = max(most, state.paid_nodes)
    paid = {nodes: rate for nodes, rate in curve.items() if nodes <= most} or {fewest: curve[fewest]}
    if len(paid) == len(curve):
        return curve, ""
    words = "not even the fewest" if fewest > most else f"no more than {max(paid)}"
    return paid, f"{_DOLLARS} of the controller, {bound:g}, pays {words}: {why}"


def _check_deadline(asked: AutoscaleConfig, now: datetime) -> None:
    if asked.deadline is not None and asked.deadline <= now:
        raise InputError(
            f"{_PLACE}.deadline",
            "in the past",
            value=asked.deadline.isoformat(),
            allowed=f"after {now.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
            fix="write a later one, or leave it out",
        )


def _check_budget(config: StackConfig, machine: MachineType, asked: AutoscaleConfig, cost: CostEstimate) -> None:
    """An hour of one node of the rung in use."""
    if asked.budget_usd is None or first_in_reach(config, machine) is None:
        return
    lines = rung_lines(config, cost.components, rung_in_use(config, cost))
    if any(line.hourly is None for line in lines):
        raise InputError(
            f"{_PLACE}.budget_usd",
            f"nobody knows what an hour of {machine.name} costs in {config.region}",
            value=asked.budget_usd,
            allowed="only where the price of the rung in use is known",
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


def _missed(config: StackConfig, asked: AutoscaleConfig, wanted: Decision, now: datetime) -> Finding:
    """An error where even the fast end of what is expected is too slow."""
    make = Finding.warning if wanted.possible else Finding.error
    keys = [name for name in ("deadline", "images_per_sec", "budget_usd") if getattr(asked, name) is not None]
    never = "is not expected to be reached" if wanted.possible else "cannot be reached"
    ways = f"a later deadline than {asked.deadline:%Y-%m-%dT%H:%MZ}" if asked.deadline else f"less of {keys[0]}"
    more = f"more dollars in job.controller.{wanted.left_out_by}, which leaves nodes out"
    if not wanted.left_out_by:
        more = f"more nodes in cluster.nodes.max ({config.cluster.nodes.max}) where they are faster"
    return make(
        "autoscale.missed",
        f"{_PLACE}.{keys[0]}",
        f"{' and '.join(keys)} {never}: {wanted.reason} (seen from {now.astimezone(UTC):%Y-%m-%d %H:%M} UTC)",
        f"allow {ways}, {more}, or less kimg",
    )


def _in_vain(config: StackConfig, machine: MachineType, asked: AutoscaleConfig) -> Iterable[Finding]:
    """What nobody carries out, and what has nothing to choose from."""
    nodes = config.cluster.nodes
    if nodes.min == nodes.max:
        yield Finding.warning(
            "autoscale.one-number",
            _PLACE,
            f"of no effect: cluster.nodes has one number, {nodes.max}",
            "remove autoscale, or write a cluster.nodes.min below max",
        )
    else:
        yield _who_does_it(config, machine)
    if asked.least_images_per_usd is not None and plan_rung(config.cluster.capacity[0]).reserved:
        yield Finding.warning(
            "autoscale.paid-anyway",
            f"{_PLACE}.least_images_per_usd",
            "of no effect: the nodes of capacity[0] are paid for whether they are used or not",
            "remove least_images_per_usd",
        )


def _who_does_it(config: StackConfig, machine: MachineType) -> Finding:
    """A timer of the stack's owner does, where there is a call for it."""
    most, why_not = config.cluster.nodes.max, why_not_scaled(config, machine)
    spot = any(rung.kind == "spot" for rung in config.cluster.capacity)
    stay = (
        "; Azure gives a spot node no notice, and none is sent away"
        if spot and not get_provider(config.provider).has_spot_notice
        else ""
    )
    if not why_not:
        return Finding.info(
            "autoscale.by-command",
            _PLACE,
            f"the group begins with {most}; `gangway job {config.stack_name} --scale`, from a timer, say, asks it for "
            f"what is wanted then; `pulumi up` sees no difference in that, `up --refresh` begins anew{stay}",
        )
    return Finding.warning(
        "autoscale.told-not-done",
        _PLACE,
        f"the number of nodes is told, here and by `gangway job`; the group asks for {most}, as ever, and nobody "
        f"starts or stops nodes by it: {why_not}",
        "change cluster.nodes.max by hand, and run `pulumi up`",
    )
