"""How many nodes a job of a stack should have by now, out of its record's images and the plan's figures."""

from datetime import UTC, datetime

from stacks.config.stack_config import StackConfig
from stacks.planning.autoscale import curve_of, wanted_nodes
from stacks.planning.plan import make_plan
from stacks.program import program_of


def autoscale_line(config: StackConfig, images_done: int, now: datetime) -> str:
    """A line for people about a stack with `job.autoscale`. What was spent so far is taken to be what its images cost
    on all nodes. InputError: what cannot be planned.
    """
    asked = config.job.autoscale
    assert asked is not None, "whoever asks has looked"
    if asked.deadline is not None and asked.deadline <= now:
        return f"autoscale: the deadline was {asked.deadline.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    machine, cost = program_of(config.provider).plan(config).machine, make_plan(config).cost
    curve = curve_of(config, machine)
    if not curve:
        return f"autoscale: nobody knows how fast the job is on {machine.name}"
    spent_usd = cost.hourly * images_done / curve[max(curve)].mid / 3600
    wanted = wanted_nodes(config, machine, cost, curve, now, images_done=images_done, spent_usd=spent_usd)
    missed = "" if wanted.reached else "; not enough, as expected"
    return f"autoscale would have {wanted.reason}{missed} (told, not done)"
