"""The circuit breaker of a stack's launches: whether so many nodes gave themselves up lately that the next will hardly
do better (`templates/node/common.sh`, too_many_given_up). The same on every cloud, with Python 3.10 alone.

    python3 breaker.py LIMIT SECONDS STACK RUN_ID TIME-NODE REASON <LISTING

LISTING: what the run bucket has in `breaker/`, a line each, its name last. Of objects only names are read: they tell
when which node gave up, and whoever may write the bucket could write anything into them. Exit code 0: nothing is to be
launched any more; what `held.json` says is printed, unless it is there already. 1: go on.
"""

import json
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone

HELD = "held.json"
_NAME = re.compile(r"([0-9]{10})-([A-Za-z0-9][A-Za-z0-9.-]{0,252})")
# How far another node's clock may be ahead.
_AHEAD_SEC = 300
_MOST_NODES, _MOST_CHARS = 50, 1000


def given_up(names: Iterable[str], now: int, seconds: int) -> list[str]:
    """The nodes that gave themselves up in the last `seconds`, the latest last; one as often as it did.

    >>> given_up(["1700000000-a", "1700003000-b", "held.json", "x-1700003000"], 1700003600, 3600)
    ['b']
    """
    found = (match for name in set(names) if (match := _NAME.fullmatch(name)))
    times = sorted((int(match[1]), match[2]) for match in found)
    return [node for time, node in times if now - seconds < time <= now + _AHEAD_SEC]


def opens(names: Iterable[str], limit: int, seconds: int, mine: str) -> list[str] | None:
    """The nodes that are too many, `mine` (TIME-NODE) among them; None while they are fewer than `limit`."""
    nodes = given_up([*names, mine], int(mine.partition("-")[0]), seconds)
    return nodes if len(nodes) >= limit else None


def main(argv: Sequence[str]) -> int:
    """Reads the listing, and decides."""
    limit, seconds, stack, run_id, mine, reason = argv
    names = [line.split()[-1].rpartition("/")[2] for line in sys.stdin if line.strip()]
    if HELD in names:
        return 0
    nodes = opens(names, int(limit), int(seconds), mine)
    if nodes is None:
        return 1
    now, _, node = mine.partition("-")
    held = {
        "version": 1,
        "run_id": run_id,
        "stack": stack,
        "node": node,
        "reason": reason[:_MOST_CHARS],
        "given_up": len(nodes),
        "within_minutes": int(seconds) // 60,
        "nodes": nodes[-_MOST_NODES:],
        "time": datetime.fromtimestamp(int(now), timezone.utc).isoformat(),  # noqa: UP017 - Python 3.10
    }
    print(json.dumps(held))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
