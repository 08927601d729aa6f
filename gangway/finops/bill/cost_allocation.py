"""Allocates charges to runs, to their stacks, or to neither.

A charge belongs to the run in its run tag. If that is `shared` or missing, it is split by node-hours over the stack's
runs during its period. Without such runs it is unexplained cost of the stack: booting, waiting, storage between runs.
Without a stack's tag it is untagged, unless the same resource has the tag elsewhere in the bill (AWS tags charges only
from the day the tag was activated). The parts add up to the bill.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import attrgetter

from gangway.finops.bill.charge import Charge, word

_SHARED = "shared"
_SEVERAL = ""


@dataclass(frozen=True)
class Span:
    """`num_nodes` machines from `start` to `end`, UTC."""

    start: datetime
    end: datetime
    num_nodes: int


@dataclass(frozen=True)
class Window:
    """Where and when a run ran."""

    run_id: str
    provider: str
    stack: str
    spans: tuple[Span, ...]

    def node_seconds(self, start: datetime, end: datetime) -> float:
        """Node-seconds used between `start` and `end`."""
        return sum(
            max(0.0, (min(end, span.end) - max(start, span.start)).total_seconds()) * span.num_nodes
            for span in self.spans
        )


@dataclass
class Sums:
    """US dollars. `compute_usd`: of machines, None if unknown; `num_charges`: parts of one count as one."""

    usd: float = 0.0
    compute_usd: float | None = 0.0
    num_charges: int = 0
    by_service: Counter[str] = field(default_factory=Counter)
    by_category: Counter[str] = field(default_factory=Counter)
    first: datetime | None = None
    last: datetime | None = None
    longest_sec: float = 0.0

    def add(self, charge: Charge, usd: float) -> None:
        """Add `usd` of a charge."""
        start, end = charge.charge_period_start, charge.charge_period_end
        self.usd += usd
        if not charge.service_category:
            self.compute_usd = None
        elif self.compute_usd is not None and charge.service_category == "Compute":
            self.compute_usd += usd
        self.num_charges += 1
        self.by_service[charge.service_name] += usd  # type: ignore[assignment]  # a Counter of floats adds them up too
        self.by_category[charge.charge_category] += usd  # type: ignore[assignment]  # as above
        self.first = start if self.first is None else min(self.first, start)
        self.last = end if self.last is None else max(self.last, end)
        if charge.charge_category == "Usage":
            self.longest_sec = max(self.longest_sec, (end - start).total_seconds())


effective, billed = attrgetter("effective_cost"), attrgetter("billed_cost")
"""The cost with prepayments spread over their use, and that on the invoice."""


class CostAllocation:
    """Sums of charges by owner. `windows`: of runs with a record; `cost`: `effective` or `billed`; `rates`: US dollars
    per unit of other currencies; `known`: stacks by resource, for resources tagged elsewhere.

    Attributes:
        unexplained: by provider and stack, with a stack's tag but no active run.
        untagged: by provider, without a stack's tag.
        foreign: by currency, of charges in a currency without a rate; in no other sum.
        foreign_runs: the currencies of such charges by run.
    """

    def __init__(
        self,
        windows: Sequence[Window],
        cost: Callable[[Charge], float] = effective,
        rates: Mapping[str, float] | None = None,
        known: Mapping[str, str] | None = None,
    ) -> None:
        self._cost, self._rates, self._known = cost, {**(rates or {}), "USD": 1.0}, known or {}
        self._by_stack: dict[tuple[str, str], list[Window]] = {}
        self._by_run = {(window.provider, word(window.run_id)): window for window in windows}
        for window in windows:
            self._by_stack.setdefault((window.provider, word(window.stack)), []).append(window)
        self.runs = {window.run_id: Sums() for window in windows}
        self.unexplained: dict[tuple[str, str], Sums] = {}
        self.untagged: dict[str, Sums] = {}
        self.total = Sums()
        self.foreign: dict[str, float] = {}
        self.foreign_runs: dict[str, set[str]] = {}
        self._stack_by_resource: dict[str, str] = {}
        self._untagged_resources: set[str] = set()

    def add(self, charge: Charge) -> None:
        """Allocate a charge."""
        rate = self._rates.get(charge.billing_currency)
        stack, provider = self._find_stack(charge), charge.service_provider_name
        if rate is None:
            self._add_foreign(charge, stack)
            return
        usd = self._cost(charge) * rate
        self.total.add(charge, usd)
        if stack is None:
            self.untagged.setdefault(provider, Sums()).add(charge, usd)
            return
        shares = self._shares(charge, stack)
        for run_id, share in shares.items():
            self.runs[run_id].add(charge, usd * share)
        if not shares:
            self.unexplained.setdefault((provider, stack), Sums()).add(charge, usd)

    def _add_foreign(self, charge: Charge, stack: str | None) -> None:
        currency = charge.billing_currency
        self.foreign[currency] = self.foreign.get(currency, 0.0) + self._cost(charge)
        for run_id in {} if stack is None else self._shares(charge, stack):
            self.foreign_runs.setdefault(run_id, set()).add(currency)

    def _find_stack(self, charge: Charge) -> str | None:
        stack = charge.tags.get("gangway_stack")
        resource = charge.resource_id
        if stack:
            if resource and self._stack_by_resource.setdefault(resource, stack) != stack:
                self._stack_by_resource[resource] = _SEVERAL
            return stack
        if resource:
            self._untagged_resources.add(resource)
        return self._known.get(resource)

    def _shares(self, charge: Charge, stack: str) -> dict[str, float]:
        """Shares of runs in a charge; they add up to 1, or there are none."""
        provider = charge.service_provider_name
        run_tag = charge.tags.get("gangway_run", _SHARED)
        if run_tag != _SHARED:
            run = self._by_run.get((provider, word(run_tag)))
            return {} if run is None else {run.run_id: 1.0}
        start = charge.charge_period_start
        end = max(charge.charge_period_end, start + timedelta(seconds=1))
        used = {
            window.run_id: window.node_seconds(start, end) for window in self._by_stack.get((provider, word(stack)), ())
        }
        total = sum(used.values())
        return {run_id: seconds / total for run_id, seconds in used.items() if seconds}

    @property
    def late(self) -> dict[str, str]:
        """The stacks of resources charged both with and without their tag, unless ambiguous."""
        return {
            resource: stack
            for resource, stack in self._stack_by_resource.items()
            if stack != _SEVERAL and resource in self._untagged_resources
        }
