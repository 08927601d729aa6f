"""Rules about what a stack file says: its money, and whether a run on spot is saved often enough. Pure.

Most of them are findings that a plan makes anyway; a rule here names such a finding's code, so that the policy pack can
enforce it. What the program says under the engine by itself (`stacks/__main__.py`) is not said again.
"""

from collections.abc import Iterable

from components.capacity import Spot
from components.findings import Finding, Severity
from stacks.planning.ladder_costs import Pace
from stacks.rules.rule import Rule
from stacks.settings.config import StackConfig

__all__ = ["PLAN_REFUSED", "PLAN_RULES", "SPOT_SAVES", "unsaved_spot"]

SAVES = 10
"""Checkpoints that a run is advised which makes none."""

PLAN_REFUSED = Rule(
    code="plan.refused",
    severity=Severity.ERROR,
    holds="The stack file can be planned: its budget lasts for one hour at least",
    path="gangway:budget.monthly_usd",
    fix="",
)
SPOT_SAVES = Rule(
    code="checkpoint.missing",
    severity=Severity.WARNING,
    holds="A run on spot capacity saves a checkpoint before its end",
    path="gangway:job.checkpoint_kimg",
    fix="",
)
_SAID_BY_PLAN = (
    ("budget.below-estimate", Severity.WARNING, "The budget lasts for a month of the stack", "budget.monthly_usd"),
    ("budget.fallback", Severity.WARNING, "The budget lasts for a month on the dearest rung", "budget.monthly_usd"),
    ("budget.unknown-price", Severity.WARNING, "The budget is held against known prices", "budget.monthly_usd"),
    ("capacity.spot-infeasible", Severity.ERROR, "A run on spot capacity is expected to end", "cluster.capacity"),
    ("checkpoint.interval", Severity.WARNING, "A run on spot is saved neither too seldom nor too often", "job"),
    ("prices.stale", Severity.WARNING, "The estimate is made of prices younger than 180 days", "region"),
)
PLAN_RULES: tuple[Rule, ...] = (
    PLAN_REFUSED,
    SPOT_SAVES,
    # What mends it depends on the stack, and each finding says it.
    *(Rule(code, severity, holds, f"gangway:{path}", "") for code, severity, holds, path in _SAID_BY_PLAN),
)
"""Rules whose breaches are findings of a plan, with their codes and severities."""


def unsaved_spot(config: StackConfig, job: Pace) -> Iterable[Finding]:
    """A run on spot that saves only at its end: whatever interrupts it takes all of it."""
    on_spot = [at for at, rung in enumerate(config.cluster.capacity) if isinstance(rung, Spot)]
    if on_spot and job.interval_sec >= config.job.max_hours * 3600:
        advised = float(f"{config.job.kimg / SAVES:.2g}")
        yield Finding(
            SPOT_SAVES.severity,
            SPOT_SAVES.code,
            SPOT_SAVES.path,
            f"a checkpoint every {job.checkpoint_kimg:g} kimg is none before the end of a run that makes "
            f"{config.job.kimg:g} kimg in {config.job.max_hours:g} h: whatever interrupts it on capacity[{on_spot[0]}] "
            "(spot) takes all of it",
            f"set checkpoint_kimg: {advised:g}",
        )
