"""Loops that take turns: one side at a time, all of its processes, and none is left behind."""

import itertools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from gangway.trainer.core.errors import TrainerError
from tools.bench.runs import Loop, Side, pace, rates_in_turn, whole_lines

LOOP = """
import json, sys, time
with open(sys.argv[1], "a", buffering=1) as stats:
    stats.write(json.dumps({"event": "start", "images": 0, "time": time.time()}) + chr(10))
    for number in range(1, 1_000_000):
        stats.write(json.dumps({"images": 16 * number, "time": time.time()}) + chr(10))
        time.sleep(0.02)
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


def order(sides: list[Side]) -> list[str]:
    """Which side wrote, one after the other."""
    stamped = sorted(
        (line["time"], side.name) for side in sides for loop in side.loops for line in whole_lines(loop.stats)
    )
    return [name for name, _ in itertools.groupby(name for _, name in stamped)]


def left_over(loops: list[Loop]) -> list[psutil.Process]:
    files = {str(loop.stats) for loop in loops}
    return [each for each in psutil.process_iter(["cmdline"]) if files & set(each.info["cmdline"] or ())]


@pytest.mark.slow
@pytest.mark.parametrize("script", [LOOP, LAUNCHER], ids=["one process", "a launcher's, in a session of its own"])
def test_one_side_runs_at_a_time(loop: Callable[..., Loop], script: str) -> None:
    loops = [loop("a", script), loop("b-1", script), loop("b-2", script)]
    told: list[str] = []
    sides = [Side("a", loops[:1]), Side("b", loops[1:])]
    rates = rates_in_turn(sides, SECONDS, 3, told.append)
    assert {name: len(found) for name, found in rates.items()} == {"a": 3, "b": 3}
    assert all(rate > 0 for found in rates.values() for rate in found)
    assert told == ["a: start", "b: start", *(f"round {number} of 3: a; b" for number in (1, 2, 3))]
    assert not left_over(loops)
    assert order(sides) == ["a", "b", "a", "b", "a", "b"], "warm-ups; a and b, b and a, a and b"


def test_sides_of_several_loops_count_them_together(loop: Callable[..., Loop]) -> None:
    """Loops that say that a line takes a second."""
    script = LOOP.replace("time.time()", "4e9 + number").replace("4e9 + number", "0", 1)
    one, two, alone = (loop(name, script) for name in ("one", "two", "alone"))
    rates = rates_in_turn([Side("pair", [one, two]), Side("alone", [alone])], SECONDS, 2, lambda _: None)
    assert rates == {"pair": [32.0, 32.0], "alone": [16.0, 16.0]}


@pytest.mark.slow
def test_a_pause_is_in_no_rate(loop: Callable[..., Loop]) -> None:
    ours = loop("ours")
    others = [Side(f"other-{number}", [loop(f"other-{number}")]) for number in range(5)]
    rates = rates_in_turn([Side("ours", [ours]), *others], SECONDS, 2, lambda _: None)
    assert min(rates["ours"]) > 2 * pace(whole_lines(ours.stats)), "it slept most of the time"


def test_every_step_counts_once_from_line_to_line(loop: Callable[..., Loop], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured begins where the turn before has ended."""
    measured: list[tuple[int, int]] = []

    def watched(lines: Sequence[Mapping[str, Any]], pauses: Sequence[tuple[float, float]]) -> float:
        measured.append((lines[0]["images"], lines[-1]["images"]))
        return pace(lines, pauses)

    monkeypatch.setattr("tools.bench.runs.pace", watched)
    rates_in_turn([Side("each", [loop("each")])], 0.05, 3, lambda _: None)
    assert measured[0][0] == 16, "the first line ends the warm-up"
    for before, after in itertools.pairwise(measured):
        assert before[1] == after[0] < after[1]


def test_a_turn_lasts_until_a_line_comes(loop: Callable[..., Loop]) -> None:
    each = loop("each", LOOP.replace("sleep(0.02)", "sleep(0.3)"))
    rates = rates_in_turn([Side("each", [each])], 0.001, 2, lambda _: None)["each"]
    assert all(rate > 0 for rate in rates)


@pytest.mark.parametrize(
    ("pauses", "asleep"),
    [
        ([], 0),
        ([(102, 105)], 3),
        ([(90, 95), (101, 103), (104, 110)], 8),
        ([(95, 101), (119, 130)], 2),
        ([(120, 130)], 0),
    ],
)
def test_pauses_count_as_far_as_they_lie_between_the_lines(pauses: list[tuple[float, float]], asleep: float) -> None:
    assert pace([{"images": 16, "time": 100.0}, {"images": 176, "time": 120.0}], pauses) == 160 / (20 - asleep)


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
        rates_in_turn([Side("good", [good]), Side("bad", [bad])], SECONDS, 1, lambda _: None)
    assert not left_over([good, bad]), "those that slept are gone, too"


def test_a_loop_that_stands_still_is_told(loop: Callable[..., Loop], monkeypatch: pytest.MonkeyPatch) -> None:
    ends = (
        "    if number == 2:\n            print('waiting', flush=True)\n            time.sleep(600)\n        time.sleep"
    )
    still = loop("still", LOOP.replace("    time.sleep", ends))

    def tell(what: str) -> None:
        if what.startswith("round"):
            monkeypatch.setattr("tools.bench.runs._LIMIT_SEC", 0.5)

    with pytest.raises(RuntimeError, match=r"(?s)still stood still:.*waiting"):
        rates_in_turn([Side("still", [still])], SECONDS, 1, tell)
    assert not left_over([still])


def test_a_worker_whose_launcher_is_gone_is_ended_all_the_same(loop: Callable[..., Loop]) -> None:
    each = loop("each", LAUNCHER)

    def tell(what: str) -> None:
        if what.startswith("round"):
            (launcher,) = (found for found in left_over([each]) if found.ppid() == os.getpid())
            launcher.kill()

    with pytest.raises(RuntimeError, match="each ended with -9"):
        rates_in_turn([Side("each", [each])], SECONDS, 1, tell)
    assert not left_over([each])


def test_without_psutil_nothing_is_started(loop: Callable[..., Loop], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    each = loop("each")
    with pytest.raises(TrainerError, match="psutil"):
        rates_in_turn([Side("each", [each])], SECONDS, 1, lambda _: None)
    assert not each.stats.exists()


@pytest.mark.slow
def test_an_interruption_leaves_nothing_asleep(loop: Callable[..., Loop]) -> None:
    loops = [loop("a", LAUNCHER), loop("b", LAUNCHER)]

    def interrupt(what: str) -> None:
        if what.startswith("round"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rates_in_turn([Side(name, [each]) for name, each in zip("ab", loops, strict=True)], SECONDS, 1, interrupt)
    assert not left_over(loops)
