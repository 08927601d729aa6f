"""What a ladder can have wrong wherever it is built. The rest, that a provider alone can say, is in its package."""

from collections.abc import Iterable, Sequence

from components.capacity import AnyRung
from components.findings import Finding, Severity

__all__ = ["not_sold"]


def not_sold(rung: AnyRung, path: str, machine_type: str, sold: Sequence[str], source: str) -> Iterable[Finding]:
    """Not every machine type is sold in every way.

    Args:
        rung: of the ladder.
        path: config path of the rung.
        machine_type: of the nodes.
        sold: the kinds of rungs it can be had as.
        source: who says so, and when.
    """
    if rung.kind not in sold:
        yield Finding(
            Severity.ERROR,
            "capacity.not-sold",
            f"{path}.kind",
            f"{machine_type} cannot be had as {rung.kind} ({source})",
            f"write one of: {', '.join(sold)}",
        )
