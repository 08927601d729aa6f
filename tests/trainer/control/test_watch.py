"""Lines become intervals: differences of sums, what cannot be is told, and a record gives what the live run saw."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangway.trainer.config.values.control import ControlSettings, Objective
from gangway.trainer.config.values.metric_names import FD_ENL0
from gangway.trainer.control.guardrails import distrust_reason, failures
from gangway.trainer.control.watch import Watch, get_history, interval
from tests.trainer.control.rooms import KNOBS, line


def test_an_interval_is_what_has_grown_between_its_lines() -> None:
    found = interval(
        [
            line(10, 100, loader_stall_sec=1.0, energy_joules=50.0, telemetry_sec=1.0),
            line(12, 150, cpu_utilisation=0.2, host_memory_share=0.9, loader_stall_sec=1.0, telemetry_sec=1.0),
            line(21, 300, loader_stall_sec=4.0, energy_joules=270.0, metrics_sec=0.5, telemetry_sec=1.5),
        ],
        guard=3.0,
    )
    assert found.seconds == 10
    assert found.images_per_sec == 20
    assert found.loader_share == pytest.approx(0.3)
    assert found.watts == 20
    assert found.cpu_use == pytest.approx(0.35)
    assert found.host_memory_share == 0.9
    assert (found.guard, found.knobs, found.told) == (3.0, KNOBS, ())
    assert found.allreduce_share is None
    assert found.device_use is None


def test_what_a_run_computes_on_is_told_and_not_guessed_from_meters() -> None:
    lines = [line(0, 0), line(9, 90)]
    assert interval(lines).on_cpu
    assert not interval([{**each, "on_cpu": False} for each in lines]).on_cpu, "whatever NVML says"
    older = [{**each, "gpu_memory_share": 0.5} for each in lines]
    assert not interval(older).on_cpu, "torch knows a GPU's memory without NVML"


def test_what_nobody_measures_is_not_zero() -> None:
    found = interval([line(0, 0, allreduce_wait_sec=None), line(9, 90, allreduce_wait_sec=3.0)])
    assert found.allreduce_share is None
    assert found.watts is None
    assert found.noise_scale is None


@pytest.mark.parametrize("objective", ["energy", "carbon"])
@pytest.mark.parametrize(("joules", "is_known"), [(None, False), (0.5, True)])
def test_joules_of_some_devices_are_no_figure_to_decide_by(
    objective: Objective, joules: float | None, is_known: bool
) -> None:
    energy = {"node0/cpu": [9.0, "estimated", "a model"], "node0/gpu0": [joules, "measured", "a meter, or none"]}
    more = {"g_per_kwh": 400.0, "energy": energy}
    found = interval([line(at, 10 * at, energy_joules=2.0 * at, **more) for at in (0, 9)])
    assert found.watts == (2 if is_known else None)
    why = "" if is_known else f"there is no figure for {objective}"
    assert distrust_reason([found], ControlSettings(objective=objective), KNOBS) == why


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (line(5, 200), "clock"),
        (line(20, 100), "images"),
        (line(20, 200, noise_scale=math.nan), "noise_scale"),
        (line(20, 200, gpu_utilisation=-1.0), "gpu_utilisation"),
        (line(20, 200, neighbour_cores=math.inf), "neighbour_cores"),
        (line(20, 200, phase_sec={"d": math.nan}), "d is nan"),
        (line(20, 200, metrics_sec=30.0), "the steps have taken -20 s"),
    ],
)
def test_figures_that_cannot_be_are_told(last: dict[str, Any], said: str) -> None:
    assert any(said in sentence for sentence in interval([line(10, 100), last]).told)


SUMS = ("metrics_sec", "telemetry_sec", "loader_stall_sec", "checkpoint_stall_sec", "allreduce_wait_sec")


@pytest.mark.parametrize("name", [*SUMS, "energy_joules"])
@pytest.mark.parametrize("broken", [math.nan, 1.0])
def test_a_sum_that_shrinks_or_is_no_number_is_told_by_both_intervals_that_it_ends(name: str, broken: float) -> None:
    watch = Watch(5.0)
    for at, value in enumerate([3.0, 3.0, broken, 3.0]):
        found = watch.see(line(10.0 * at, 100 * at, **{name: value}))
        if at == 1:
            assert found is not None
            assert found.told == ()
        if at == 2 or (at == 3 and math.isnan(broken)):
            assert found is not None
            assert any(name in sentence for sentence in found.told)
            assert found.seconds >= 0


def test_a_clock_that_goes_back_ends_an_interval_at_once() -> None:
    """Or it would last until the clock had caught up."""
    watch = Watch(10.0)
    assert watch.see(line(100, 100)) is None
    found = watch.see(line(1, 200))
    assert found is not None
    assert found.told
    assert watch.see(line(12, 300)) is not None


def test_the_first_line_of_a_session_is_warming_up() -> None:
    watch = Watch(5.0)
    assert watch.see(line(60, 100)) is None
    found = watch.see(line(66, 160))
    assert found is not None
    assert found.images_per_sec == 10


def test_the_guard_is_the_distance_that_needs_no_download() -> None:
    watch = Watch(5.0)
    watch.see(line(0, 0))
    watch.quality({"name": "FID", "trained": {"value": 9.0}})
    watch.quality({"name": FD_ENL0, "trained": {"value": 7.0}})
    watch.quality({"name": FD_ENL0, "trained": {"value": None}})
    found, after = watch.see(line(6, 10)), watch.see(line(12, 20))
    assert found is not None
    assert after is not None
    assert (found.guard, after.guard) == (7.0, None)


def decision(images: int, outcome: str = "done", **more: Any) -> dict[str, Any]:
    told = {"knob": "loader_threads", "value": 2, "was": 1, "policy": "rules", "reason": "", "expected_gain": 0.1}
    return {"event": "decision", "images": images, "session": 0, **told, "undone_if": "", "outcome": outcome, **more}


def test_a_record_has_decisions_where_they_were_done() -> None:
    lines = [line(0, 0), line(6, 60), decision(60), line(12, 120), decision(120, "observed"), line(18, 180)]
    history = get_history(lines, 5.0)
    assert [each.images for each in history] == [60, 120, 180]
    assert [each.decision is not None for each in history] == [True, False, False]
    assert all(each.failed is None for each in history)
    assert history[0].after.loader_threads == 2
    assert history[1].after == history[1].knobs


def test_a_record_has_what_failed_so_a_resumed_run_asks_no_more_often() -> None:
    lines = [line(0, 0), line(6, 60), decision(60, "failed", why="no"), line(12, 120), decision(120, "failed")]
    history = get_history(lines, 5.0)
    assert [each.failed is not None for each in history] == [True, True]
    assert failures(history, "loader_threads") == 2
    assert all(each.decision is None for each in history)


def test_what_a_resumed_run_makes_again_is_left_out() -> None:
    lines = [
        *(line(0, 0), line(6, 60), line(12, 120), decision(120), line(18, 180)),
        {"event": "resume", "images": 60, "session": 1},
        *({**line(0, 70), "session": 1}, {**line(7, 140), "session": 1}),
    ]
    assert [each.images for each in get_history(lines, 5.0)] == [60, 140]
    assert [each.images for each in get_history(lines[:5], 5.0, images=60)] == [60]


def test_lines_of_an_older_trainer_say_nothing() -> None:
    old = [{name: value for name, value in line(9.0 * n, 90 * n).items() if name != "knobs"} for n in range(4)]
    assert get_history(old, 5.0) == []


@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(st.tuples(st.floats(0.1, 30), st.integers(1, 500)), min_size=1, max_size=30),
    interval_sec=st.floats(0.1, 60),
)
def test_intervals_cover_what_was_trained_and_a_record_gives_the_same(
    steps: list[tuple[float, int]], interval_sec: float
) -> None:
    lines, wall_sec, images = [line(0.0, 0)], 0.0, 0
    for seconds, more in steps:
        wall_sec, images = wall_sec + seconds, images + more
        lines.append(line(wall_sec, images))
    watch = Watch(interval_sec)
    live = [found for each in lines if (found := watch.see(each)) is not None]
    assert live == get_history(lines, interval_sec)
    assert all(found.seconds >= interval_sec * (1 - 1e-9) for found in live)
    assert sum(found.images_per_sec * found.seconds for found in live) == pytest.approx(
        live[-1].images if live else 0, abs=1e-6
    )
    assert not any(found.told for found in live)
