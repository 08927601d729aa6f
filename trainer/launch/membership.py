"""What a node says of itself when it starts, fails, is lost and ends, pure. `trainer.launch.job` writes it down."""

from typing import NamedTuple

from trainer.core.errors import EXIT_CODES, EXIT_FAILED, EXIT_HOURS_OVER, EXIT_INTERRUPTED, EXIT_UNFIT
from trainer.launch.failures import WINDOW_SEC
from trainer.launch.node_state import Failure, Interval, NodeState, Standing

KILLED = 128 + 9


class Start(NamedTuple):
    """What a node says first; `anew`: it had ended for good, and somebody has it start again; `killed`: the launcher
    before this one was.
    """

    state: NodeState
    anew: bool
    killed: bool


def started(before: NodeState | None, now: float, boot_id: str, *, over: bool = False) -> Start:
    """A node takes up what it has said before, on this or another machine of its name; `over`: the job had ended for
    all.
    """
    before = before or NodeState(seen_at=now)
    anew = before.standing in (Standing.LOST, Standing.OVER)
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
        again_at=now if anew and over else before.again_at,
    )
    return Start(state, anew, killed)


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
        standing = Standing.GOING_ON  # it will be started again
    return state.model_copy(update={"standing": standing, "boot_id": ""})
