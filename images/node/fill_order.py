"""Which groups of a capacity ladder to fill, and how far: the decision, whichever cloud they are in. Pure."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Config(Protocol):
    """What of `components.azure.fallback.FallbackConfig` the decision needs."""

    @property
    def together(self) -> bool:
        """Whether one job may have nodes of several groups."""

    @property
    def window(self) -> int:
        """Counts that have to agree."""


def plan_fill(num_nodes_min: int, history: Sequence[Sequence[int]], sizes: Sequence[int]) -> tuple[int, ...]:
    """The size of each group: what it has now, unless it lacked or had too many during the whole history.

    A group needs what the groups above it lack of the minimum. It grows to what it needed in every count of the
    history, shrinks to the most it needed in any: a group above that comes and goes moves nothing. One group grows at
    a time, so that the next one waits until this one has had its chance. The first group's size is not ours.

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


class Decision(NamedTuple):
    """What one look of the head decides.

    Attributes:
        sizes: of each group, to be set.
        active: the group that is filled, where only one may be; to be kept for the next look.
        forget: whether the counts so far say nothing of what comes.
    """

    sizes: tuple[int, ...]
    active: int
    forget: bool


def plan_active(num_nodes_min: int, window: int, history: Sequence[Sequence[int]], active: int) -> int:
    """The group to be filled: the one that is, unless it held fewer than the minimum in each of `window` counts.

    Args:
        num_nodes_min: below which a group is of no use to the job.
        window: counts that have to agree.
        history: counts of running nodes, each in the ladder's order, since `active` became what it is.
        active: the group that is filled now.

    >>> plan_active(2, 3, [[0, 0], [1, 0], [1, 0]], 0)
    1
    """
    if len(history) < window or any(count[active] >= num_nodes_min for count in history[-window:]):
        return active
    return (active + 1) % len(history[-1])


def reconcile(
    config: Config,
    num_nodes: tuple[int, int],
    history: Sequence[Sequence[int]],
    sizes: Sequence[int],
    active: int = 0,
) -> Decision:
    """What to do after a count.

    Args:
        config: the ladder.
        num_nodes: of the job, least and most.
        history: counts of running nodes, each in the ladder's order, as many as are kept.
        sizes: what each group is set to, in the same order.
        active: what the last look said; after a start, the fullest group.

    >>> from types import SimpleNamespace
    >>> apart, together = (SimpleNamespace(together=both, window=10) for both in (False, True))
    >>> reconcile(apart, (2, 4), [[1, 0]] * 10, [4, 0])
    Decision(sizes=(0, 4), active=1, forget=True)
    >>> reconcile(together, (2, 4), [[1, 0]] * 10, [1, 0])
    Decision(sizes=(4, 1), active=0, forget=True)
    """
    least, most = num_nodes
    if config.together:
        enough = len(history) >= config.window
        others = plan_fill(least, history[-config.window :], sizes)[1:] if enough else tuple(sizes[1:])
        return Decision((most, *others), 0, others != tuple(sizes[1:]))
    chosen = plan_active(least, config.window, history, active)
    planned = tuple(most if group == chosen else 0 for group in range(len(sizes)))
    return Decision(planned, chosen, chosen != active)
