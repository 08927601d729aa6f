"""What a failure means, pure: whether it is this node's own, whether the node has failed for good, and whether the job
has ended for all. A failure of one node ends nothing for the others.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from trainer.core.errors import (
    COLLECTIVE_SEC,
    EXIT_BAD_INPUT,
    EXIT_ENDED_FOR_ALL,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_PEERS_LOST,
    EXIT_UNFIT,
    EXIT_UNHEALTHY,
)
from trainer.launch.node_state import Failure, NodeState, Standing

ALLOWED = 5
WINDOW_SEC = 6 * 3600.0
_HANGS_ALLOWED = 3
_SAME_SEC = 120.0
"""How far apart, clocks included, nodes write down one failure."""
_NOTICED_SEC = COLLECTIVE_SEC + _SAME_SEC
"""How long after a peer has gone a worker may notice at the latest."""
_SILENT_SEC = 300.0
"""Without a sign of life, several beats and the clocks' differences long, a node is not there."""
_ABORTED = 128 + 6
"""NCCL aborts a worker whose peers have gone."""
_OF_OTHERS = (EXIT_PEERS_LOST, _ABORTED)
_PASSED_ON = (0, EXIT_BAD_INPUT, EXIT_UNHEALTHY, EXIT_INTERRUPTED, EXIT_PEERS_LOST)


class Nodes(NamedTuple):
    """The fewest nodes with which a job goes on, and the most it takes."""

    min: int
    max: int


def code_of_worker(code: int) -> int:
    """A worker's exit code as a launcher passes it on: negative, the signal that ended it, as a shell has it (128 and
    its number); one that only a launcher may say, or nobody knows, as a failure.

    >>> code_of_worker(-9), code_of_worker(2), code_of_worker(5)
    (137, 2, 1)
    """
    if code < 0:
        return 128 - code
    return code if code in _PASSED_ON or code > 128 else EXIT_FAILED


def own_failures(node: str, nodes: Mapping[str, NodeState], now: float) -> int:
    """How many failures within the window are this node's own. One that comes of losing peers is not where another node
    had one of its own, or was gone without a word, shortly before.
    """
    troubles = [at for name, state in nodes.items() if name != node for at in _troubles(state, now)]
    return sum(
        failure.at > now - WINDOW_SEC and (failure.code not in _OF_OTHERS or not _explained(failure, troubles))
        for failure in nodes[node].failures
    )


def _explained(failure: Failure, troubles: Iterable[float]) -> bool:
    return any(failure.at - _NOTICED_SEC <= at <= failure.at + _SAME_SEC for at in troubles)


def _troubles(state: NodeState, now: float) -> Iterator[float]:
    """When a node failed by itself, or was last seen before it was gone without a word, as where its power fails."""
    yield from (each.at for each in state.failures if each.code not in _OF_OTHERS)
    yield from state.gone_at
    if state.standing is Standing.GOING_ON and state.boot_id and state.seen_at < now - _SAME_SEC:
        yield state.seen_at


def ended_for_all(node: str, nodes: Mapping[str, NodeState], job: Nodes, now: float) -> bool:
    """Whether nothing is left to hope for where `node` has failed for good or waits for peers.

    Every node that has come has failed for good, or all that are still there have at once, whoever was taken back
    before; or as many have as the job takes at most, so that it is not the machines, and fewer are alive than it needs.
    As long as none of these holds, others may come in the place of those lost.
    What was before somebody had the job begin again does not count.
    """
    recent = {name: state for name, state in nodes.items() if state.seen_at > now - WINDOW_SEC}
    going_on = sum(state.standing is Standing.GOING_ON for state in recent.values())
    hopeful = going_on + sum(state.standing is Standing.LEFT for state in recent.values())
    since = max(now - WINDOW_SEC, *(state.again_at for state in nodes.values()))
    lost = sum(at > since for state in nodes.values() for at in state.lost_at)
    alive = sum(state.standing is Standing.GOING_ON and state.seen_at > now - _SILENT_SEC for state in recent.values())
    if nodes[node].standing is Standing.LOST and (not hopeful or (not alive and _lost_together(nodes, now))):
        return True
    return lost >= job.max and alive < job.min


def _lost_together(nodes: Mapping[str, NodeState], now: float) -> bool:
    """Whether several nodes have just failed for good: what they share is a mistake, and no machine."""
    just_now = [state for state in nodes.values() if state.standing is Standing.LOST and state.lost_at]
    return sum(state.lost_at[-1] > now - _SILENT_SEC for state in just_now) > 1


def is_lost(node: str, nodes: Mapping[str, NodeState], code: int, now: float) -> bool:
    """Whether a node whose workers have ended so has failed for good; their failure is in `nodes` already."""
    if code == EXIT_BAD_INPUT:
        return True
    return is_failure(code) and own_failures(node, nodes, now) >= ALLOWED


def is_failure(code: int) -> bool:
    """Whether it counts."""
    return code not in (0, EXIT_BAD_INPUT, EXIT_UNHEALTHY, EXIT_INTERRUPTED)


def is_bad_luck(hangs: int, failures: int) -> bool:
    """Whether workers that hung meet anew without a failure: `hangs` in a row, the run no further than ever between
    them, on a node with so many failures. A launcher that is started again counts hangs from none, so that failures
    make it less patient, and what hangs at the same image each time comes to an end within the window.
    """
    return hangs + failures <= _HANGS_ALLOWED


def code_of_lost(node: str, nodes: Mapping[str, NodeState], job: Nodes, code: int, now: float) -> int:
    """What the launcher of a node ends with that has failed for good."""
    if not ended_for_all(node, nodes, job, now):
        return EXIT_UNFIT
    return EXIT_BAD_INPUT if code == EXIT_BAD_INPUT else EXIT_ENDED_FOR_ALL
