"""Limits of a run, set and undone: refusals, lost boards, several nodes, the search on a job that runs."""

import argparse
import importlib
import json
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.trainer.__main__ import main
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.distributed.world import World
from gangway.trainer.power.energy import Gpu
from gangway.trainer.power.limits import LADDER, Limiter, PowerAsked, Search, Step, add_power, limiting, power_asked

BEFORE = {"limit_mw": 700_000, "clocks": None}
Events = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def events() -> Events:
    return []


@pytest.fixture
def tell(events: Events) -> Callable[..., None]:
    def note(event: str, **details: Any) -> None:
        json.dumps(details, allow_nan=False)
        events.append((event, details))

    return note


def _line(wall_sec: float, watts: float = 600.0, source: str = "measured", resolution: int = 32) -> dict[str, Any]:
    joules = wall_sec * watts
    energy = {"node0/gpu0": [joules, source, "m"], "node0/cpu": [1.0, "estimated", "m"]}
    return {
        "images": wall_sec * 1000,
        "wall_sec": wall_sec,
        "energy_joules": joules,
        "energy": energy,
        "resolution": resolution,
    }


def test_the_stand_in_has_pynvmls_functions_and_errors(make_nvml: Any) -> None:
    pynvml = importlib.import_module("pynvml")
    names = [name for name in vars(make_nvml) if name.startswith(("nvml", "NVML"))]
    assert len(names) > 10
    assert [name for name in names if not hasattr(pynvml, name)] == []


