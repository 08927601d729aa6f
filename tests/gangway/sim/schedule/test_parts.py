"""The parts of the simulator: prices by the hour, speeds, stints, nodes that come and go, power."""

import math
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.estimate.scaling import Links, StepModel, step_sec
from gangway.components.estimate.spot import best_interval_sec
from gangway.sim.schedule.cluster import Cluster, Hourly, Meter, Power, Rung, outages
from gangway.sim.schedule.jobs import Ask, Curve
from gangway.sim.schedule.simulator import Stint

LINKS = Links(8, 3600, 1900, 1e-5, 3e-5)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=30), st.floats(0, 1e6), st.floats(0, 1e5), st.floats(0, 1e5))
def test_integrals_add_up(values: list[float], begin: float, one: float, other: float) -> None:
    price = Hourly(tuple(values))
    parts = price.integral(begin, begin + one) + price.integral(begin + one, begin + one + other)
    assert price.integral(begin, begin + one + other) == pytest.approx(parts, rel=1e-6, abs=1e-6)
    assert price.integral(0, 3600 * len(values)) == pytest.approx(sum(values))


def test_a_price_is_that_of_its_hour() -> None:
    assert [Hourly((1.0, 5.0)).at(sec) for sec in (0, 3599, 3600, 7200)] == [1, 1, 5, 1]


def test_a_jobs_speed_is_that_of_the_trainers_scaling_model() -> None:
    curve = Curve(1000, 64, gradient_bytes=50e6, serial_share=0.05)
    assert curve.speed(1, LINKS) == pytest.approx(1000)
    assert curve.speed(16, LINKS) == pytest.approx(64 / step_sec(StepModel(0.064, 50e6, 0.05), LINKS, 16, "strong"))


def test_goodput_weighs_larger_batches_by_what_an_image_is_worth() -> None:
    """At four times the batch and a noise scale of the batch, an image is worth 2/5."""
    curve = Curve(1000, 64, batch_max=256, noise_batch=64)
    assert curve.efficiency(256) == pytest.approx(0.4)
    assert Curve(1000, 64, 256).efficiency(256) == 0.25, "without a noise scale more images do no more"
    loaded = Curve(1000, 64, batch_max=1024, noise_batch=1e5, gradient_bytes=500e6)
    assert loaded.goodput(16, LINKS) > 1.5 * loaded.speed(16, LINKS)
    assert Curve(1000, 64, gradient_bytes=500e6).goodput(16, LINKS) == Curve(1000, 64, gradient_bytes=500e6).speed(
        16, LINKS
    )


def test_more_gpus_that_slow_a_job_down_are_not_taken() -> None:
    curve = Curve(1000, 8, gradient_bytes=5e9)
    ask = Ask.on(LINKS, curve, name="a", submit_sec=0, gpus=(1, 32), images=1)
    assert ask.best(32) <= 8
    assert ask.best(0) == 0


@given(st.floats(1, 1e5), st.floats(1, 1e5), st.floats(0, 100), st.floats(0, 1e3), st.floats(0, 2e5), st.floats(1, 1e3))
def test_what_a_stint_keeps(work: float, interval: float, save: float, start: float, cut: float, rate: float) -> None:
    stint = Stint(0, 1, rate, start, interval, save)
    trained, kept = stint.trained_sec(cut), stint.kept_sec(cut)
    assert 0 <= kept <= trained <= max(0.0, cut - start) + 1e-6
    assert trained - kept <= interval * (1 + 1e-9), "at most the work since the last checkpoint is lost"
    assert stint.trained_sec(stint.length_sec(work * rate)) == pytest.approx(work, rel=1e-6)


def test_a_stint_without_saves() -> None:
    stint = Stint(0, 1, 2, 10, math.inf, 5)
    assert (stint.length_sec(200), stint.trained_sec(60), stint.kept_sec(60)) == (110, 50, 0)


def test_nodes_are_there_for_the_share_of_time_that_their_rates_say() -> None:
    """Gone once in 10 hours for 5 hours on average: there two thirds of the time."""
    rung = Rung("spot", 400, gone_per_hour=0.1, back_hours=5)
    until, there_sec = 100 * 3600.0, 0.0
    for node in range(rung.nodes):
        last, state = 0.0, False
        for sec, there in islice(outages(rung, node, 3), 1000):
            there_sec += (min(sec, until) - last) * state
            last, state = min(sec, until), there
            if sec >= until:
                break
    assert there_sec / until / rung.nodes == pytest.approx(2 / 3, abs=0.02)
    assert list(islice(outages(rung, 7, 3), 9)) == list(islice(outages(rung, 7, 3), 9))
    assert list(islice(outages(rung, 7, 3), 9)) != list(islice(outages(rung, 7, 4), 9))
    assert list(outages(Rung("reserved", 1), 0, 0)) == [(0.0, True)]


def test_the_interval_of_checkpoints_is_the_best_for_the_jobs_nodes() -> None:
    """Half of the nodes go once in 50 hours: of two nodes one in 50."""
    cluster = Cluster((Rung("reserved", 1), Rung("spot", 1, gone_per_hour=0.02)), 4, start_sec=600, save_sec=10)
    assert cluster.interval_for(8) == pytest.approx(best_interval_sec(10, 50 * 3600, 600))
    assert math.isinf(Cluster((Rung("reserved", 1),), 4).interval_for(8))


def test_money_energy_and_carbon_by_hand() -> None:
    """Two hours of a node with 4 GPUs, 3 of them busy at $1 and then $3, in a grid that turns from 100 to 300 g."""
    rung = Rung("spot", 1, Hourly((1.0, 3.0)))
    power = Power(1000, 200, 1.1, Hourly((100.0, 300.0)))
    meter = Meter(Cluster((rung,), 4, power))
    meter.advance(7200, [1], [3])
    assert (meter.paid_gpu_sec, meter.idle_gpu_sec) == (28800, 7200)
    assert meter.usd == pytest.approx(16)
    assert meter.kwh == pytest.approx(3.2 * 1.1 * 2)
    assert meter.gco2e == pytest.approx(3.2 * 1.1 * 400)


def test_a_price_that_is_not_known_makes_no_sum() -> None:
    meter = Meter(Cluster((Rung("spot", 1),), 1))
    meter.advance(3600, [1], [1])
    assert meter.usd is None
