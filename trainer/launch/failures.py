"""What a failure means for its node and for the job, how a node's state changes, and what users see of it."""

import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from gangway.trainer.core import errors
from gangway.trainer.core.errors import visible
from gangway.trainer.core.regular_files import read_text_file
from gangway.trainer.launch.node_state import (
    SILENT_SEC,
    Failure,
    Interval,
    JobFolder,
    NodeState,
    Standing,
    used_sec,
)

MAX_FAILURES = 5
WINDOW_SEC = 6 * 3600.0
_HANGS_ALLOWED = 3
_SAME_SEC = 120.0  # How far apart, clocks included, nodes record one failure
_NOTICED_SEC = errors.COLLECTIVE_SEC + _SAME_SEC  # How long a worker may take to notice that a peer has gone
_ABORTED = 128 + 6  # NCCL aborts a worker whose peers have gone
_PEER_CODES = (errors.EXIT_PEERS_LOST, _ABORTED)
_WORKER_CODES = (0, errors.EXIT_BAD_INPUT, errors.EXIT_UNHEALTHY, errors.EXIT_INTERRUPTED, errors.EXIT_PEERS_LOST)


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
    return code if code in _WORKER_CODES or code > 128 else errors.EXIT_FAILED


def own_failures(node: str, nodes: Mapping[str, NodeState], now: float) -> int:
    """Counts this node's own failures within the window: lost peers are none where another node failed just before."""
    troubles = [at for name, state in nodes.items() if name != node for at in _troubles(state, now)]
    return sum(
        each.at > now - WINDOW_SEC
        and not (
            each.code in _PEER_CODES and any(each.at - _NOTICED_SEC <= at <= each.at + _SAME_SEC for at in troubles)
        )
        for each in nodes[node].failures
    )


def _troubles(state: NodeState, now: float) -> Iterator[float]:
    """When a node failed by itself, or was last seen before it died, after a power cut for example."""
    yield from (each.at for each in state.failures if each.code not in _PEER_CODES)
    yield from state.gone_at
    if state.standing is Standing.GOING_ON and state.boot_id and state.seen_at < now - _SAME_SEC:
        yield state.seen_at


def ended_for_all(node: str, nodes: Mapping[str, NodeState], job: Nodes, now: float) -> bool:
    """Whether the job cannot continue where `node` has failed for good or waits for peers.

    So it is where all nodes have failed for good, or several at once; or as many as the job takes, with too few left.
    """
    recent = {name: state for name, state in nodes.items() if state.seen_at > now - WINDOW_SEC}
    going_on = sum(state.standing is Standing.GOING_ON for state in recent.values())
    hopeful = going_on + sum(state.standing is Standing.LEFT for state in recent.values())
    since = max(now - WINDOW_SEC, *(state.again_at for state in nodes.values()))
    lost = sum(at > since for state in nodes.values() for at in state.lost_at)
    alive = sum(state.standing is Standing.GOING_ON and state.seen_at > now - SILENT_SEC for state in recent.values())
    ends = [state.lost_at[-1] for state in nodes.values() if state.standing is Standing.LOST and state.lost_at]
    just_lost = sum(at > now - SILENT_SEC for at in ends)  # several share a mistake, not a machine
    if nodes[node].standing is Standing.LOST and (not hopeful or (not alive and just_lost > 1)):
        return True
    return lost >= job.max and alive < job.min


def is_lost(node: str, nodes: Mapping[str, NodeState], code: int, now: float) -> bool:
    """Whether a node whose workers ended with `code` has failed for good; `nodes` has that failure already."""
    if code == errors.EXIT_BAD_INPUT:
        return True
    return is_failure(code) and own_failures(node, nodes, now) >= MAX_FAILURES


def is_failure(code: int) -> bool:
    """Whether an exit code counts as a failure."""
    return code not in (0, errors.EXIT_BAD_INPUT, errors.EXIT_UNHEALTHY, errors.EXIT_INTERRUPTED)


def is_bad_luck(hangs: int, failures: int) -> bool:
    """Whether workers restart without a failure after `hangs`; failures count too, as a new launcher counts from 0."""
    return hangs + failures <= _HANGS_ALLOWED


def lost_exit_code(node: str, nodes: Mapping[str, NodeState], job: Nodes, code: int, now: float) -> int:
    """Returns the launcher's exit code for a node that has failed for good."""
    if not ended_for_all(node, nodes, job, now):
        return errors.EXIT_UNFIT
    return errors.EXIT_BAD_INPUT if code == errors.EXIT_BAD_INPUT else errors.EXIT_ENDED_FOR_ALL


KILLED = 128 + 9


class Start(NamedTuple):
    """A node's first state. `again`: a user restarted a job that had ended for all; `killed`: the last launcher was."""

    state: NodeState
    again: bool
    killed: bool


def start_state(before: NodeState | None, now: float, boot_id: str, over: int | None = None) -> Start:
    """Continues from a node's last state, on this or another machine of its name; `over`: the code that ended the job.

    A start on the same boot after the end for all is a user's decision, as no service starts such a job.
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


def end_state(state: NodeState, code: int | None) -> NodeState:
    """Records its launcher's exit code; None where unknown."""
    standing = Standing.OVER
    if code in (errors.EXIT_INTERRUPTED, errors.EXIT_HOURS_OVER):
        standing = Standing.LEFT
    elif code == errors.EXIT_UNFIT:
        standing = Standing.LOST
    elif code not in errors.EXIT_CODES or code == errors.EXIT_FAILED:
        # It will be started again, unless it was too slow to stop.
        standing = state.standing if state.standing is Standing.LEFT else Standing.GOING_ON
    for_good = standing in (Standing.LOST, Standing.OVER)
    return state.model_copy(update={"standing": standing, "boot_id": state.boot_id if for_good else ""})


LAUNCH_FOLDER = ".launch"  # In a run's folder; holds a folder per job, named by `gangway.images.shell.life_argv`
_WORDS = r"^[A-Za-z0-9', -]{1,100}$"


class _Change(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    event: str = Field(pattern=_WORDS)
    state: str = Field(pattern=_WORDS)


def lines_of_nodes(run_dir: Path) -> Iterator[str]:
    """Yields a line per job and node with its last state; nothing where no job has a folder."""
    now = time.time()
    for folder in sorted(path for path in (run_dir / LAUNCH_FOLDER).glob("*") if path.is_dir()):
        job = JobFolder(folder, "")
        nodes = job.nodes()
        if not nodes:
            continue
        yield f"job {visible(folder.name)}: {used_sec(nodes) / 3600:.2f} h with a node up"
        for name, state in nodes.items():
            failures = own_failures(name, nodes, now)
            yield (
                f"  {name}: {state.standing}, seen {max(0.0, now - state.seen_at):,.0f} s ago"
                f"{f', {failures} failures within six hours' if failures else ''}{_last_change(folder, name)}"
            )
        if (over := job.over()) is not None:
            yield f"  ended for all with exit code {over.code}, {over.node} says, {_moment(over.at)}"


def _moment(seconds: float) -> str:
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"
    except (OSError, OverflowError, ValueError):
        return f"{seconds:g} s after 1970"


def _last_change(folder: Path, node: str) -> str:
    try:
        *_, last = read_text_file(folder / f"node-{node}.jsonl").splitlines()
        change = _Change.model_validate_json(last)
    except (OSError, ValueError):
        return ""
    return f"; {change.event}: {change.state}"
