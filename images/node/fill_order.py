"""Plans the sizes of a capacity ladder's groups, for any cloud. Pure."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Config(Protocol):
    """The part of `gangway.components.azure.capacity.FallbackConfig` that the plan needs."""

    @property
    def together(self) -> bool:
        """Whether a job may use nodes of several groups."""

    @property
    def window(self) -> int:
        """Number of counts that must agree."""


def plan_fill(num_nodes_min: int, history: Sequence[Sequence[int]], sizes: Sequence[int]) -> tuple[int, ...]:
    """The size of each group; unchanged unless it was too small or too large in the whole history.

    A group needs what the groups above it lack of the minimum. It grows to the least it needed in the history, and
    shrinks to the most, so that fluctuations above have no effect. Only one group grows at a time, to give it a chance
    before the next. The first group's size is fixed.

    Args:
        num_nodes_min: nodes that the ladder maintains.
        history: counts of running nodes, each in the ladder's order.
        sizes: the groups' current sizes, in the same order.

    >>> plan_fill(4, [[1, 0, 0], [2, 0, 0]], [4, 0, 0])
    (4, 2, 0)
    """
    planned, has_grown = list(sizes[:1]), False
    for group in range(1, len(sizes)):
        needed = [max(0, num_nodes_min - sum(count[:group])) for count in history]
        size = min(max(sizes[group], min(needed)), max(needed))
        if size > sizes[group]:
            size, has_grown = (sizes[group] if has_grown else size), True
        planned.append(size)
    return tuple(planned)


class Decision(NamedTuple):
    """The plan after one count. `sizes`: of the groups; `active`: the group to fill if only one may be, to pass to the
    next call; `forget`: whether to discard the history.
    """

    sizes: tuple[int, ...]
    active: int
    forget: bool


def plan_active(num_nodes_min: int, window: int, history: Sequence[Sequence[int]], active: int) -> int:
    """The group to fill: the active one, unless it had too few nodes in each of the last `window` counts.

    Args:
        num_nodes_min: the job's least number of nodes.
        window: number of counts that must agree.
        history: counts of running nodes, each in the ladder's order, since `active` changed.
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
    """The plan after a count.

    Args:
        config: the ladder.
        num_nodes: of the job, least and most.
        history: counts of running nodes, each in the ladder's order.
        sizes: the groups' current sizes, in the same order.
        active: of the last decision; at the start, the fullest group.

    >>> from types import SimpleNamespace
    >>> apart, together = (SimpleNamespace(together=both, window=10) for both in (False, True))
    >>> reconcile(apart, (2, 4), [[1, 0]] * 10, [4, 0])
    Decision(sizes=(0, 4), active=1, forget=True)
    >>> reconcile(together, (2, 4), [[1, 0]] * 10, [1, 0])
    Decision(sizes=(4, 1), active=0, forget=True)
    """
    least, most = num_nodes
    if config.together:
        is_full = len(history) >= config.window
        others = plan_fill(least, history[-config.window :], sizes)[1:] if is_full else tuple(sizes[1:])
        return Decision((most, *others), 0, others != tuple(sizes[1:]))
    chosen = plan_active(least, config.window, history, active)
    planned = tuple(most if group == chosen else 0 for group in range(len(sizes)))
    return Decision(planned, chosen, chosen != active)
