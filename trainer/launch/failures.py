"""What a failure means, pure: whether it is this node's own, and whether it ends the node or the job for good.

A failure of one node ends nothing for the others.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from gangway.trainer.core.errors import (
    COLLECTIVE_SEC,
    EXIT_BAD_INPUT,
    EXIT_ENDED_FOR_ALL,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_PEERS_LOST,
    EXIT_UNFIT,
    EXIT_UNHEALTHY,
)
from gangway.trainer.launch.node_state import Failure, NodeState, Standing

MAX_FAILURES = 5
WINDOW_SEC = 6 * 3600.0
_HANGS_ALLOWED = 3
_SAME_SEC = 120.0
"""How far apart, clocks included, nodes record one failure."""
_NOTICED_SEC = COLLECTIVE_SEC + _SAME_SEC
"""How long a worker may take to notice that a peer has gone."""
_SILENT_SEC = 300.0
"""A node without a beat for this long is dead: several beats, and the clocks' differences."""
_ABORTED = 128 + 6
"""NCCL aborts a worker whose peers have gone."""
_PEER_CODES = (EXIT_PEERS_LOST, _ABORTED)
_WORKER_CODES = (0, EXIT_BAD_INPUT, EXIT_UNHEALTHY, EXIT_INTERRUPTED, EXIT_PEERS_LOST)


class Nodes(NamedTuple):
    """The fewest nodes that a job needs, and the most it takes."""

    min: int
    max: int


def worker_exit_code(code: int) -> int:
    """Returns the exit code that a launcher passes on for a worker: 128 plus the number of a signal, as in a shell.

    A launcher's own codes and unknown ones count as a failure.

    >>> worker_exit_code(-9), code_of_worker(2), code_of_worker(5)
    (137, 2, 1)
    """
    if code < 0:
        return 128 - code
    return code if code in _WORKER_CODES or code > 128 else EXIT_FAILED


def own_failures(node: str, nodes: Mapping[str, NodeState], now: float) -> int:
    """Returns how many failures within the window are this node's own.

    A failure by lost peers is not, where another node failed by itself or died shortly before.
    """
    troubles = [at for name, state in nodes.items() if name != node for at in _troubles(state, now)]
    return sum(
        failure.at > now - WINDOW_SEC and (failure.code not in _PEER_CODES or not _is_explained(failure, troubles))
        for failure in nodes[node].failures
    )


def _is_explained(failure: Failure, troubles: Iterable[float]) -> bool:
    return any(failure.at - _NOTICED_SEC <= at <= failure.at + _SAME_SEC for at in troubles)


def _troubles(state: NodeState, now: float) -> Iterator[float]:
    """When a node failed by itself, or was last seen before it died, after a power cut for example."""
    yield from (each.at for each in state.failures if each.code not in _PEER_CODES)
    yield from state.gone_at
    if state.standing is Standing.GOING_ON and state.boot_id and state.seen_at < now - _SAME_SEC:
        yield state.seen_at


def ended_for_all(node: str, nodes: Mapping[str, NodeState], job: Nodes, now: float) -> bool:
    """Whether the job cannot continue where `node` has failed for good or waits for peers.

    That is so where every node that joined has failed for good, or all that are still there failed at once; or where as
    many failed as the job takes at most, so that the machines are not the cause, and fewer live than it needs.
    Otherwise new nodes may replace the lost ones. Failures before a user restarted the job do not count.
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
    """Whether several nodes have just failed for good: they share a mistake, not a machine."""
    just_now = [state for state in nodes.values() if state.standing is Standing.LOST and state.lost_at]
    return sum(state.lost_at[-1] > now - _SILENT_SEC for state in just_now) > 1


def is_lost(node: str, nodes: Mapping[str, NodeState], code: int, now: float) -> bool:
    """Whether a node whose workers ended with `code` has failed for good; `nodes` has that failure already."""
    if code == EXIT_BAD_INPUT:
        return True
    return is_failure(code) and own_failures(node, nodes, now) >= MAX_FAILURES


def is_failure(code: int) -> bool:
    """Whether an exit code counts as a failure."""
    return code not in (0, EXIT_BAD_INPUT, EXIT_UNHEALTHY, EXIT_INTERRUPTED)


def is_bad_luck(hangs: int, failures: int) -> bool:
    """Whether workers restart without a failure after `hangs` in a row without progress between them.

    A restarted launcher counts hangs from 0, so failures count too: a run that always hangs at the same image ends
    within the window.
    """
    return hangs + failures <= _HANGS_ALLOWED


def lost_exit_code(node: str, nodes: Mapping[str, NodeState], job: Nodes, code: int, now: float) -> int:
    """Returns the launcher's exit code for a node that has failed for good."""
    if not ended_for_all(node, nodes, job, now):
        return EXIT_UNFIT
    return EXIT_BAD_INPUT if code == EXIT_BAD_INPUT else EXIT_ENDED_FOR_ALL
