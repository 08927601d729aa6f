"""The job's hours, pure: the time in which at least one of its nodes is up."""

from collections.abc import Iterable, Mapping

from gangway.trainer.launch.node_state import Interval, NodeState


def union_sec(intervals: Iterable[Interval]) -> float:
    """Seconds that lie in at least one of the intervals.

    >>> union_sec(Interval(began=began, length_sec=10) for began in (0, 5, 90))
    25.0
    """
    total, until = 0.0, float("-inf")
    for began, ended in sorted((each.began, each.began + each.length_sec) for each in intervals):
        total += max(0.0, ended - max(began, until))
        until = max(until, ended)
    return total


def used_sec(nodes: Mapping[str, NodeState]) -> float:
    """Returns the used seconds of a job's hours, at least each node's uptime, whatever its wall clock was set to."""
    union = union_sec(each for state in nodes.values() for each in state.intervals)
    return max([union, *(sum(each.length_sec for each in state.intervals) for state in nodes.values())])
