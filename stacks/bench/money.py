"""What a stack costs by the plan, and whether the suite's caps still have room for it. Pure arithmetic.

Dollars here are the plan's prices times the hours that a stack stood: an estimate that keeps a cap, never a bill.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from components.findings import InputError
from stacks.bench.journal import Attempt, Progress
from stacks.bench.suite import Item, SuiteConfig

if TYPE_CHECKING:  # the plan loads Pulumi, which a suite on this machine does not need
    from stacks.planning.ladder_costs import RungCost
    from stacks.planning.plan import Plan

__all__ = ["FREE", "Accounts", "Caps", "Rate", "rate_of"]


@dataclass(frozen=True)
class Rate:
    """What a stack costs.

    Attributes:
        usd_per_hour: while it stands.
        usd_at_once: by its start.
        usd_run: a run that takes all of its hours.
        source: where the figures are from.
    """

    usd_per_hour: float
    usd_at_once: float
    usd_run: float
    source: str


Accounts = Sequence[tuple[Item, Progress]]
"""Every item of the suite with what the journal says of it."""

FREE = Rate(0.0, 0.0, 0.0, "this machine: nobody bills it")


def rate_of(plan: "Plan", item: Item, hours: float, place: str) -> Rate:
    """The rate of a planned stack: of its dearest rung, for nobody knows beforehand which one has room.

    Args:
        plan: of the stack, as the item has it.
        item: whose entry may say a price.
        hours: that it may stand at most.
        place: the suite's file.

    Raises:
        InputError: neither the plan nor the suite knows a price, so no cap could be kept.
    """
    at_once = plan.cost.upfront + sum(line.once for line in plan.cost.components)
    if item.stack.usd_per_hour is not None:
        hourly, source = item.stack.usd_per_hour, f"{place}: usd_per_hour"
    elif known := _priced(plan.rungs):
        dearest = max(known, key=lambda rung: rung.hourly or 0.0)
        hourly, source = dearest.hourly or 0.0, f"the plan, rung {dearest.position} ({dearest.kind}), the dearest"
    else:
        raise InputError(
            f"{place}: stack {item.stack.name}",
            "its price is not known, so no cap can be kept",
            allowed="a stack that `gangway plan` can price, or usd_per_hour beside it in the suite",
            fix="add usd_per_hour: what an hour of the whole stack costs you",
        )
    return Rate(hourly, at_once, at_once + hourly * hours, source)


def _priced(rungs: "Iterable[RungCost]") -> "list[RungCost]":
    """The rungs, where each has a price: a cap over some of them would be none."""
    all_rungs = list(rungs)
    return all_rungs if all(rung.hourly is not None for rung in all_rungs) else []


@dataclass(frozen=True)
class Caps:
    """What may be spent: on the whole suite, and on each stack; None for no limit."""

    usd: float | None
    by_stack: dict[str, float]

    @classmethod
    def of(cls, suite: SuiteConfig) -> "Caps":
        """The suite's own."""
        budget = suite.budget
        default = budget.stack_usd if budget else None
        limits = {entry.name: entry.usd_limit or default for entry in suite.stacks}
        return cls(budget.usd if budget else None, {name: usd for name, usd in limits.items() if usd is not None})

    def too_dear(self, rate: Rate, item: Item, all_items: Accounts, now: datetime) -> str:
        """Why `item` is not begun: what a run may cost is more than what is left; empty where it is not."""
        for what, limit, spent in self._accounts(item, all_items, now):
            if rate.usd_run > limit - spent:
                return (
                    f"refused: a run may cost ${rate.usd_run:,.2f} by {rate.source}, and of the ${limit:,.2f} "
                    f"for {what} ${max(limit - spent, 0):,.2f} are left"
                )
        return ""

    def exceeded(self, item: Item, all_items: Accounts, now: datetime) -> str:
        """Why `item`, which stands, has to go; empty where there is room."""
        for what, limit, spent in self._accounts(item, all_items, now):
            if spent > limit:
                return f"over the cap: ${spent:,.2f} of the ${limit:,.2f} for {what} are spent"
        return ""

    def _accounts(self, item: Item, all_items: Accounts, now: datetime) -> Iterable[tuple[str, float, float]]:
        if item.stack.name in self.by_stack:
            own = [progress for other, progress in all_items if other.stack.name == item.stack.name]
            yield f"stack {item.stack.name}", self.by_stack[item.stack.name], _spent(own, now)
        if self.usd is not None:
            yield "the suite", self.usd, _spent((progress for _, progress in all_items), now)


def _spent(progresses: Iterable[Progress], now: datetime) -> float:
    attempts: list[Attempt] = [attempt for progress in progresses for attempt in progress.attempts]
    return sum(attempt.usd(now) for attempt in attempts)
