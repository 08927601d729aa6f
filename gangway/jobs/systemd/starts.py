"""The starts of a stack's custom command, each recorded by its node (images/templates/job/own-node.sh) in the run
folder.

.starts/KEY.NODE.PROCESS.BEGAN     LAST ROUND CAPACITY [CODE [failed]]

Times are seconds since 1970; ROUND and CAPACITY are - if there is none or it is unknown. The job can write to the
folder, so invalid files are reported and not counted.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

from gangway.components.core.visible import visible
from gangway.jobs.base import RunInterval
from gangway.runs.run_store import RunStore

STARTS = ".starts/"
_NAME = re.compile(r"([A-Za-z0-9.-]{1,255})\.\d{1,10}\.(\d{1,11})", re.ASCII)
_LINE = re.compile(r"(\d{1,11}) (-|\d{1,9}(?:\.\d{1,11})?) ([a-z-]{1,40})(?: (\d{1,3}))?( failed)?\s*", re.ASCII)
_MOST_BYTES, _MOST_STARTS = 400, 10_000


@dataclass(frozen=True)
class Start:
    """One start of a command on one node.

    Attributes:
        last: when the node last reported it at work.
        round: in which it met other nodes; empty if it meets none.
        capacity: of its node; empty if unknown.
        code: exit code as in `gangway.jobs.base`, or 5 or 6; None if its node was lost first.
        failed: it counts as a failure.
    """

    node: str
    began: datetime
    last: datetime
    round: str
    capacity: str
    code: int | None
    failed: bool


def read_starts(store: RunStore, key: str) -> tuple[list[Start], list[str]]:
    """Starts of the job with that key, earliest first, and problems with others. StoreFailedError: the folder cannot be
    read.
    """
    prefix, found, problems = f"{STARTS}{key}.", [], []
    names = [name for name in store.names() if name.startswith(prefix)]
    for name in names[:_MOST_STARTS]:
        content = store.read(name, _MOST_BYTES) or b""
        named = _NAME.fullmatch(name.removeprefix(prefix))
        match = _LINE.fullmatch(content.decode("ascii", "replace"))
        if named is None or match is None or int(match[1]) < int(named[2]):
            problems.append(visible(f"{name}: not a start"))
            continue
        found.append(_start(named[1], int(named[2]), match))
    if len(names) > _MOST_STARTS:
        problems.append(f"{len(names)} starts, of which {_MOST_STARTS} are counted")
    return sorted(found, key=lambda start: (start.began, start.node)), problems


def _start(node: str, began: int, match: re.Match[str]) -> Start:
    last, of_round, capacity, code, failed = match.groups()
    return Start(
        node=node,
        began=datetime.fromtimestamp(began, UTC),
        last=datetime.fromtimestamp(int(last), UTC),
        round="" if of_round == "-" else of_round.partition(".")[0],
        capacity="" if capacity == "-" else capacity,
        code=None if code is None else int(code),
        failed=failed is not None,
    )


def count_starts(starts: Iterable[Start]) -> int:
    """How often the job was started; a round of several nodes counts once."""
    return len(_times(starts))


def count_failures(starts: Iterable[Start]) -> int:
    """How often it failed, likewise."""
    return len(_times(start for start in starts if start.failed))


def _times(starts: Iterable[Start]) -> set[tuple[object, ...]]:
    return {(start.round,) if start.round else (start.node, start.began) for start in starts}


def get_run_intervals(starts: Sequence[Start]) -> tuple[RunInterval, ...]:
    """When it was on nodes, and on how many at once."""
    changes: dict[datetime, int] = {}
    for start in starts:
        changes[start.began] = changes.get(start.began, 0) + 1
        changes[start.last] = changes.get(start.last, 0) - 1
    found, nodes = [], 0
    moments = sorted(changes)
    for moment, until in pairwise(moments):
        nodes += changes[moment]
        if nodes:
            found.append(RunInterval(moment, until, nodes))
    return tuple(found)
