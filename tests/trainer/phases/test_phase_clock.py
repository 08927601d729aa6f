"""Times of phases on a clock of the test's own; a GPU's events are played."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gangway.trainer.phases.phase_clock import PhaseClock


def steps(clock: PhaseClock, now: list[float], number: int) -> None:
    """Steps of two phases, of a second and of two, with half a second between steps."""
    for _ in range(number):
        clock.enter("d")
        now[0] += 1.0
        clock.enter("g")
        now[0] += 2.0
        clock.leave()
        now[0] += 0.5


def test_a_phase_lasts_until_the_next_and_the_last_until_it_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [7.0]
    monkeypatch.setattr("gangway.trainer.phases.phase_clock.time", SimpleNamespace(perf_counter=lambda: now[0]))
    clock = PhaseClock(torch.device("cpu"))
    assert clock.means() == {}
    steps(clock, now, 3)
    assert clock.means() == {"d": 1.0, "g": 2.0}


@pytest.mark.parametrize("device", [None, torch.device("meta")])
def test_elsewhere_nobody_times_them(device: torch.device | None) -> None:
    clock = PhaseClock(device)
    steps(clock, [0.0], 2)
    assert clock.means() == {}


def test_a_gpu_times_some_steps_by_events(monkeypatch: pytest.MonkeyPatch) -> None:
    now, made = [7.0], list[Any]()

    class Event:
        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing
            made.append(self)

        def record(self) -> None:
            self.at = now[0]

        def synchronize(self) -> None:
            pass

        def elapsed_time(self, end: "Event") -> float:
            return (end.at - self.at) * 1e3

    monkeypatch.setattr(torch.cuda, "Event", Event)
    clock = PhaseClock(torch.device("cuda"))
    steps(clock, now, 33)
    assert len(made) == 3 * 3, "of the first, the 17th and the 33rd step"
    assert clock.means() == {"d": pytest.approx(1.0), "g": pytest.approx(2.0)}
    clock = PhaseClock(torch.device("cuda"))
    assert clock.means() == {}, "no step as ever, as with a graph"
