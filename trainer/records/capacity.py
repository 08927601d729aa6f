"""Which kind of capacity a node came from, and what an hour of it costs.

A node's scripts set $GANGWAY_CAPACITY by the cloud's metadata: `spot`, or `on-demand` for whatever is not taken back.
It may change within a run, so each session's record has its nodes' kinds.
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainer.figure import Figure, Frozen

if TYPE_CHECKING:
    from trainer.record import RunContext

__all__ = ["CAPACITY_VARIABLE", "CapacityUse", "by_node", "own_capacity", "price"]

CAPACITY_VARIABLE = "GANGWAY_CAPACITY"
_SPOT = "spot"
_NOT_SPOT = "on-demand"


class CapacityUse(Frozen):
    """Nodes of one kind of capacity in one session, and what they cost.

    Attributes:
        session: its number, from 0.
        capacity: the kind; empty where nobody knows.
        num_nodes: of that kind.
        start: of the session, ISO 8601 UTC.
        end: of the session, ISO 8601 UTC.
        node_hours: nodes x time of training.
        usd_per_hour: price of one such node.
        usd: node hours x price.
    """

    session: int
    capacity: str
    num_nodes: int
    start: str
    end: str
    node_hours: Figure
    usd_per_hour: Figure
    usd: Figure


def own_capacity() -> str:
    """The kind that this node's scripts told; empty without any."""
    return os.environ.get(CAPACITY_VARIABLE, "")


def by_node(told: Sequence[tuple[int, str]]) -> list[str]:
    """The kind of each node, by its rank, of every worker's node rank and kind."""
    return [kind for _, kind in sorted(dict(told).items())]


def price(told: str, context: "RunContext") -> tuple[str, Figure]:
    """The kind of a node that told `told`, and what it costs an hour.

    Metadata tell only spot from the rest: `on-demand` is the ladder's one kind that is not spot, where there is just
    one. A node that told nothing counts as one of the first rung.
    """
    ladder, prices = context.capacity, context.usd_per_hour_by_kind
    firm = [kind for kind in ladder if kind != _SPOT]
    kind = firm[0] if told == _NOT_SPOT and told not in ladder and len(set(firm)) == 1 else told
    if kind in prices:
        return kind, prices[kind]
    first = ladder[0] if ladder else ""
    if kind in ("", first):
        unknown = Figure.absent("USD/h", "the launcher gave no price")
        return kind or (first if len(set(ladder)) == 1 else ""), context.usd_per_hour or unknown
    return kind, Figure.absent("USD/h", f"the launcher gave no price of {kind} nodes")
