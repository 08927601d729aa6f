"""One run of an experiment with a stand-in for the trainer: its neighbour, its stopping rule, what is kept of it."""

import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from gangway.bench.experiment.runner import BusyNeighbour, FailedRunError, get_job, is_reached, run_item
from gangway.bench.experiment.suite import ExperimentConfig, Item, Neighbour, Reached, get_items
from gangway.bench.local import Hardware
from gangway.bench.processes import Stop

_TRAINER = """
import json, signal, sys, time
from pathlib import Path
own, code, until, quality_at = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
with (own / "stats.jsonl").open("a") as out:
    for images in range(100, until + 1, 100):
        line = {"images": images, "wall_sec": images / 100, "metrics_sec": 0.5, "images_per_sec": 100.0}
        print(json.dumps(line), file=out, flush=True)
        if images == quality_at:
            quality = {"name": "FD-ENL0", "trained": {"value": 5.0}}
            print(json.dumps({"event": "quality", "images": images, "quality": quality}), file=out, flush=True)
            while not asked:
                time.sleep(0.01)
        if asked:
            sys.exit(75)
        time.sleep(0.05)
decision = {"event": "decision", "images": 200, "knob": "loader_threads", "value": 2, "was": 1, "reason": "it waits"}
with (own / "stats.jsonl").open("a") as out:
    print(json.dumps(decision), file=out)
sys.exit(code)
"""
_FOREVER = 10**9
MACHINE = Hardware(cpu="Model 1", cores=2, memory_gib=8.0, gpus=[], system="Linux x86_64")


@pytest.fixture
def item(values: dict[str, Any]) -> Item:
    return get_items(ExperimentConfig.model_validate(values))[0]


@pytest.fixture
def run(item: Item, tmp_path: Path) -> Callable[..., dict[str, Any] | None]:
    def begin(code: int = 0, until: int = 1000, quality_at: int = 0, stop: Stop | None = None) -> dict[str, Any] | None:
        script = [sys.executable, "-c", _TRAINER, str(tmp_path / item.name), str(code), str(until), str(quality_at)]
        return run_item(item, tmp_path, MACHINE, stop or Stop(""), script)

    return begin


def _busy() -> list[psutil.Process]:
    """Busy processes below this one."""
    return [one for one in psutil.Process().children(recursive=True) if "while os.getppid()" in " ".join(one.cmdline())]


def test_a_run_ends_by_its_images(run: Callable[..., dict[str, Any]]) -> None:
    result = run()
    assert (result["images"], result["time_sec"], result["reached"]) == (1000, 9.5, False)
    assert [one["knob"] for one in result["decisions"]] == ["loader_threads"]
    assert len(result["neighbour_sec"]) == 1, "the middle third"
    assert _busy() == []


def test_a_run_ends_as_soon_as_the_metric_is_reached(run: Callable[..., dict[str, Any]]) -> None:
    result = run(until=_FOREVER, quality_at=400)
    assert (result["images"], result["time_sec"], result["reached"]) == (400, 3.5, True)
    assert result["quality"] == {"FD-ENL0": 5.0}
    assert _busy() == []


@pytest.mark.parametrize(
    ("name", "value", "reached"),
    [("FD-ENL0", 10.0, True), ("FD-ENL0", 10.1, False), ("FD-ENL0", None, False), ("FID", 1.0, False)],
)
def test_the_metric_is_that_of_the_rule(name: str, value: float | None, reached: bool) -> None:
    line = {"event": "quality", "quality": {"name": name, "trained": {"value": value}}}
    assert is_reached(line, Reached(metric="FD-ENL0", at_most=10)) is reached
    assert not is_reached(line, None)
    assert not is_reached({"images": 3}, Reached(metric="FD-ENL0", at_most=10))


def test_a_run_that_fails_says_how_and_leaves_no_neighbour(run: Callable[..., dict[str, Any]]) -> None:
    with pytest.raises(FailedRunError, match="ended with 3"):
        run(code=3, until=500)
    assert _busy() == []


def test_an_interruption_that_nobody_asked_for_is_a_failure(run: Callable[..., dict[str, Any]]) -> None:
    with pytest.raises(FailedRunError, match="ended with 75"):
        run(code=75)


def test_ctrl_c_ends_run_and_neighbour(run: Callable[..., dict[str, Any] | None]) -> None:
    stop, before = Stop(""), psutil.Process().children(recursive=True)
    seen: list[int] = []

    def ask() -> None:
        while not (busy := _busy()):
            pass
        seen.extend(one.pid for one in busy)
        stop.asked = "SIGINT"

    asking = threading.Thread(target=ask)
    asking.start()
    assert run(until=_FOREVER, stop=stop) is not None or stop.asked
    asking.join()
    assert seen
    assert not any(psutil.pid_exists(pid) for pid in seen)
    assert {*psutil.Process().children(recursive=True)} <= {*before}


def test_a_neighbour_ends_with_an_error_of_whoever_began_it() -> None:
    pids: list[int] = []

    def interrupted() -> None:
        with closing(BusyNeighbour(Neighbour(cores=2, between=(0.2, 0.5)))) as neighbour:
            neighbour.at(0.1, 3.0)
            assert neighbour.pids == ()
            neighbour.at(0.2, 4.0)
            pids.extend(neighbour.pids)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(pids) == 2
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_both_arms_are_the_same_job_but_for_their_own_arguments(values: dict[str, Any], tmp_path: Path) -> None:
    one, other = get_items(ExperimentConfig.model_validate(values))[:2]
    control, treatment = sorted((one, other), key=lambda item: item.arm.name)
    jobs = [get_job(item, tmp_path, MACHINE) for item in (control, treatment)]
    words = [
        [word.replace(item.name, "NAME") for word in job.argv]
        for item, job in zip((control, treatment), jobs, strict=True)
    ]
    place = words[1].index("--mirror")
    assert words[0] == words[1][:place] + words[1][place + 2 :]
    first, second = (job.training for job in jobs)
    assert first is not None
    assert second is not None
    assert first.config == second.config


def test_an_arm_has_its_own_threads(values: dict[str, Any], tmp_path: Path) -> None:
    values["scenarios"][0] |= {"threads": 2, "static_threads": 1}
    items = get_items(ExperimentConfig.model_validate({**values, "static": {"name": "static"}}))
    threads = {item.arm.name: get_job(item, tmp_path, MACHINE).env["OMP_NUM_THREADS"] for item in items}
    assert threads == {"control": "2", "static": "1", "treatment": "2"}