def test_a_limit_is_set_told_and_undone(
    nvml: Any, notes: Path, alone: World, gpu: Gpu, events: Events, tell: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with limiting(alone, PowerAsked(watts=450.0, clock_mhz=1500), gpu, nvml) as limiter:
        assert limiter is not None
        assert nvml.state("GPU-0") == BEFORE, "nothing before the run begins"
        limiter.begin(tell)
        assert nvml.state("GPU-0") == {"limit_mw": 450_000, "clocks": [345, 1500]}
        (note,) = notes.glob("*.json")
        assert json.loads(note.read_text())["gpus"] == [{"uuid": "GPU-0", "limit_mw": 700_000, "clocks": True}]
        assert note.stat().st_mode & 0o077 == 0
        assert limiter.choice == "clocks up to 1500 MHz and power up to 450 W: asked for"
        assert not limiter.after(_line(1.0)), "nothing to search"
    assert nvml.state("GPU-0") == BEFORE
    assert list(notes.iterdir()) == []
    assert [name for name, _ in events] == ["power-limit", "power-restored"]
    assert events[0][1] == {"watts": {"node0/gpu0": 450.0}, "clock_mhz": 1500, "why": limiter.choice}
    assert "restored GPU-0 to 700 W and unlocked clocks" in capsys.readouterr().err


def test_clocks_alone_leave_the_power_limit_alone(nvml: Any, notes: Path, alone: World, gpu: Gpu, tell: Any) -> None:
    with limiting(alone, PowerAsked(clock_mhz=1200), gpu, nvml) as limiter:
        assert limiter is not None
        limiter.begin(tell)
        assert nvml.state("GPU-0") == {"limit_mw": 700_000, "clocks": [345, 1200]}
    assert [call[0] for call in nvml.calls] == ["nvmlDeviceSetGpuLockedClocks", "nvmlDeviceResetGpuLockedClocks"]


def test_nothing_asked_is_nothing_done(nvml: Any, notes: Path, alone: World, gpu: Gpu) -> None:
    nvml.refuse["nvmlInit"] = AssertionError("NVML is not even looked at")
    with limiting(alone, PowerAsked(), gpu, nvml) as limiter:
        assert limiter is None
    assert not notes.exists()


@pytest.mark.parametrize(
    ("asked", "flag", "allowed", "fix"),
    [
        (PowerAsked(watts=100.0), "--power-limit-watts", "200 to 700 W", "--power-limit-watts 200"),
        (PowerAsked(watts=900.0), "--power-limit-watts", "200 to 700 W", "--power-limit-watts 700"),
        (PowerAsked(clock_mhz=3000), "--clock-limit-mhz", "345 to 1980 MHz", "--clock-limit-mhz 1980"),
    ],
)
def test_what_the_board_cannot_have_is_refused_before_anything_is_set(
    nvml: Any, notes: Path, alone: World, gpu: Gpu, asked: PowerAsked, flag: str, allowed: str, fix: str
) -> None:
    with pytest.raises(TrainerError) as caught, limiting(alone, asked, gpu, nvml):
        pass
    assert (caught.value.place, caught.value.allowed, caught.value.fix) == (flag, allowed, fix)
    assert "node0/gpu0" in caught.value.problem
    assert nvml.calls == []


def test_a_refusal_is_a_warning_and_the_run_goes_on(
    nvml: Any, notes: Path, alone: World, gpu: Gpu, events: Events, tell: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    nvml.refuse["nvmlDeviceSetPowerManagementLimit"] = nvml.NVMLError_NoPermission("Insufficient Permissions")
    for asked in (PowerAsked(watts=450.0), PowerAsked(auto=True)):
        with limiting(alone, asked, gpu, nvml) as limiter:
            assert limiter is not None
            limiter.begin(tell)
            assert "NVML wants root" in limiter.choice
            assert not limiter.after(_line(1.0))
        warned = capsys.readouterr().err
        assert "warning: neither power nor clocks are limited: node 0: this user may not change it" in warned
        assert "not restored" not in warned, "nothing was changed"
    assert [name for name, _ in events] == ["power-refused"] * 2
    assert list(notes.iterdir()) == []


def test_a_board_that_tells_no_clocks_has_none_locked(
    nvml: Any, notes: Path, alone: World, gpu: Gpu, tell: Any
) -> None:
    nvml.memory_clocks = []
    with limiting(alone, PowerAsked(clock_mhz=1500), gpu, nvml) as limiter:
        assert limiter is not None
        limiter.begin(tell)
        assert limiter.choice == "no limit: node 0: NVML: 3"
    assert nvml.calls == []


def test_half_a_change_is_taken_back(nvml: Any, notes: Path, alone: World, gpu: Gpu, tell: Any) -> None:
    nvml.refuse["nvmlDeviceSetPowerManagementLimit"] = nvml.NVMLError_NotSupported("Not Supported")
    with limiting(alone, PowerAsked(watts=450.0, clock_mhz=1500), gpu, nvml) as limiter:
        assert limiter is not None
        limiter.begin(tell)
        assert nvml.state("GPU-0") == BEFORE, "the clocks are unlocked at once"
        assert "MIG" in limiter.choice


def test_without_a_place_to_note_it_nothing_is_changed(
    nvml: Any, tmp_path: Path, alone: World, gpu: Gpu, tell: Any
) -> None:
    (tmp_path / "file").write_text("")
    with limiting(alone, PowerAsked(watts=450.0), gpu, nvml, tmp_path / "file" / "notes") as limiter:
        assert limiter is not None
        limiter.begin(tell)
        assert "what is not noted is not changed" in limiter.choice
    assert nvml.calls == []


def test_without_a_driver_or_a_gpu_the_run_says_so(
    nvml: Any, notes: Path, alone: World, gpu: Gpu, tell: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with limiting(alone, PowerAsked(watts=450.0), None, nvml) as limiter:
        assert limiter is not None
        limiter.begin(tell)
        assert limiter.choice == "no limit: there is no GPU in this run"
    nvml.refuse["nvmlInit"] = nvml.NVMLError("Driver Not Loaded")
    with limiting(alone, PowerAsked(watts=450.0), gpu, nvml) as limiter:
        assert limiter is not None
        limiter.begin(tell)
        assert limiter.choice == "no limit: node 0: Driver Not Loaded"
    del nvml.refuse["nvmlInit"]
    nvml.refuse["nvmlDeviceGetHandleByUUID"] = nvml.NVMLError("Not Found")
    with limiting(alone, PowerAsked(watts=450.0), gpu, nvml) as limiter:
        assert limiter is not None
        limiter.begin(tell)
        assert limiter.choice == "no limit: node 0: NVML: Not Found"


def test_a_run_that_fails_is_undone_all_the_same(nvml: Any, notes: Path, alone: World, gpu: Gpu, tell: Any) -> None:
    def run() -> None:
        with limiting(alone, PowerAsked(watts=450.0), gpu, nvml) as limiter:
            assert limiter is not None
            limiter.begin(tell)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run()
    assert nvml.state("GPU-0") == BEFORE


def test_a_full_disk_at_the_end_hides_nothing(nvml: Any, notes: Path, alone: World, gpu: Gpu) -> None:
    def full(event: str, **details: Any) -> None:
        if event == "power-restored":
            raise TrainerError(place="stats.jsonl", problem="cannot be written")

    with limiting(alone, PowerAsked(watts=450.0), gpu, nvml) as limiter:
        assert limiter is not None
        limiter.begin(full)
    assert nvml.state("GPU-0") == BEFORE


def test_a_board_that_is_lost_keeps_its_note(
    nvml: Any, notes: Path, alone: World, gpu: Gpu, events: Events, tell: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with limiting(alone, PowerAsked(watts=450.0), gpu, nvml) as limiter:
        assert limiter is not None
        limiter.begin(tell)
        nvml.refuse["nvmlDeviceSetPowerManagementLimit"] = nvml.NVMLError_GpuIsLost("GPU is lost")
    assert "warning: GPU settings are not restored: GPU-0: NVML: GPU is lost" in capsys.readouterr().err
    assert events[-1][1]["troubles"] == ["GPU-0: NVML: GPU is lost"]
    assert len(list(notes.glob("*.json"))) == 1


class TestSearch:
    """`auto` on a job whose lines the test writes."""

    @pytest.fixture
    def limiter(self, nvml: Any, notes: Path, alone: World, gpu: Gpu) -> Any:
        with limiting(alone, PowerAsked(auto=True, window_sec=5.0), gpu, nvml) as limiter:
            yield limiter
        assert nvml.state("GPU-0") == BEFORE

    def test_it_ends_at_the_best_limit(self, nvml: Any, limiter: Limiter, events: Events, tell: Any) -> None:
        limiter.begin(tell)
        assert "looking for the power limit" in limiter.choice
        seconds = 0.0
        joules = 0.0
        changed: list[bool] = []
        while not changed or not changed[-1]:
            seconds += 1.0
            joules += min(0.9 * nvml.state("GPU-0")["limit_mw"] / 1000, 500)
            line = {**_line(seconds), "energy_joules": joules}
            changed.append(limiter.after(line))
            assert seconds < 200
        assert nvml.state("GPU-0")["limit_mw"] == 350_000, "speed is the same everywhere, so the lowest limit wins"
        assert [details["watts"]["node0/gpu0"] for name, details in events if name == "power-limit"] == [
            *(700.0, 630.0, 560.0, 490.0, 420.0, 350.0),
            350.0,
        ]
        name, found = events[-1]
        assert name == "power-search"
        assert found["share"] == 0.5
        assert [step["share"] for step in found["measured"]] == [1.0, 0.9, 0.8, 0.7, 0.6, 0.5]
        assert limiter.choice == found["why"]

    def test_without_an_energy_counter_there_is_nothing_to_search_by(
        self, nvml: Any, limiter: Limiter, events: Events, tell: Any
    ) -> None:
        limiter.begin(tell)
        assert limiter.after(_line(1.0, source="estimated"))
        assert "energy counter" in limiter.choice
        assert events[-1][0] == "power-refused"
        assert not limiter.after(_line(2.0))

    def test_a_board_lost_in_the_middle_ends_the_search(
        self, nvml: Any, limiter: Limiter, events: Events, tell: Any
    ) -> None:
        limiter.begin(tell)
        nvml.refuse["nvmlDeviceGetPowerManagementLimit"] = nvml.NVMLError_GpuIsLost("GPU is lost")
        assert any(limiter.after(_line(float(second))) for second in range(1, 30))
        assert "GPU is lost" in limiter.choice
        assert [name for name, _ in events][-2:] == ["power-restored", "power-refused"]


class TestSeveralNodes:
    """Two nodes of two workers, as threads."""

    def _run(
        self, group: Any, make_nvml: Any, tmp_path: Path, prepare: Callable[[list[Any]], None], asked: PowerAsked
    ) -> tuple[list[Any], list[str], Events]:
        workers = group([0, 0, 1, 1])
        boards = [make_nvml(tmp_path / f"node{node}.json") for node in (0, 1)]
        prepare(boards)
        events: Events = []
        choices = [""] * 4

        def run(rank: int) -> None:
            world = workers.worker(rank)
            own = Gpu("NVIDIA H200", f"GPU-{rank}", world.local_rank)
            folder = tmp_path / f"notes{world.node_rank}"
            with limiting(world, asked, own, boards[world.node_rank], folder) as limiter:
                assert limiter is not None
                limiter.begin(lambda event, **details: events.append((event, details)))
                choices[rank] = limiter.choice
                world.gather(None)
                boards[world.node_rank].during = [boards[world.node_rank].state(f"GPU-{rank}") for rank in range(4)]
                world.gather(None)

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert not any(thread.is_alive() for thread in threads)
        return boards, choices, events

    def test_one_process_a_node_sets_all_its_gpus(
        self, group: Any, make_nvml: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        boards, choices, events = self._run(group, make_nvml, tmp_path, lambda _: None, PowerAsked(watts=400.0))
        for node, board in enumerate(boards):
            limits = [state["limit_mw"] for state in board.during]
            assert [limit == 400_000 for limit in limits] == [node == 0, node == 0, node == 1, node == 1]
            assert all(board.state(f"GPU-{rank}") == BEFORE for rank in range(4))
            assert len(board.calls) == 4, "each of two GPUs set once and restored once"
        assert len(set(choices)) == 1
        assert sorted(events[0][1]["watts"]) == ["node0/gpu0", "node0/gpu1", "node1/gpu0", "node1/gpu1"]
        assert capsys.readouterr().err.count("restored GPU-") == 2

    def test_where_one_node_refuses_none_is_limited(
        self, group: Any, make_nvml: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def refuse(boards: list[Any]) -> None:
            error = boards[1].NVMLError_NoPermission("no")
            boards[1].refuse["nvmlDeviceSetPowerManagementLimit GPU-3"] = error

        boards, choices, _ = self._run(group, make_nvml, tmp_path, refuse, PowerAsked(watts=400.0))
        assert len(set(choices)) == 1
        assert "node 1: this user may not" in choices[0]
        assert all(state == BEFORE for board in boards for state in board.during)
        assert capsys.readouterr().err.count("warning") == 1


class TestShares:
    """What a controller lowers while a run trains."""

    def test_a_share_is_of_the_limit_before_and_is_undone(
        self, nvml: Any, notes: Path, alone: World, gpu: Gpu, events: Events, tell: Any
    ) -> None:
        with limiting(alone, PowerAsked(shares=True), gpu, nvml) as limiter:
            assert limiter is not None
            limiter.begin(tell)
            assert nvml.state("GPU-0") == BEFORE
            assert limiter.limit_watts == 700
            assert limiter.set_share(0.8) == ""
            assert nvml.state("GPU-0")["limit_mw"] == 560_000
            assert limiter.set_share(0.9) == ""
            assert nvml.state("GPU-0")["limit_mw"] == 630_000
        assert nvml.state("GPU-0") == BEFORE
        assert [name for name, _ in events] == ["power-limit"] * 3 + ["power-restored"]

    def test_without_a_gpu_it_says_why_and_never_can(self, notes: Path, alone: World, tell: Any) -> None:
        with limiting(alone, PowerAsked(shares=True), None) as limiter:
            assert limiter is not None
            limiter.begin(tell)
            assert limiter.limit_watts is None
            assert "no GPU" in limiter.set_share(0.8)
            assert "no GPU" in limiter.set_share(1.0)

    def test_a_refusal_while_training_puts_all_back_and_is_not_asked_again(
        self, nvml: Any, notes: Path, alone: World, gpu: Gpu, tell: Any
    ) -> None:
        with limiting(alone, PowerAsked(shares=True), gpu, nvml) as limiter:
            assert limiter is not None
            limiter.begin(tell)
            nvml.refuse = {"nvmlDeviceSetPowerManagementLimit": nvml.NVMLError_NoPermission("no")}
            assert limiter.set_share(0.8)
            calls = len(nvml.calls)
            assert limiter.set_share(0.7)
            assert len(nvml.calls) == calls

    def test_what_could_not_be_put_back_is_told_counted_and_tried_again_at_the_end(
        self, nvml: Any, notes: Path, alone: World, gpu: Gpu, events: Events, tell: Any
    ) -> None:
        with limiting(alone, PowerAsked(shares=True), gpu, nvml) as limiter:
            assert limiter is not None
            limiter.begin(tell)
            assert limiter.set_share(0.8) == ""
            nvml.refuse = {"nvmlDeviceSetPowerManagementLimit": nvml.NVMLError("busy")}
            assert "busy" in limiter.set_share(1.0), "the judge's undo"
            assert [details["failures"] for name, details in events if name == "power-restored"] == [1]
            nvml.refuse = {}
        assert nvml.state("GPU-0") == BEFORE
        assert [details["troubles"] for name, details in events if name == "power-restored"] == [
            ["GPU-0: NVML: busy"],
            [],
        ]
        assert list(notes.glob("*.json")) == []


Curve = Callable[[float], tuple[float, float]]


class Job:
    """A job whose speed and power follow from the limit; time passes by its lines."""

    def __init__(self, curve: Curve, line_sec: float = 2.0) -> None:
        self.curve, self.line_sec = curve, line_sec
        self.images, self.wall_sec, self.joules, self.resolution = 0.0, 0.0, 0.0, 32
        self.share = 1.0

    def line(self, sec: float | None = None) -> dict[str, Any]:
        images_per_sec, watts = self.curve(self.share)
        self.wall_sec += sec or self.line_sec
        self.images += images_per_sec * self.line_sec  # with `sec`, something else took the rest of the time
        self.joules += watts * (sec or self.line_sec)
        return {
            "images": self.images,
            "wall_sec": self.wall_sec,
            "energy_joules": self.joules,
            "resolution": self.resolution,
        }

    def run(self, search: Search, lines: int = 500) -> Iterator[Step]:
        for _ in range(lines):
            if step := search.see(self.line()):
                self.share = step.share
                yield step


def compute_bound(share: float) -> tuple[float, float]:
    """Speed falls with the cube root of power below 80 %, as of a board that is at its limit."""
    return 1000 * min(1.0, (share / 0.8) ** (1 / 3)), 700 * min(share, 0.95)


def test_the_most_efficient_limit_within_the_slowdown_is_chosen() -> None:
    search = Search(LADDER, max_slowdown=0.05)
    steps = list(Job(compute_bound).run(search))
    assert [step.share for step in steps[:-1]] == [0.9, 0.8, 0.7, 0.6]
    last = steps[-1]
    # 0.7 is 4.4 % slower and makes 1000*0.9565/490 = 1.95 images/J; 0.6 would make more, and is 9 % slower.
    assert (last.share, last.done) == (0.7, True)
    assert "+29.8%" in last.reason, last.reason
    assert [each.share for each in search.measured] == [1.0, 0.9, 0.8, 0.7, 0.6], "0.5 can only be slower still"
    assert search.measured[0].images_per_sec == pytest.approx(1000)
    assert search.measured[0].images_per_joule == pytest.approx(1000 / 665)


def test_without_any_slowdown_allowed_the_last_limit_at_full_speed_wins() -> None:
    assert list(Job(compute_bound).run(Search(LADDER, 0.0)))[-1].share == 0.8


def test_a_board_that_never_reaches_its_limit_keeps_it() -> None:
    def idle(share: float) -> tuple[float, float]:
        return 500.0, 200.0

    last = list(Job(idle).run(Search(LADDER, 0.05)))[-1]
    assert last.share == 1.0, "of equal limits the highest: it costs nothing and bounds nothing"


def test_a_window_lasts_as_long_as_it_says_whatever_the_lines_are_like() -> None:
    for line_sec in (0.05, 2.0, 30.0):
        job = Job(compute_bound, line_sec)
        first = next(job.run(Search((1.0, 0.5), 0.5, window_sec=20.0), lines=10_000))
        assert first.share == 0.5
        assert job.wall_sec >= 20.0
        # five samples are the least, and some seconds are left out at first
        assert job.wall_sec <= max(30.0, 7 * line_sec)


def test_one_checkpoint_in_a_window_does_not_decide() -> None:
    job, search = Job(compute_bound), Search((1.0, 0.9), 0.01)
    steps = []
    for number in range(40):
        # the same images, in five times the time
        if step := search.see(job.line(10.0 if number in (5, 20) else None)):
            job.share = step.share
            steps.append(step)
    assert search.measured[0].images_per_sec == pytest.approx(1000)
    assert steps[-1].share == 0.9


def test_another_resolution_is_another_job() -> None:
    job, search = Job(compute_bound), Search(LADDER, 0.05)
    steps = job.run(search)
    next(steps)
    assert next(steps).share == 0.8
    job.resolution = 64
    again = next(steps)
    assert (again.share, again.done) == (1.0, False)
    assert "starts over" in again.reason
    assert search.measured == []
    assert list(steps)[-1].done
    job.resolution = 128
    assert search.see(job.line()) is not None, "also after it was done"


def test_a_counter_that_stands_still_gives_no_sample() -> None:
    job, search = Job(lambda share: (1000.0, 0.0)), Search(LADDER, 0.05)
    assert list(job.run(search)) == []


@pytest.mark.slow
@given(
    speeds=st.lists(st.floats(1, 1000), min_size=6, max_size=6).map(lambda values: sorted(values, reverse=True)),
    watts=st.lists(st.floats(50, 700), min_size=6, max_size=6).map(lambda values: sorted(values, reverse=True)),
    bound=st.floats(0, 0.9),
)
def test_the_choice_is_never_slower_than_allowed_and_never_worse_than_the_start(
    speeds: list[float], watts: list[float], bound: float
) -> None:
    curve = dict(zip(LADDER, zip(speeds, watts, strict=True), strict=True))
    search = Search(LADDER, bound)
    last = list(Job(lambda share: curve[share]).run(search))[-1]
    assert last.done
    speed, power = curve[last.share]
    assert speed >= speeds[0] * (1 - bound) * (1 - 1e-9)
    assert speed / power >= speeds[0] / watts[0] * (1 - 1e-9)
    tried = [each.share for each in search.measured]
    assert tried == list(LADDER[: len(tried)])
    assert all(earlier > later for earlier, later in pairwise(tried))


def _asked(*argv: str) -> PowerAsked:
    parser = argparse.ArgumentParser()
    add_power(parser)
    return power_asked(parser.parse_args(argv))


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ((), PowerAsked()),
        (("--power-limit-watts", "450"), PowerAsked(watts=450.0)),
        (("--power-limit-watts", "auto"), PowerAsked(auto=True)),
        (("--power-limit-watts=auto", "--max-slowdown=0"), PowerAsked(auto=True, max_slowdown=0.0)),
        (("--clock-limit-mhz", "1500"), PowerAsked(clock_mhz=1500)),
    ],
)
def test_what_is_asked_for(argv: tuple[str, ...], expected: PowerAsked) -> None:
    assert _asked(*argv) == expected
    assert expected.anything == bool(argv)


@pytest.mark.parametrize(
    ("argv", "place", "allowed"),
    [
        (("--power-limit-watts", "many"), "--power-limit-watts", "watts above 0, or auto"),
        (("--power-limit-watts", "-1"), "--power-limit-watts", "watts above 0, or auto"),
        (("--power-limit-watts", "nan"), "--power-limit-watts", "watts above 0, or auto"),
        (("--power-limit-watts", "auto", "--max-slowdown", "1"), "--max-slowdown", "0 up to but not 1"),
        (("--power-limit-watts", "auto", "--max-slowdown", "x"), "--max-slowdown", "0 up to but not 1"),
    ],
)
def test_a_mistake(argv: tuple[str, ...], place: str, allowed: str) -> None:
    with pytest.raises(TrainerError) as caught:
        _asked(*argv)
    assert (caught.value.place, caught.value.allowed) == (place, allowed)


def test_a_bound_without_a_search_is_ignored_with_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    assert _asked("--max-slowdown", "0.1", "--power-limit-watts", "450") == PowerAsked(watts=450.0)
    assert "--max-slowdown is ignored without --power-limit-watts auto" in capsys.readouterr().err


def test_the_command_refuses_before_it_touches_anything(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--preset", "dcgan-digits", "--power-limit-watts", "0"]) == 2
    assert "--power-limit-watts: no power" in capsys.readouterr().err
