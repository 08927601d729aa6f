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
        InputError: a part has a price neither in the plan nor in the suite, so that no cap could be kept; or the suite
            says a price that the plan knows, or one below that of the parts which the plan does know.
    """
    where, own = f"{place}: stack {item.stack.name}", item.stack.usd_per_hour
    at_once = plan.cost.upfront + sum(line.once for line in plan.cost.components)
    dearest = max(plan.rungs, key=lambda rung: rung.hourly or 0.0)
    known, missing = dearest.hourly or 0.0, _unpriced(plan)
    if own is None and missing:
        raise InputError(
            where,
            f"its price is not known, so no cap can be kept: without {'; '.join(missing)}",
            allowed="a stack that `gangway plan` can price, or usd_per_hour beside it in the suite",
            fix="add usd_per_hour: what an hour of the whole stack costs you",
        )
    if own is not None and not missing:
        raise InputError(
            f"{where}: usd_per_hour", "the plan knows the price, and caps are kept by that", value=own,
            allowed=f"usd_per_hour only where a part has no price; the plan says {known:.2f}", fix="leave it out",
        )  # fmt: skip
    if own is not None and own < known:
        raise InputError(
            f"{where}: usd_per_hour", "below what the parts with a price cost already", value=own,
            allowed=f"{known:.2f} or more, since {'; '.join(missing)} come on top",
            fix="write what an hour of the whole stack costs you",
        )  # fmt: skip
    if own is not None:
        hourly, source = own, f"{place}: usd_per_hour"
    else:
        hourly, source = known, f"the plan, rung {dearest.position} ({dearest.kind}), the dearest"
    return Rate(hourly, at_once, at_once + hourly * hours, source)


def _unpriced(plan: "Plan") -> list[str]:
    """What has no price: a cap over some of the rungs, or some of the parts, would be none."""
    rungs = [f"rung {rung.position} ({rung.kind})" for rung in plan.rungs if rung.hourly is None]
    return [*rungs, *plan.cost.unknown]


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
