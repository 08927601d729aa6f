"""What a node says of itself when it starts, fails, is lost and ends, pure. `trainer.launch.job` writes it down."""

from typing import NamedTuple

from trainer.core.errors import EXIT_CODES, EXIT_FAILED, EXIT_HOURS_OVER, EXIT_INTERRUPTED, EXIT_UNFIT
from trainer.launch.failures import WINDOW_SEC
from trainer.launch.node_state import Failure, Interval, NodeState, Standing

KILLED = 128 + 9


class Start(NamedTuple):
    """What a node says first; `again`: somebody has the job begin again that had ended for all; `killed`: the launcher
    before this one was.
    """

    state: NodeState
    again: bool
    killed: bool


def started(before: NodeState | None, now: float, boot_id: str, over: int | None = None) -> Start:
    """A node takes up what it has said before, on this or another machine of its name.

    `over`: with which code the job had ended for all; None where it has not. One that is done has nothing to begin
    again. Otherwise a start on the same boot of a node that had ended with the job is somebody's will, since no service
    starts what has ended for all; on another boot it may be a reboot, or a new machine of the name, of which nobody has
    said anything. A node that was lost is started again by its watch.
    """
    before = before or NodeState(seen_at=now)
    anew = before.standing in (Standing.LOST, Standing.OVER)
    again = before.standing is Standing.OVER and bool(over) and before.boot_id == boot_id
    cut_off = before.standing is Standing.GOING_ON and bool(before.boot_id)
    killed = cut_off and before.boot_id == boot_id
    gone = (before.seen_at,) if cut_off and not killed else ()
    failures = () if anew else tuple(each for each in before.failures if each.at > now - WINDOW_SEC)
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


def seen(state: NodeState, now: float, up_sec: float) -> NodeState:
    """Still there, `up_sec` after its launcher's start."""
    *past, present = state.intervals
    grown = present.model_copy(update={"length_sec": up_sec})
    return state.model_copy(update={"seen_at": now, "intervals": (*past, grown)})


def failed(state: NodeState, now: float, code: int) -> NodeState:
    """Its workers have ended with a code that counts."""
    return state.model_copy(update={"failures": (*state.failures, Failure(at=now, code=code))})


def lost(state: NodeState, now: float) -> NodeState:
    """It has failed for good."""
    return state.model_copy(update={"standing": Standing.LOST, "lost_at": (*state.lost_at, now)})


def told(state: NodeState) -> NodeState:
    """It was told to leave: should its launcher be killed from now on, that is no failure."""
    return state.model_copy(update={"standing": Standing.LEFT})


def ended(state: NodeState, code: int | None) -> NodeState:
    """Its launcher ends with that code; None where it cannot say."""
    standing = Standing.OVER
    if code in (EXIT_INTERRUPTED, EXIT_HOURS_OVER):
        standing = Standing.LEFT
    elif code == EXIT_UNFIT:
        standing = Standing.LOST
    elif code not in EXIT_CODES or code == EXIT_FAILED:
        # It will be started again; but where it was told to leave and was too slow, it is gone.
        standing = state.standing if state.standing is Standing.LEFT else Standing.GOING_ON
    for_good = standing in (Standing.LOST, Standing.OVER)
    return state.model_copy(update={"standing": standing, "boot_id": state.boot_id if for_good else ""})
