"""A node's state when it starts, fails, is lost and ends, pure. `gangway.trainer.launch.job` writes it."""

from typing import NamedTuple

from gangway.trainer.core.errors import EXIT_CODES, EXIT_FAILED, EXIT_HOURS_OVER, EXIT_INTERRUPTED, EXIT_UNFIT
from gangway.trainer.launch.failures import WINDOW_SEC
from gangway.trainer.launch.node_state import Failure, Interval, NodeState, Standing

KILLED = 128 + 9


class Start(NamedTuple):
    """A node's first state. `again`: a user restarted a job that had ended for all; `killed`: the last launcher was."""

    state: NodeState
    again: bool
    killed: bool


def start(before: NodeState | None, now: float, boot_id: str, over: int | None = None) -> Start:
    """Continues from a node's last state, on this or another machine of its name.

    `over` is the code with which the job ended for all; None where it has not. A job that is done does not restart.
    Otherwise a start on the same boot is a user's decision, as no service starts a job that has ended for all; on
    another boot it may be a reboot or a new machine. A lost node is started again by its watch.
    """
    before = before or NodeState(seen_at=now)
    is_reset = before.standing in (Standing.LOST, Standing.OVER)
    again = before.standing is Standing.OVER and bool(over) and before.boot_id == boot_id
    is_cut_off = before.standing is Standing.GOING_ON and bool(before.boot_id)
    killed = is_cut_off and before.boot_id == boot_id
    gone = (before.seen_at,) if is_cut_off and not killed else ()
    failures = () if is_reset else tuple(each for each in before.failures if each.at > now - WINDOW_SEC)
    if killed:
        failures = (*failures, Failure(at=before.seen_at, code=KILLED))
    state = NodeState(
        seen_at=now,
        boot_id=boot_id,
        intervals=(*before.intervals, Interval(began=now, length_sec=0)),
        failures=failures,
        lost_at=tuple(at for at in before.lost_at if at > now - WINDOW_SEC),
        gone_at=tuple(at for at in (*before.gone_at, *gone) if at > now - WINDOW_SEC),
        again_at=now if again else before.again_at,
    )
    return Start(state, again, killed)


def mark_seen(state: NodeState, now: float, up_sec: float) -> NodeState:
    """Records that the node lives, `up_sec` after its launcher's start."""
    *past, present = state.intervals
    grown = present.model_copy(update={"length_sec": up_sec})
    return state.model_copy(update={"seen_at": now, "intervals": (*past, grown)})


def add_failure(state: NodeState, now: float, code: int) -> NodeState:
    """Records that its workers ended with a code that counts."""
    return state.model_copy(update={"failures": (*state.failures, Failure(at=now, code=code))})


def mark_lost(state: NodeState, now: float) -> NodeState:
    """Records that it has failed for good."""
    return state.model_copy(update={"standing": Standing.LOST, "lost_at": (*state.lost_at, now)})


def mark_leaving(state: NodeState) -> NodeState:
    """Records a signal to stop: if its launcher is killed from now on, that is no failure."""
    return state.model_copy(update={"standing": Standing.LEFT})


def end(state: NodeState, code: int | None) -> NodeState:
    """Records its launcher's exit code; None where unknown."""
    standing = Standing.OVER
    if code in (EXIT_INTERRUPTED, EXIT_HOURS_OVER):
        standing = Standing.LEFT
    elif code == EXIT_UNFIT:
        standing = Standing.LOST
    elif code not in EXIT_CODES or code == EXIT_FAILED:
        # It will be started again, unless it was too slow to stop.
        standing = state.standing if state.standing is Standing.LEFT else Standing.GOING_ON
    for_good = standing in (Standing.LOST, Standing.OVER)
    return state.model_copy(update={"standing": standing, "boot_id": state.boot_id if for_good else ""})
