"""Which resources a bill covers: each has a line, is free, is billed by use only, or gets a warning."""

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum

from gangway.components.catalog.billing import load_billing
from gangway.components.core.findings import Finding
from gangway.components.estimate.cost import CostComponent, Declared, get_key


class Coverage(StrEnum):
    """How a bill covers a resource. `PRICED`: by a line, even if its price is unknown."""

    PRICED = "priced"
    FREE = "free"
    BY_USE = "by use"
    NOWHERE = "nowhere"


def is_billable(kind: str) -> bool:
    """Whether a cloud may bill it: components and Pulumi's own resources are free."""
    return not kind.startswith(("gangway:", "pulumi:"))


def coverage(resources: Iterable[Declared], lines: Sequence[CostComponent]) -> dict[str, Coverage]:
    """How the bill covers each resource, by `get_key`."""
    priced, table = {key for line in lines for key in line.of}, load_billing()

    def of(resource: Declared) -> Coverage:
        if get_key(resource.type, resource.name) in priced:
            return Coverage.PRICED
        if table.free_of(resource.type, resource.inputs) is not None:
            return Coverage.FREE
        return Coverage.NOWHERE if table.by_use_of(resource.type) is None else Coverage.BY_USE

    return {get_key(one.type, one.name): of(one) for one in resources if is_billable(one.type)}


def unpriced(resources: Iterable[Declared], lines: Sequence[CostComponent]) -> Iterable[Finding]:
    """Warnings for resources without a line that are not known to be free."""
    found = [key.partition("::")[0] for key, what in coverage(resources, lines).items() if what is Coverage.NOWHERE]
    for kind, number in sorted(Counter(found).items()):
        yield Finding.warning(
            "cost.not-covered",
            "gangway:cluster",
            f"not in the estimate, and not known to be free: {number} x {kind}",
        )
