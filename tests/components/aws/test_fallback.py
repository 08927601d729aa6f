"""Fill steps: whatever number of nodes is missing above a rung, AWS sets it to at least that many."""

from hypothesis import given
from hypothesis import strategies as st

from components.aws.fallback import plan_fill_steps


def size_after(num_nodes: int, missing: int) -> int:
    """What AWS would set the rung to: the step whose interval holds the breach of the threshold 1."""
    return next(size for beyond, size in reversed(plan_fill_steps(num_nodes)) if missing - 1 >= beyond)


@given(st.integers(1, 512), st.data())
def test_the_steps_always_fill_what_is_missing(num_nodes: int, data: st.DataObject) -> None:
    missing = data.draw(st.integers(1, num_nodes))
    steps = plan_fill_steps(num_nodes)
    assert len(steps) <= 20, "AWS's limit of adjustments a policy"
    assert steps[0][0] == 0
    assert steps[-1][1] == num_nodes
    assert [beyond for beyond, _ in steps] == sorted({beyond for beyond, _ in steps})
    size = size_after(num_nodes, missing)
    assert missing <= size <= num_nodes
    if num_nodes <= 20:
        assert size == missing
