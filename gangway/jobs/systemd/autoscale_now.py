"""How many nodes a job of a stack should have by now, by the images that are done and the plan's figures; and, where
somebody asks for it, that many asked of its groups.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from components.core.findings import InputError
from components.estimate.autoscale import Decision
from gangway.jobs.systemd.scaling.base import GroupState, Scaler, find_nodes, get_change, since_change_sec
from stacks.base.registry import providers_with_adapter
from stacks.config.stack_config import StackConfig
from stacks.estimates.autoscale import find_curve, wanted_nodes, why_not_scaled
from stacks.plan.plan import make_plan
from stacks.program import get_program

SCALE_FLAG = "--scale"
STALE_AFTER = timedelta(hours=6)
"""What is older says too little of a job's progress."""
CLOCKS_APART = timedelta(minutes=2)
"""How much a node's clock may be before this machine's."""


def wanted_now(
    config: StackConfig, images_done: int, now: datetime, groups: tuple[GroupState, ...] = ()
) -> Decision | str:
    """Of a stack with `job.autoscale`, whose groups may be known; or why nobody can tell. What was spent so far is
    taken to be what its images cost on all nodes. InputError: what cannot be planned.
    """
    asked = config.work.autoscale
    assert asked is not None, "whoever asks has looked"
    if asked.deadline is not None and asked.deadline <= now:
        return f"the deadline was {asked.deadline.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    machine, cost = get_program(config.provider).plan(config).machine, make_plan(config).cost
    curve = find_curve(config, machine)
    if not curve:
        return f"nobody knows how fast the job is on {machine.name}"
    spent_usd = cost.hourly * images_done / curve[max(curve)].mid / 3600
    # The number that a stack begins with is nobody's decision: until the first there is none to stay with.
    is_decided = bool(groups) and groups[0].changed_at is not None
    known: Mapping[str, Any] = (
        {"present": find_nodes(groups), "since_change_sec": since_change_sec(groups, now)} if is_decided else {}
    )
    return wanted_nodes(config, machine, cost, curve, now, images_done=images_done, spent_usd=spent_usd, **known)


def autoscale_line(config: StackConfig, images_done: int, now: datetime, unknown: str = "") -> str:
    """A line for people; see `wanted_now`. `unknown`: why nobody knows how many images are done. What cannot be planned
    is told: the rest of a job's state stands beside it.
    """
    try:
        wanted = wanted_now(config, images_done, now)
        why_not = why_not_scaled(config, get_program(config.provider).plan(config).machine)
    except InputError as error:
        return f"autoscale: nobody can tell: {' '.join(str(error).split())}"
    if isinstance(wanted, str):
        return f"autoscale: {wanted}"
    missed = "" if wanted.reached else "; not enough, as expected"
    more = " --images N" if unknown else ""
    known = f"`gangway job {config.stack_name} {SCALE_FLAG}{more}`"
    way = f"not done: {why_not}" if why_not else f"{known} asks for them"
    doubt = f": {unknown}; with {images_done:,} it" if unknown else ""
    return f"autoscale{doubt} would have {wanted.reason}{missed} (told; {way})"


def why_unknown(config: StackConfig, told_at: datetime | None, now: datetime) -> str:
    """Why too little is known of the job's progress to change its nodes by it; empty where it is known, or nothing
    hangs on it. `told_at`: when its nodes last said it.
    """
    asked = config.work.autoscale
    if asked is None or (asked.deadline is None and asked.budget_usd is None):
        return ""
    if told_at is None:
        return "nobody knows how many images are done: no node has said so yet"
    when = f"{told_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    if told_at > now + CLOCKS_APART:
        return f"what its nodes said is of {when}, in the future: one of two clocks is wrong"
    is_stale = now - told_at > STALE_AFTER
    return f"nobody knows how many images are done: what its nodes said last is of {when}" if is_stale else ""


def scale(
    config: StackConfig, scaler: Scaler, names: Sequence[str], images_done: int, now: datetime, *, dry_run: bool = False
) -> list[str]:
    """Asks the stack's groups, `names`, for the nodes that the job should have: nothing with `dry_run`. What was done,
    and why, a line each. InputError: there is nothing to scale by, or the provider refuses.
    """
    groups = tuple(scaler.get_groups(names))
    asked, wanted = config.work.autoscale, wanted_now(config, images_done, now, groups)
    assert asked is not None, "whoever asks has looked"
    last = groups[0].last_change
    lines = [f"autoscale: {groups[0].name} {last}"] if last else []
    if isinstance(wanted, str):
        return [*lines, f"autoscale: {wanted}; nothing was changed"]
    change = get_change(groups, wanted, config.cluster.nodes.min, asked.hold_minutes * 60, now)
    if isinstance(change, str):
        return [*lines, f"autoscale wants {wanted.reason}; nothing was changed: {change}"]
    if dry_run:
        return [
            *lines,
            f"autoscale: {change.group} is to have {change.was} nodes, and would {change.nodes}: {change.why}",
        ]
    then = scaler.carry_out(change, now)
    done = f"autoscale: {change.group} was to have {change.was} nodes, and now {change.nodes}: {change.why}"
    return [*lines, f"{done}; {then}" if then else done]


def check_scaled(config: StackConfig) -> None:
    """InputError: the stack asks for no scaling, or nobody carries it out on its provider."""
    if config.work.autoscale is None:
        raise InputError(
            SCALE_FLAG, "the stack file does not say what to scale by", allowed="with gangway:job.autoscale",
            fix="write autoscale: {images_per_sec: 400}, say, or leave it out",
        )  # fmt: skip
    if why_not := why_not_scaled(config, get_program(config.provider).plan(config).machine):
        raise InputError(
            SCALE_FLAG,
            f"{why_not}: the number is told",
            value=config.provider,
            allowed=", ".join(providers_with_adapter("scaling")),
            fix="change cluster.nodes.max and run `pulumi up`",
        )
