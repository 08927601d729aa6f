"""Loops that take turns: one side at a time, all of its processes, and none is left behind."""

import itertools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from trainer.bench.turns import Loop, Side, pace, rates_in_turn

LOOP = """
import json, subprocess, sys, time
with open(sys.argv[1], "a", buffering=1) as stats:
    stats.write(json.dumps({"event": "start", "images": 0, "time": time.time()}) + chr(10))
    for number in range(1, 1_000_000):
        stats.write(json.dumps({"images": 16 * number, "time": time.time()}) + chr(10))
        time.sleep(0.002)
"""
LAUNCHER = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {LOOP!r}, *sys.argv[1:]], start_new_session=True)
"""
SECONDS = 0.2


@pytest.fixture
def loop(tmp_path: Path) -> Callable[..., Loop]:
    def make(name: str, script: str = LOOP) -> Loop:
        stats = tmp_path / name / "stats.jsonl"
        stats.parent.mkdir()
        return Loop([sys.executable, "-c", script, str(stats)], dict(os.environ), stats)

    return make


def lines(loop: Loop) -> list[dict[str, Any]]:
    return [line for text in loop.stats.read_text().splitlines() if "event" not in (line := json.loads(text))]


def order(sides: list[Side]) -> list[str]:
    """Which side wrote, one after the other."""
    stamped = sorted((line["time"], side.name) for side in sides for loop in side.loops for line in lines(loop))
    return [name for name, _ in itertools.groupby(name for _, name in stamped)]


def left_over(loops: list[Loop]) -> list[psutil.Process]:
    files = {str(loop.stats) for loop in loops}
    return [each for each in psutil.process_iter(["cmdline"]) if files & set(each.info["cmdline"] or ())]


@pytest.mark.parametrize("script", [LOOP, LAUNCHER], ids=["one process", "a launcher's, in a session of its own"])
def test_one_side_runs_at_a_time(loop: Callable[..., Loop], script: str) -> None:
    loops = [loop("a", script), loop("b-1", script), loop("b-2", script)]
    told: list[str] = []
    sides = [Side("a", loops[:1], 16), Side("b", loops[1:], 16)]
    rates = rates_in_turn(sides, SECONDS, 3, told.append)
    assert {name: len(found) for name, found in rates.items()} == {"a": 3, "b": 3}
    assert all(rate > 0 for found in rates.values() for rate in found)
    assert told == ["a: start", "b: start", *(f"round {number} of 3: a, b" for number in (1, 2, 3))]
    assert not left_over(loops)
    assert order(sides) == ["a", "b", "a", "b", "a", "b"], "warm-ups; a and b, b and a, a and b"


def test_sides_of_several_loops_count_them_together(loop: Callable[..., Loop]) -> None:
    """Loops that say that a line takes a second."""
    script = LOOP.replace("time.time()", "4e9 + number").replace("4e9 + number", "0", 1)
    one, two, alone = (loop(name, script) for name in ("one", "two", "alone"))
    rates = rates_in_turn([Side("pair", [one, two], 16), Side("alone", [alone], 16)], SECONDS, 2, lambda _: None)
    assert rates == {"pair": [32.0, 32.0], "alone": [16.0, 16.0]}


def test_a_pause_is_in_no_rate(loop: Callable[..., Loop]) -> None:
    ours = loop("ours")
    others = [Side(f"other-{number}", [loop(f"other-{number}")], 16) for number in range(5)]
    rates = rates_in_turn([Side("ours", [ours], 16), *others], SECONDS, 2, lambda _: None)
    assert min(rates["ours"]) > 2 * pace(lines(ours)), "it slept most of the time"


def test_warm_up_comes_before_the_first_turn(loop: Callable[..., Loop]) -> None:
    each = loop("each")
    seen: list[int] = []

    def tell(what: str) -> None:
        if what.startswith("round"):
            seen.append(json.loads(each.stats.read_text().splitlines()[-1])["images"])

    rates_in_turn([Side("each", [each], 800)], SECONDS, 1, tell)
    assert seen[0] >= 800


def test_a_turn_lasts_until_there_is_something_to_measure(loop: Callable[..., Loop]) -> None:
    each = loop("each", LOOP.replace("sleep(0.002)", "sleep(0.1)"))
    (found,) = rates_in_turn([Side("each", [each], 16)], 0.001, 1, lambda _: None)["each"]
    assert 0 < found <= 160


def test_disturbances_count() -> None:
    """Ten steps of 16 images, of a second each but for one of 11."""
    seconds = [1.0] * 9 + [11.0]
    stamps = itertools.accumulate([100.0, *seconds])
    assert pace([{"images": 16 * number, "time": stamp} for number, stamp in enumerate(stamps)]) == 160 / 20


@pytest.mark.parametrize("ends", ["sys.exit('no such data')", "print('no such data', flush=True); sys.exit(3)"])
def test_a_loop_that_ends_is_told_with_its_output(loop: Callable[..., Loop], ends: str) -> None:
    good = loop("good")
    bad = loop("bad", f"import sys; {ends}")
    with pytest.raises(RuntimeError, match=r"(?s)bad ended with [13]:.*no such data"):
        rates_in_turn([Side("good", [good], 16), Side("bad", [bad], 16)], SECONDS, 1, lambda _: None)
    assert not left_over([good, bad]), "those that slept are gone, too"


def test_a_loop_that_stands_still_is_told(loop: Callable[..., Loop], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.bench.turns._LIMIT_SEC", 0.5)
    still = loop("still", "import time; print('waiting', flush=True); time.sleep(600)")
    with pytest.raises(RuntimeError, match=r"(?s)still stood still:.*waiting"):
        rates_in_turn([Side("still", [still], 16)], SECONDS, 1, lambda _: None)
    assert not left_over([still])


def test_an_interruption_leaves_nothing_asleep(loop: Callable[..., Loop]) -> None:
    loops = [loop("a", LAUNCHER), loop("b", LAUNCHER)]

    def interrupt(what: str) -> None:
        if what.startswith("round"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rates_in_turn([Side(name, [each], 16) for name, each in zip("ab", loops, strict=True)], SECONDS, 1, interrupt)
    assert not left_over(loops)
