"""Jobs that are off, left alone and mended: by hand where one is alone, and what no controller can do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gangway.components.estimate.scaling import Links
from gangway.sim.comparison import changes, compare
from gangway.sim.schedule.jobs import Ask, ControllerConfig, Curve, Job, Run, controlled_job, drawn, submitted_job
from gangway.sim.schedule.policies import Fifo, Goodput
from gangway.sim.schedule.scenario import Scenario, ScenarioConfig, build
from gangway.sim.schedule.simulator import simulate
from tests.gangway.sim.schedule.builders import plain

NETWORK = Links(8, 400.0, 3200.0, 15e-6, 3e-6)
CURVE = Curve(1000.0, batch_size=256, batch_max=2048, noise_batch=2000.0, gradient_bytes=2e8, serial_share=0.02)
GAIN = ControllerConfig(regained=0.5, settle_sec=600.0, overhead=0.0)


def gain_of(**changes: float) -> ControllerConfig:
    return GAIN.model_copy(update=changes)


def job(images: float, gpus: tuple[int, int] = (1, 1)) -> Job:
    return Job(Ask.on(NETWORK, CURVE, name="a", submit_sec=0.0, gpus=gpus, images=2 * images), images)


def seconds(one: Job) -> float:
    """Alone on a GPU that is always there."""
    return simulate([one], plain(1), Fifo()).jobs[0].end_sec


def test_one_job_alone_by_hand() -> None:
    """Half the speed for want of data: 3,600,000 images take two hours; mended to three quarters after ten minutes,
    300,000 are done by then, and the rest takes 4,400 s.
    """
    run = Run(job(3_600_000), CURVE, speed=0.5)
    assert seconds(submitted_job(run, NETWORK)) == pytest.approx(7200)
    assert seconds(controlled_job(run, NETWORK, GAIN)) == pytest.approx(600 + 3_300_000 / 750)
    assert seconds(controlled_job(run, NETWORK, gain_of(regained=1.0, settle_sec=0.0))) == pytest.approx(3600)


def test_a_job_that_ends_before_it_has_settled_gains_nothing() -> None:
    run = Run(job(100_000), CURVE, speed=0.5)
    assert seconds(controlled_job(run, NETWORK, GAIN)) == pytest.approx(seconds(submitted_job(run, NETWORK))) == 200


def test_a_job_that_was_right_pays_for_its_controller_and_no_more() -> None:
    run, dear = Run(job(3_600_000), CURVE), gain_of(overhead=0.01)
    assert seconds(submitted_job(run, NETWORK)) == pytest.approx(3600)
    assert seconds(controlled_job(run, NETWORK, dear)) == pytest.approx(3600 / 0.99)


def test_a_batch_far_above_the_noise_scale_is_mended_by_the_controller_or_by_who_moves_batches() -> None:
    run = Run(job(1e7, (1, 16)), CURVE, batch_size=8192)
    fixed, mended = submitted_job(run, NETWORK).ask, controlled_job(run, NETWORK, gain_of(regained=1.0)).ask
    assert fixed.speeds[0] == pytest.approx(1000 * 2256 / 10192), "an image is worth a fifth (Pollux, equation 6)"
    assert mended.speeds == pytest.approx(fixed.goodputs)
    assert mended.goodputs == fixed.goodputs


def test_a_small_batch_on_one_gpu_is_not_off() -> None:
    run = Run(job(1e7, (1, 16)), CURVE, batch_size=16)
    fixed, mended = submitted_job(run, NETWORK).ask, controlled_job(run, NETWORK, gain_of(regained=1.0)).ask
    assert mended.speeds[0] == fixed.speeds[0] > 1000
    assert mended.speeds[-1] > 2 * fixed.speeds[-1], "on sixteen a step of an image each is all gradients"


@given(
    images=st.floats(1, 1e9),
    speed=st.floats(0.05, 1),
    batch=st.none() | st.integers(1, 9000),
    gain=st.builds(
        ControllerConfig, regained=st.floats(0, 1), settle_sec=st.floats(0, 1e5), overhead=st.floats(0, 0.5)
    ),
    widest=st.integers(1, 9),
)
def test_a_controller_makes_nothing_better_than_right_and_costs_its_overhead_at_most(
    images: float, speed: float, batch: int | None, gain: ControllerConfig, widest: int
) -> None:
    run = Run(job(images, (1, widest)), CURVE, speed, batch)
    fixed, mended = submitted_job(run, NETWORK), controlled_job(run, NETWORK, gain)
    assert mended.images <= mended.ask.images
    for gpus in range(1, widest + 1):
        assert mended.ask.rate(gpus) <= run.best(gpus, NETWORK) * (1 + 1e-9)
        assert mended.ask.rate(gpus) >= fixed.ask.rate(gpus) * (1 - gain.overhead) * (1 - 1e-9)
    alone = [one.images / one.ask.rate(1) for one in (fixed, mended)]
    assert alone[1] <= alone[0] / (1 - gain.overhead) * (1 + 1e-9)


def test_the_same_jobs_are_off_by_seed() -> None:
    misfit = ControllerConfig(data_bound_share=0.3, data_bound_speed=0.5, off_batch_share=0.2, off_batch_size=16)
    jobs = [job(1.0)] * 2000
    runs = drawn(jobs, [CURVE] * 2000, misfit, 1)
    assert runs == drawn(jobs, [CURVE] * 2000, misfit, 1) != drawn(jobs, [CURVE] * 2000, misfit, 2)
    assert sum(run.speed == 0.5 for run in runs) / 2000 == pytest.approx(0.3, abs=0.05)
    assert sum(run.batch_size == 16 for run in runs) / 2000 == pytest.approx(0.2, abs=0.05)


def scenario(**controller: float) -> Scenario:
    return build(ScenarioConfig.model_validate({
        "cluster": {"capacity": [{"kind": "reserved", "nodes": 32, "usd_per_gpu_hour": 2}]},
        "training": {"batch_size": 256, "batch_max": 2048, "noise_batch": 2000},
        "controller": controller,
        "generate": {"jobs": 60, "elastic": 2, "load": 0.5},
    }))  # fmt: skip


def test_both_arms_of_each_policy_and_the_assumptions() -> None:
    found = scenario(data_bound_share=0.5, overhead=0)
    arms = list(compare(found, [Fifo, Goodput], range(6)))
    assert [arm.policy for arm in arms] == [
        "fifo, fixed", "fifo, resource aware", "goodput, fixed", "goodput, resource aware",
    ]  # fmt: skip
    for fixed, aware in (arms[:2], arms[2:]):
        change = changes([fixed, aware])[aware.policy, "job_hours_mean"]
        assert change is not None
        assert change.change < -0.05
        assert change.direction == -1
    assert "regains 80%" in found.notes[-1]


def test_where_nothing_is_off_only_the_overhead_is_left() -> None:
    fixed, aware = compare(scenario(overhead=0), [Fifo], range(2))
    assert fixed.figures == aware.figures
    change = changes(list(compare(scenario(overhead=0.02), [Fifo], range(2))))["fifo, resource aware", "makespan_hours"]
    assert change is not None
    assert 0 <= change.change <= 0.03


def test_a_batch_that_is_off_needs_a_noise_scale() -> None:
    written = {
        "cluster": {"capacity": [{"kind": "reserved", "nodes": 1}]},
        "controller": {"off_batch_share": 0.1},
        "generate": {"jobs": 3},
    }
    with pytest.raises(ValidationError, match="write noise_batch: 2000"):
        ScenarioConfig.model_validate(written)
