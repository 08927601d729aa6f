"""Resource types that cost nothing or are billed by use alone, and how late each provider's bills are."""

from collections.abc import Mapping
from typing import Any

from gangway.components.catalog.schema import Fact, Frozen
from gangway.components.catalog.tables import table_reader


class FreeTypes(Frozen):
    """Types that cost nothing; with `when`, only resources with these inputs."""

    types: tuple[str, ...]
    usd: Fact[float]
    when: Mapping[str, str | bool] = {}


class ByUse(Frozen):
    """Types billed by use. `per`: the billed unit; `settings`: keys of gangway:estimate that price it."""

    types: tuple[str, ...]
    per: Fact[str]
    settings: tuple[str, ...] = ()


class BillingDelay(Frozen):
    """Typical hours until a budget counts a cost. `asks_every_hours`: the stop's polling; None without any."""

    least_hours: Fact[float]
    most_hours: Fact[float]
    asks_every_hours: Fact[float | None]

    @property
    def stop_hours(self) -> tuple[float, float]:
        """The fewest and the most hours from use until the stop."""
        return self.least_hours.value, self.most_hours.value + (self.asks_every_hours.value or 0.0)


class BillingTable(Frozen):
    """Free and usage-billed types of all providers; `delays` by provider."""

    free: tuple[FreeTypes, ...]
    by_use: tuple[ByUse, ...]
    delays: Mapping[str, BillingDelay]

    def free_of(self, kind: str, inputs: Mapping[str, Any]) -> Fact[float] | None:
        """The fact that a resource of this type is free; None if it may cost something."""
        rows = (row for row in self.free if kind in row.types)
        return next((row.usd for row in rows if all(inputs.get(name) == row.when[name] for name in row.when)), None)

    def by_use_of(self, kind: str) -> ByUse | None:
        """How a resource of this type is billed by use; None if it is not billed by use alone."""
        return next((row for row in self.by_use if kind in row.types), None)


load_billing = table_reader(BillingTable, "billing")
