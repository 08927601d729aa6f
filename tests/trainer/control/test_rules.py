"""`rules` in a closed loop: what is wrong is mended, and what is right stays."""

import itertools

import pytest

from gangway.trainer.config.values.control import Bounds, ControlSettings
from gangway.trainer.control.guardrails import Machine, allowed_values
from gangway.trainer.control.interval import Decision, Interval, Kind, Knobs, Room, bottleneck
from gangway.trainer.control.rules import Rules
from tests.trainer.control.closed_loop import Loop, Plant

RULES = ControlSettings(policy="rules", bounds=Bounds(batch_size=(16, 1024)))
DATA_BOUND = Plant(read_sec=0.006, compute_sec=0.002)


def test_a_loader_that_starves_the_steps_gets_threads() -> None:
    loop = Loop(DATA_BOUND, Knobs(batch_size=64, threads=1), RULES)
    run = loop.run()
    assert run.goodput > 2 * loop.at()
    assert run.history[-1].knobs.loader_threads == 3
    assert run.history[-1].images_per_sec == pytest.approx(loop.at(loader_threads=3), rel=0.03)
    first = next(each.decision for each in run.history if each.decision)
    assert (first.knob, first.was, first.value) == ("loader_threads", 1, 2)
    assert "%" in first.reason


def test_a_loader_that_starves_them_badly_gets_twice_as_many_at_once() -> None:
    run = Loop(Plant(cores=16, read_sec=0.1, compute_sec=0.002), Knobs(batch_size=64, threads=1), RULES).run()
    values = [each.decision.value for each in run.history if each.decision]
    assert values[:3] == [2, 4, 8]


@pytest.mark.parametrize(("others", "serial"), [(1.0, 0.3), (0.4, 0.8)])
def test_threads_make_room_for_a_neighbour_and_come_back(others: float, serial: float) -> None:
    """Also for one that would leave each its core by rounding."""
    plant = Plant(cores=2, serial=serial, neighbour=lambda passed: others if 1 / 3 <= passed < 2 / 3 else 0.0)
    loop = Loop(plant, Knobs(batch_size=64, threads=2), RULES, intervals=90)
    run = loop.run()
    threads = [each.knobs.threads for each in run.history]
    assert threads[28] == 2
    assert threads[45] == 1
    assert threads[-1] == 2
    assert run.goodput > 1.05 * loop.at()


@pytest.mark.parametrize("since", range(4, 30, 5))
def test_a_neighbour_that_leaves_soon_gives_the_threads_back_at_once(since: int) -> None:
    """Whatever has been left alone since: what the threads were taken away for is gone."""
    plant = Plant(cores=2, serial=0.3, neighbour=lambda passed: 1.0 if 10 <= 90 * passed < 10 + since else 0.0)
    threads = [each.knobs.threads for each in Loop(plant, Knobs(64, threads=2), RULES, intervals=90).run().history]
    taken = threads.index(1)
    assert taken < 10 + since
    assert 2 in threads[taken : max(taken + 5, 10 + since) + 4]


def test_what_paid_is_not_turned_back_at_once() -> None:
    """Threads that were too many: idle cores are no reason to have them again while that is all that has changed."""
    fewer = Decision("threads", 1, 2, "rules", "", 0.1, "")
    last = Interval(0, 10.0, 100.0, Knobs(64, threads=2), cpu_use=0.5, cores=2, decision=fewer)
    settings, kept = ControlSettings(), Interval(0, 10.0, 120.0, last.after, cpu_use=0.5, cores=2)

    def decided(history: list[Interval]) -> Decision | None:
        room = Room(allowed_values(settings, last.knobs, Machine(2), history), "time", last.knobs, on_cpu=True)
        return Rules().decide(history, room)

    for intervals in (3, 18):
        assert decided([last, *[kept] * intervals]) is None
    again = decided([last, *[kept] * 19])
    assert again is not None
    assert (again.knob, again.value) == ("threads", 2)
    assert "cores are idle" in again.reason, "no neighbour was there who could have gone"
    beside = [last._replace(neighbour_cores=1.0), *[kept._replace(neighbour_cores=0.0)] * 3]
    back = decided(beside)
    assert back is not None
    assert back.value == 2


def test_idle_cores_are_computed_on() -> None:
    loop = Loop(Plant(), Knobs(batch_size=64, threads=1), RULES)
    run = loop.run()
    assert run.history[-1].knobs.threads >= 3
    assert run.goodput > 1.5 * loop.at()


