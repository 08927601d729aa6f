"""The life of a job on one node: any order of events, and one life through everything that a store can do to it."""

import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.trainer.rendezvous.lifecycle import Event, Life, State

HAPPENS = st.tuples(st.sampled_from(Event), st.integers(0, 255))
ENDS = (Event.SIGNAL, Event.HOURS_OVER, Event.OVER, Event.ENDED)
PASSING = tuple(event for event in Event if event not in ENDS)


def lived(events: list[tuple[Event, int]]) -> Life:
    life = Life()
    for event, code in events:
        life = life.after(event, code)
    return life


@given(st.lists(st.sampled_from(PASSING)))
def test_nothing_but_a_signal_its_hours_or_an_end_ends_a_job(events: list[Event]) -> None:
    life = lived([(event, 1) for event in events])
    assert life.exit_code is None
    assert life.state in (State.WAITING, State.TRAINING)
    assert life.after(Event.JOINED).state is State.TRAINING, "it may always go on"


@given(st.lists(HAPPENS))
def test_a_job_that_was_told_to_leave_or_has_ended_never_trains_again(events: list[tuple[Event, int]]) -> None:
    life, left = Life(), False
    for event, code in events:
        trains = life.state is State.TRAINING
        life = life.after(event, code)
        left = left or (event in ENDS and not (event is Event.OVER and trains))
        assert (life.state in (State.STOPPING, State.ENDED)) == left
        assert (life.exit_code is not None) == (life.state is State.ENDED)


@given(st.lists(HAPPENS), st.integers(0, 255))
def test_every_life_ends_with_the_first_end_it_is_told(events: list[tuple[Event, int]], code: int) -> None:
    life = lived(events)
    ended = life.after(Event.SIGNAL).after(Event.ENDED, code)
    assert ended.state is State.ENDED
    expected = code if life.state is not State.WAITING else 75
    if life.out_of_hours and expected:
        expected = 6
    assert ended.exit_code == (expected if life.exit_code is None else life.exit_code)
    assert ended.after(Event.JOINED) == ended


@given(st.lists(HAPPENS), st.integers(1, 255))
def test_a_job_whose_hours_are_over_says_so_whatever_its_workers_made_of_it(
    events: list[tuple[Event, int]], code: int
) -> None:
    life = lived(events)
    over = life.after(Event.HOURS_OVER).after(Event.ENDED, code)
    assert over.exit_code == (6 if life.exit_code is None else life.exit_code)


@given(st.lists(HAPPENS), st.integers(0, 255))
def test_that_others_have_ended_it_ends_nobody_who_trains(events: list[tuple[Event, int]], code: int) -> None:
    life = lived(events)
    after = life.after(Event.OVER, code)
    assert after == life if life.state is not State.WAITING else after.exit_code is not None


@given(st.lists(st.sampled_from(PASSING)))
def test_rounds_are_the_times_that_workers_were_started(events: list[Event]) -> None:
    assert lived([(event, 1) for event in events]).rounds == events.count(Event.JOINED)


WORKER = """
import os, signal, sys, time
from pathlib import Path

folder, told = Path(sys.argv[1]), []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
(folder / f"{os.environ['WORLD_SIZE']}-{os.getpid()}").touch()
while not told and not (folder / "done").exists():
    time.sleep(0.05)
sys.exit(75 if told else 0)
"""


@pytest.mark.slow
def test_a_job_outlives_a_late_node_and_a_store_that_dies_twice(start: Callable[..., Any], tmp_path: Path) -> None:
    """The clock is compressed: torchrun's patience is 2 s here, where it is 10 minutes."""
    script, folder = tmp_path / "worker.py", tmp_path / "workers"
    script.write_text(WORKER)
    folder.mkdir()

    def store(port: str) -> Any:
        return start("-m", "gangway.trainer.launch.rendezvous", "--port", port)

    def node() -> Any:
        where = ["--nnodes=2:2", "--rdzv-backend=gangway", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=job"]
        where += ["--rdzv-conf=is_host=0,last_call_timeout=1,keep_alive_interval=1,join_timeout=2,read_timeout=3"]
        return start("-m", "gangway.trainer.launch", *where, "--nproc-per-node=1", str(script), str(folder))

    def log(number: int) -> str:
        return (tmp_path / f"command-{number}.log").read_text()

    def workers() -> int:
        return len(list(folder.glob("2-*")))

    first_store = store("0")
    first_store.wait_for(lambda: "serving on port" in log(0))
    port = re.findall(r"serving on port (\d+)", log(0))[0]
    early = node()
    early.wait_for(lambda: log(1).count("too few nodes came: waiting for peers") == 2)
    first_store.process.send_signal(signal.SIGKILL)
    first_store.finish()
    early.wait_for(lambda: "no rendezvous store to meet at: waiting for peers" in log(1))
    second_store = store(port)
    late = node()
    late.wait_for(lambda: workers() == 2)
    second_store.process.send_signal(signal.SIGKILL)
    second_store.finish()
    early.wait_for(lambda: "the rendezvous store is gone: training" in log(1))
    late.wait_for(lambda: "the rendezvous store is gone: training" in log(3))
    assert workers() == 2, "they train on"
    store(port)
    late.wait_for(lambda: workers() == 4)
    (folder / "done").touch()
    for command in (early, late):
        code, text = command.finish()
        assert code == 0, text
        assert "a rendezvous store answers again: waiting for peers" in text
