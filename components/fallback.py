"""The decision that keeps the ladder's order where a head node keeps it: which groups to fill, and how far.

Free of any provider's words: what a group is, how its nodes are counted and how it is told its size are the provider
packages' to say (`components.gcp.fallback`, `components.azure.fallback`). Not for AWS, whose alarms do it.
"""

from collections.abc import Sequence

__all__ = ["CONTRACT_VERSION", "PERIOD_SEC", "WINDOW", "plan_fill"]

CONTRACT_VERSION = 1
"""Of the JSON that the head reads."""
PERIOD_SEC = 60
WINDOW = 10
"""Counts that have to agree, one a period. A group that had no capacity for ten minutes has none for now.

Spot nodes that one minute takes away are mostly back by then, and a node that boots counts from its start.
"""


def plan_fill(num_nodes_min: int, history: Sequence[Sequence[int]], sizes: Sequence[int]) -> tuple[int, ...]:
    """The size of each group: what it has now, unless it lacked or had too many during the whole history.

    A group needs what the groups above it lack of the minimum. It grows to what it needed in every count of the
    history, shrinks to the most it needed in any: a group above that comes and goes moves nothing. One group grows at
    a time, so that the next one waits until this one has had its chance. The first group's size is not ours. Free of
    imports, so that its source can run on the head as it is.

    Args:
        num_nodes_min: the number of nodes that the ladder keeps up.
        history: counts of running nodes, each in the ladder's order.
        sizes: what each group is set to, in the same order.

    >>> plan_fill(4, [[1, 0, 0], [2, 0, 0]], [4, 0, 0])
    (4, 2, 0)
    """
    planned, grown = list(sizes[:1]), False
    for group in range(1, len(sizes)):
        needed = [max(0, num_nodes_min - sum(count[:group])) for count in history]
        size = min(max(sizes[group], min(needed)), max(needed))
        if size > sizes[group]:
            size, grown = (sizes[group] if grown else size), True
        planned.append(size)
    return tuple(planned)