def test_a_batch_far_from_the_noise_scale_comes_near_it_and_no_further() -> None:
    loop = Loop(Plant(noise_scale=32.0), Knobs(batch_size=512, threads=4), RULES)
    run = loop.run()
    assert 16 <= run.history[-1].knobs.batch_size <= 128
    assert run.goodput > 2 * loop.at()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "plant",
    [
        Plant(noise_scale=60.0),
        Plant(cores=2, noise_scale=100.0),
        Plant(device=True, compute_sec=0.0005),
        Plant(spread=0.03),
    ],
)
def test_what_is_right_from_the_start_is_left_alone(plant: Plant, seed: int) -> None:
    loop = Loop(plant, Knobs(batch_size=64, threads=plant.cores), RULES, seed=seed)
    run = loop.run()
    assert run.goodput >= 0.98 * loop.at()


def test_what_did_not_pay_is_undone_and_left_alone_for_longer_each_time() -> None:
    """A disk that more threads read no faster."""
    plant = Plant(read_sec=0.006, compute_sec=0.002)

    class Slow(Plant):
        def interval(self, images, knobs, passed, seconds, draw):  # type: ignore[no-untyped-def]
            seen = plant.interval(images, knobs._replace(loader_threads=1), passed, seconds, draw)
            return seen._replace(knobs=knobs)

    run = Loop(Slow(), Knobs(batch_size=64, threads=1), RULES, intervals=200).run()
    made = [each.decision for each in run.history]
    tried = [
        number for number, each in enumerate(made) if each and (each.knob, each.policy) == ("loader_threads", "rules")
    ]
    assert run.history[-1].knobs.loader_threads <= 2
    gaps = [later - earlier for earlier, later in itertools.pairwise(tried)]
    assert gaps == sorted(gaps)
    assert len(tried) <= 6


def test_one_hiccup_is_no_reason() -> None:
    seen = Loop(
        Plant(), Knobs(batch_size=64, threads=4), RULES,
        broken=lambda each, number: each._replace(loader_share=0.8) if number == 20 else each,
    ).run()  # fmt: skip
    assert all(each.decision is None for each in seen.history)


def test_compiled_losses_are_tried_without_on_a_cpu_alone() -> None:
    settings = ControlSettings(bounds=Bounds(compile=True))
    compiled = Interval(1000, 10.0, 100.0, Knobs(16, compile="on", threads=4), cpu_use=0.95, cores=4)
    for on_cpu, device_use, expected in ((True, None, "off"), (False, 0.99, None), (False, None, None)):
        each = compiled._replace(on_cpu=on_cpu, device_use=device_use)
        history = [each._replace(images=1000 * number) for number in range(1, 4)]
        machine = Machine(cores=4, on_cpu=on_cpu)
        room = Room(allowed_values(settings, history[0].knobs, machine, history), "time", history[0].knobs, on_cpu)
        decision = Rules().decide(history, room)
        assert (decision and decision.value) == expected
    fixed = allowed_values(settings, compiled.knobs, Machine(cores=4, fixed=("compile",)), [compiled])
    assert "compile" not in fixed


def test_on_a_gpu_without_a_meter_nothing_is_done_that_is_for_cpus() -> None:
    """Its idle cores are no reason for threads, and it computes for all that anybody knows."""
    idle = Interval(1000, 10.0, 100.0, Knobs(16, threads=1), on_cpu=False, cpu_use=0.1, cores=8, neighbour_cores=0.0)
    history = [idle, idle._replace(images=2000)]
    assert {bottleneck(each).kind for each in history} == {Kind.DEVICE}
    allowed = {"threads": (1, 2, 4), "precision": ("bf16", "fp32")}
    decision = Rules().decide(history, Room(allowed, "time", idle.knobs, on_cpu=False))
    assert decision is not None
    assert (decision.knob, decision.value) == ("precision", "bf16")
    assert Rules().decide(history, Room({"threads": (1, 2, 4)}, "time", idle.knobs, on_cpu=False)) is None


def test_power_is_lowered_where_energy_is_the_objective() -> None:
    plant = Plant()

    class Gpu(Plant):
        """Half of the clock's last tenth costs a third of the power."""

        def interval(self, images, knobs, passed, seconds, draw):  # type: ignore[no-untyped-def]
            seen = plant.interval(images, knobs, passed, seconds, draw)
            share = knobs.power_share
            return seen._replace(images_per_sec=seen.images_per_sec * share**0.3, watts=(seen.watts or 0) * share)

    settings = RULES.model_copy(update={"objective": "energy", "bounds": Bounds(watts=(350.0, 700.0))})
    loop = Loop(Gpu(), Knobs(batch_size=64, threads=4), settings, limit_watts=700.0, power_floor=0.4)
    assert loop.run().history[-1].knobs.power_share == 0.5
