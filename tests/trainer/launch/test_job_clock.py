"""A job's hours: those in which at least one node is up, whatever wall clocks are set to."""

from hypothesis import given
from hypothesis import strategies as st

from gangway.trainer.launch.job_clock import union_sec, used_sec
from gangway.trainer.launch.node_state import Interval, NodeState

INTERVALS = st.lists(
    st.builds(Interval, began=st.integers(0, 500).map(float), length_sec=st.integers(0, 80).map(float)), max_size=8
)


def nodes(*intervals: list[Interval]) -> dict[str, NodeState]:
    return {str(i): NodeState(seen_at=0, intervals=tuple(each)) for i, each in enumerate(intervals)}


@given(INTERVALS)
def test_a_second_counts_once_however_many_nodes_are_up(intervals: list[Interval]) -> None:
    """Against counting whole seconds one by one."""
    seconds = {second for each in intervals for second in range(int(each.began), int(each.began + each.length_sec))}
    assert union_sec(intervals) == len(seconds)


@given(INTERVALS, INTERVALS)
def test_nobodys_time_is_lost_and_no_time_without_nodes_counts(first: list[Interval], second: list[Interval]) -> None:
    used = used_sec(nodes(first, second))
    own = [sum(each.length_sec for each in intervals) for intervals in (first, second)]
    assert max(own) <= used <= sum(own)
    assert used >= union_sec([*first, *second])


@given(INTERVALS, st.floats(-1e6, 1e6, allow_nan=False))
def test_a_clock_that_jumps_changes_nothing_for_a_node_alone(intervals: list[Interval], jump: float) -> None:
    """Its launchers follow each other, though the clock says that they overlap."""
    apart, total = [], 0.0
    for each in intervals:
        apart.append(Interval(began=total, length_sec=each.length_sec))
        total += each.length_sec
    half = len(apart) // 2
    jumped = [*apart[:half], *(Interval(began=each.began + jump, length_sec=each.length_sec) for each in apart[half:])]
    assert used_sec(nodes(jumped)) >= total - 1e-6
    assert used_sec(nodes(jumped)) <= total + 1e-6
