"""The circuit breaker of a stack's launches: whether too many nodes gave up recently (`templates/node/common.sh`,
too_many_given_up). Needs only Python 3.10.

    python3 breaker.py LIMIT SECONDS STACK RUN_ID TIME-NODE REASON <LISTING

LISTING: the objects in the run bucket's `breaker/`, one per line with the name last. Names tell which node gave up and
when; contents are not read, since every writer of the bucket could change them. Exit code 0: hold launches; prints
`held.json` unless it exists. 1: continue.
"""

import json
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone

HELD = "held.json"
_NAME = re.compile(r"([0-9]{10})-([A-Za-z0-9][A-Za-z0-9.-]{0,252})")
# How far another node's clock may be ahead.
_MAX_AHEAD_SEC = 300
_MAX_NODES, _MAX_CHARS = 50, 1000


def recent_failures(names: Iterable[str], now: int, seconds: int) -> list[str]:
    """The nodes that gave up in the last `seconds`, the latest last, with repetitions.

    >>> recent_failures(["1700000000-a", "1700003000-b", "held.json", "x-1700003000"], 1700003600, 3600)
    ['b']
    """
    found = (match for name in set(names) if (match := _NAME.fullmatch(name)))
    times = sorted((int(match[1]), match[2]) for match in found)
    return [node for time, node in times if now - seconds < time <= now + _MAX_AHEAD_SEC]


def check_limit(names: Iterable[str], limit: int, seconds: int, mine: str) -> list[str] | None:
    """The failed nodes with `mine` (TIME-NODE); None if fewer than `limit`."""
    nodes = recent_failures([*names, mine], int(mine.partition("-")[0]), seconds)
    return nodes if len(nodes) >= limit else None


def main(argv: Sequence[str]) -> int:
    """Reads the listing and prints held.json."""
    limit, seconds, stack, run_id, mine, reason = argv
    names = [line.split()[-1].rpartition("/")[2] for line in sys.stdin if line.strip()]
    if HELD in names:
        return 0
    nodes = check_limit(names, int(limit), int(seconds), mine)
    if nodes is None:
        return 1
    now, _, node = mine.partition("-")
    held = {
        "version": 1,
        "run_id": run_id,
        "stack": stack,
        "node": node,
        "reason": reason[:_MAX_CHARS],
        "given_up": len(nodes),
        "within_minutes": int(seconds) // 60,
        "nodes": nodes[-_MAX_NODES:],
        "time": datetime.fromtimestamp(int(now), timezone.utc).isoformat(),  # noqa: UP017 - Python 3.10
    }
    print(json.dumps(held))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
