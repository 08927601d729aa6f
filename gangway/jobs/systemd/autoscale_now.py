"""How many nodes a stack's job should have now, from its progress and the plan's figures, and the request to its groups
for that number.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from gangway.components.core.findings import InputError
from gangway.components.estimate.autoscale import Decision
from gangway.jobs.systemd.scaling.base import GroupState, Scaler, find_nodes, get_change, since_change_sec
from gangway.stacks.base.registry import load_adapter, providers_with_adapter
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.autoscale import find_curve, wanted_nodes, why_not_scaled
from gangway.stacks.plan.plan import make_plan
from gangway.stacks.program import get_program

SCALE_FLAG = "--scale"
STALE_AFTER = timedelta(hours=6)
"""Older progress is not used."""
CLOCKS_APART = timedelta(minutes=2)
"""How far a node's clock may be ahead of this machine's."""


def wanted_now(
    config: StackConfig, images_done: int, now: datetime, groups: tuple[GroupState, ...] = ()
) -> Decision | str:
    """For a stack with `job.autoscale`, or why it is unknown. InputError: it cannot be planned."""
    asked = config.work.autoscale
    assert asked is not None, "checked by the caller"
    if asked.deadline is not None and asked.deadline <= now:
        return f"the deadline was {asked.deadline.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    machine, cost = get_program(config.provider).plan(config).machine, make_plan(config).cost
    curve = find_curve(config, machine)
    if not curve:
        return f"the job's speed on {machine.name} is unknown"
    spent_usd = cost.hourly * images_done / curve[max(curve)].mid / 3600
    # A stack's initial number is not a decision, so there is nothing to hold before the first change.
    is_decided = bool(groups) and groups[0].changed_at is not None
    known: Mapping[str, Any] = (
        {"present": find_nodes(groups), "since_change_sec": since_change_sec(groups, now)} if is_decided else {}
    )
    return wanted_nodes(config, machine, cost, curve, now, images_done=images_done, spent_usd=spent_usd, **known)


def autoscale_line(config: StackConfig, images_done: int, now: datetime, unknown: str = "") -> str:
    """See `wanted_now`; planning errors are part of the line, since it is only one of a job's state."""
    try:
        wanted = wanted_now(config, images_done, now)
        why_not = why_not_scaled(config, get_program(config.provider).plan(config).machine)
    except InputError as error:
        return f"autoscale: unknown: {' '.join(str(error).split())}"
    if isinstance(wanted, str):
        return f"autoscale: {wanted}"
    missed = "" if wanted.reached else "; not enough for the target"
    more = " --images N" if unknown else ""
    command = f"`gangway job {config.stack_name} {SCALE_FLAG}{more}`"
    way = f"not applied: {why_not}" if why_not else f"run {command} to apply it"
    doubt = f": {unknown}; at {images_done:,} images it" if unknown else ""
    return f"autoscale{doubt} wants {wanted.reason}{missed} ({way})"


def why_unknown(config: StackConfig, reported_at: datetime | None, now: datetime) -> str:
    """Why progress is too uncertain to resize by; empty if known or not needed. `reported_at`: by its nodes."""
    asked = config.work.autoscale
    if asked is None or (asked.deadline is None and asked.budget_usd is None):
        return ""
    if reported_at is None:
        return "progress is unknown: no node has reported any yet"
    when = f"{reported_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    if reported_at > now + CLOCKS_APART:
        return f"its nodes' last report is of {when}, in the future: a clock is wrong"
    is_stale = now - reported_at > STALE_AFTER
    return f"progress is unknown: its nodes' last report is of {when}" if is_stale else ""


def scale(
    config: StackConfig, scaler: Scaler, names: Sequence[str], images_done: int, now: datetime, *, dry_run: bool = False
) -> list[str]:
    """Requests the wanted nodes unless `dry_run`; what was done, a line each. InputError: the provider refuses."""
    groups = tuple(scaler.get_groups(names))
    asked, wanted = config.work.autoscale, wanted_now(config, images_done, now, groups)
    assert asked is not None, "checked by the caller"
    last = groups[0].last_change
    lines = [f"autoscale: {groups[0].name} {last}"] if last else []
    if isinstance(wanted, str):
        return [*lines, f"autoscale: {wanted}; nothing was changed"]
    change = get_change(groups, wanted, config.cluster.nodes.min, asked.hold_minutes * 60, now)
    if isinstance(change, str):
        return [*lines, f"autoscale wants {wanted.reason}; nothing was changed: {change}"]
    if dry_run:
        would = f"autoscale: {change.group} would change from {change.was} to {change.nodes} nodes: {change.why}"
        return [*lines, would]
    then = scaler.carry_out(change, now)
    done = f"autoscale: {change.group} changed from {change.was} to {change.nodes} nodes: {change.why}"
    return [*lines, f"{done}; {then}" if then else done]


def check_scaled(config: StackConfig) -> None:
    """InputError: the stack has no autoscale, or its provider cannot be scaled."""
    if config.work.autoscale is None:
        raise InputError(
            SCALE_FLAG, "the stack file has no autoscale section", allowed="stacks with gangway:job.autoscale",
            fix=f"add it, such as autoscale: {{images_per_sec: 400}}, or leave {SCALE_FLAG} out",
        )  # fmt: skip
    if why_not := why_not_scaled(config, get_program(config.provider).plan(config).machine):
        raise InputError(
            SCALE_FLAG,
            f"{why_not}, so the number is only reported",
            value=config.provider,
            allowed=", ".join(providers_with_adapter("scaling")),
            fix="change cluster.nodes.max and run `pulumi up`",
        )


def group_names(config: StackConfig, outputs: Mapping[str, Any]) -> list[str]:
    """The ladder's groups, in order. InputError: the stack is not up."""
    names = outputs.get("group_names")
    if not names:
        raise InputError(
            f"pulumi stack output --stack {config.stack_name}", "no group_names: the stack is not up", fix="pulumi up"
        )
    return [str(name) for name in names]


def get_scaler(config: StackConfig, outputs: Mapping[str, Any], names: Sequence[str], *, is_held: bool) -> Scaler:
    """`is_held`: whether the run's bucket says that launches are held. InputError: not logged in."""
    return cast("Scaler", load_adapter(config.provider, "scaling").open_scaler(config, outputs, names, is_held=is_held))
