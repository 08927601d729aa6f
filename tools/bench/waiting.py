"""How OpenMP's threads wait, alone and beside a busy process: the same small step in turn, as ratios in one run."""

import sys
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from gangway.trainer.core.host import WAIT_POLICY
from tools.bench.measuring import TITLES, Bench, absent, ahead, medians
from tools.bench.results import Result
from tools.bench.runs import Loop, Side, environment

_BATCH, _WIDTH = 64, 16
"""Small, so that threads meet often for little work."""
_PLACES = ("alone", "beside a busy process")
_PASSIVE, _SPINNING, _SINGLE = "passive", "spinning", "one thread"
_SPINS = "GOMP_SPINCOUNT"
_VARIABLES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        _PASSIVE: {WAIT_POLICY: "PASSIVE", _SPINS: "0"},
        _SPINNING: {
            _SPINS: "300000"
        },  # libgomp's default where neither variable is set, see gangway.trainer.core.host.wait_passively
        _SINGLE: {},
    }
)
_BUSY = """
import json, sys, time
with open(sys.argv[1], "a", buffering=1) as lines:
    while True:
        print(json.dumps({"images": 0, "time": time.time()}), file=lines)
        for _ in range(2_000_000):
            pass
"""


def waiting(bench: Bench) -> Iterator[Result]:
    """Threads that sleep while they wait, against threads that spin and against one thread."""
    if bench.threads < 2:
        yield from absent("waiting", "a single core, on which no thread waits for another")
        return
    rates = bench.in_turn([_side(bench, how, place) for place in _PLACES for how in _VARIABLES])
    titles = iter(TITLES["waiting"])
    for place in _PLACES:
        passive, spinning, single = (_name(how, place) for how in _VARIABLES)
        parts = medians({name: rates[name] for name in (passive, spinning, single)})
        yield ahead(bench, next(titles), rates, passive, spinning, parts=parts)
        yield ahead(bench, next(titles), rates, passive, single)


def _side(bench: Bench, how: str, place: str) -> Side:
    config = bench.sized(_BATCH).replace({"ngf": _WIDTH, "ndf": _WIDTH})
    name, threads = _name(how, place), 1 if how == _SINGLE else bench.threads
    side = bench.side(name, config, threads=threads, variables=_VARIABLES[how])
    neighbours = [_busy(bench, how)] if place == _PLACES[1] else []
    return Side(name, [*side.loops, *neighbours])


def _busy(bench: Bench, how: str) -> Loop:
    """A process that takes a core during its side's turns and shows no images."""
    stats = bench.work_dir / f"busy-{how.replace(' ', '-')}" / "stats.jsonl"
    stats.parent.mkdir(parents=True)
    return Loop([sys.executable, "-c", _BUSY, str(stats)], environment(1), stats)


def _name(how: str, place: str) -> str:
    return f"{how}, {place}"
