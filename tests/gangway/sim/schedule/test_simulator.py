"""What holds whatever the jobs, the policy and the nodes do."""

import math
import random
import statistics
from collections import defaultdict
from dataclasses import replace
from itertools import islice, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangway.components.estimate.scaling import Links, StepModel, step_sec
from gangway.components.estimate.spot import best_interval_sec
from gangway.sim.schedule.cluster import Cluster, Hourly, Meter, Power, Rung, outages
from gangway.sim.schedule.jobs import Ask, Curve, Job
from gangway.sim.schedule.policies import POLICIES, Fifo, Grants, View
from gangway.sim.schedule.simulator import Outcome, Stint, get_figures, simulate
from tests.gangway.sim.schedule.builders import job, plain, random_jobs

SPOT = Cluster(
    (
        Rung("reserved", 2, Hourly((3.0,)), always_paid=True, gone_per_hour=0.001, back_hours=24),
        Rung("spot", 3, Hourly((1.0, 2.0)), gone_per_hour=0.3, back_hours=1),
        Rung("on-demand", 1, Hourly((5.0,))),
    ),
    gpus_per_node=2,
    start_sec=120,
    save_sec=10,
    interval_sec=600,
)
policies = st.sampled_from(sorted(POLICIES))
seeds = st.integers(0, 10_000)


def run(policy: str, seed: int, cluster: Cluster = SPOT) -> tuple[list[Job], Outcome]:
    jobs = random_jobs(seed, 30, 6)
    return jobs, simulate(jobs, cluster, POLICIES[policy](), seed)


@settings(deadline=None, max_examples=60)
@given(policies, seeds)
def test_no_gpu_belongs_to_two_and_none_to_a_node_that_is_gone(policy: str, seed: int) -> None:
    _, outcome = run(policy, seed)
    held = defaultdict(list)
    for span in outcome.spans:
        for slot in span.slots:
            held[slot].append((span.from_sec, span.to_sec))
    for times in held.values():
        times.sort()
        assert all(ended <= begun for (_, ended), (begun, _) in pairwise(times))
    edges = [(span.from_sec, 1, len(span.slots)) for span in outcome.spans]
    edges += [(span.to_sec, 0, -len(span.slots)) for span in outcome.spans]
    there = [(sec, 2, gpus) for sec, gpus in outcome.there]
    busy = have = 0
    by_time = defaultdict(list)
    for edge in (*edges, *there):
        by_time[edge[0]].append(edge)
    for sec in sorted(by_time):
        for _, kind, gpus in by_time[sec]:
            busy, have = (busy, gpus) if kind == 2 else (busy + gpus, have)
        assert 0 <= busy <= have


@settings(deadline=None, max_examples=60)
@given(policies, seeds)
def test_every_gpu_second_paid_is_used_idle_or_lost(policy: str, seed: int) -> None:
    jobs, outcome = run(policy, seed)
    kept = sum(one.kept_gpu_sec for one in outcome.jobs)
    lost = sum(one.lost_gpu_sec for one in outcome.jobs)
    assert outcome.meter.paid_gpu_sec == pytest.approx(kept + lost + outcome.meter.idle_gpu_sec)
    assert kept + lost == pytest.approx(sum((span.to_sec - span.from_sec) * len(span.slots) for span in outcome.spans))
    # Jobs of the builders scale without loss: an image is a GPU-second.
    assert kept == pytest.approx(sum(one.images for one in jobs))
    figures = get_figures(outcome)
    assert figures.used_share + figures.idle_share + figures.lost_share == pytest.approx(1)


@settings(deadline=None, max_examples=60)
@given(policies, seeds)
def test_every_job_ends_once_within_its_bounds_and_after_it_came(policy: str, seed: int) -> None:
    jobs, outcome = run(policy, seed)
    asks = {one.ask.name: one.ask for one in jobs}
    assert sorted(asks) == sorted(one.ask.name for one in outcome.jobs)
    assert all(one.ask.submit_sec <= one.first_sec < one.end_sec for one in outcome.jobs)
    assert all(asks[span.job].gpus_min <= len(span.slots) <= asks[span.job].gpus_max for span in outcome.spans)


@settings(deadline=None, max_examples=40)
@given(seeds)
def test_fifo_starts_in_the_order_of_coming(seed: int) -> None:
    """So nobody is starved: whoever is first has all that becomes free."""
    _, outcome = run("fifo", seed)
    starts = [one.first_sec for one in sorted(outcome.jobs, key=lambda one: one.ask.submit_sec)]
    assert starts == sorted(starts)


@settings(deadline=None, max_examples=40)
@given(policies, seeds)
def test_the_same_again_is_the_same(policy: str, seed: int) -> None:
    assert run(policy, seed)[1] == run(policy, seed)[1]


@settings(deadline=None, max_examples=40)
@given(seeds, st.floats(0, 30))
def test_an_interruption_loses_at_most_the_work_since_the_last_checkpoint(seed: int, notice_sec: float) -> None:
    """Between two stints the images never fall by more than an interval's; with notice for a save by none at all."""
    seen: dict[str, float] = {}
    dropped: list[float] = []

    class Watching(Fifo):
        def decide(self, view: View) -> Grants:
            for one in view.jobs:
                before = seen.get(one.ask.name, 0.0)
                rate = one.ask.rate(one.ask.gpus_max)
                dropped.append((before - one.images_done) / rate)
                seen[one.ask.name] = one.images_done
            return super().decide(view)

    rungs = tuple(replace(rung, notice_sec=notice_sec) for rung in SPOT.rungs)
    simulate(random_jobs(seed, 20, 6), replace(SPOT, rungs=rungs), Watching(), seed)
    assert max(dropped) <= 600 + 1e-6
    if notice_sec >= SPOT.save_sec:
        assert max(dropped) <= 1e-6


def test_a_job_that_was_cut_off_goes_on_from_its_checkpoint() -> None:
    """One node, seed by seed: what it takes beyond its work is starts, saves, waiting and at most an interval each."""
    cluster = Cluster((Rung("spot", 1, gone_per_hour=2, back_hours=0.1),), start_sec=60, save_sec=5, interval_sec=300)
    interrupted = 0
    for seed in range(20):
        (ended,) = simulate([job("a", 0, (1, 1), 7200)], cluster, Fifo(), seed).jobs
        interrupted += ended.interruptions
        assert ended.kept_gpu_sec == pytest.approx(7200)
        starts = 1 + ended.interruptions
        most = starts * 60 + 23 * 5 + ended.interruptions * (300 + 5)
        assert 60 + 23 * 5 <= ended.lost_gpu_sec <= most + 1e-6
    assert interrupted > 20


def test_the_first_rungs_are_taken_first_and_fuller_nodes_before_empty_ones() -> None:
    cluster = Cluster((Rung("reserved", 1), Rung("spot", 2)), gpus_per_node=4, start_sec=0, save_sec=0)
    jobs = [job("a", 0, (5, 5), 100), job("b", 1, (2, 2), 100), job("c", 2, (4, 4), 100)]
    slots = {span.job: span.slots for span in simulate(jobs, cluster, Fifo()).spans}
    assert slots == {"a": (0, 1, 2, 3, 4), "b": (5, 6), "c": (7, 8, 9, 10)}


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


SEEDS = range(10)
JOBS, WARM_UP = 2000, 200
T_99_9 = 4.781
"""Student's quantile of 9 degrees of freedom, two-sided 99.9 %."""


def erlang_c(servers: int, load: float) -> float:
    """The chance that an arrival waits; `load`: in servers."""
    terms = [load**k / math.factorial(k) for k in range(servers)]
    last = load**servers / math.factorial(servers) / (1 - load / servers)
    return last / (sum(terms) + last)


def queue(seed: int, per_sec: float, mean_sec: float, *, fixed: bool = False) -> list[Job]:
    draw, now, jobs = random.Random(seed), 0.0, []
    for index in range(JOBS):
        now += draw.expovariate(per_sec)
        length = mean_sec if fixed else draw.expovariate(1 / mean_sec)
        jobs.append(job(str(index), now, (1, 1), length))
    return jobs


def mean_wait_sec(jobs: list[Job], servers: int) -> float:
    ended = simulate(jobs, plain(servers), Fifo()).jobs
    waits = {one.ask.name: one.first_sec - one.ask.submit_sec for one in ended}
    return statistics.fmean(waits[str(index)] for index in range(WARM_UP, JOBS))


def hold_against(exact: float, found: list[float]) -> None:
    """The exact value lies in the interval, which is narrow enough to say something."""
    half = T_99_9 * statistics.stdev(found) / math.sqrt(len(found))
    assert abs(statistics.fmean(found) - exact) < half
    assert half < 0.5 * exact


@pytest.mark.slow
@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (4, 0.7), (8, 0.7)])
def test_mean_wait_of_m_m_c(servers: int, load: float) -> None:
    exact = erlang_c(servers, servers * load) * 100 / (servers * (1 - load))
    hold_against(exact, [mean_wait_sec(queue(seed, servers * load / 100, 100), servers) for seed in SEEDS])


def test_mean_wait_of_m_d_1() -> None:
    """Half of what it is with exponential lengths."""
    load = 0.6
    exact = load * 100 / (2 * (1 - load))
    hold_against(exact, [mean_wait_sec(queue(seed, load / 100, 100, fixed=True), 1) for seed in SEEDS])


def test_one_job_alone_takes_its_work_its_start_and_its_saves() -> None:
    """1000 s of training in intervals of 300 s: three saves within it, none at its end."""
    cluster = plain(4, start_sec=60, save_sec=10, interval_sec=300)
    (ended,) = simulate([job("one", 500, (2, 2), 1000)], cluster, Fifo()).jobs
    assert (ended.first_sec, ended.end_sec) == (500, 500 + 60 + 1000 + 3 * 10)
    assert (ended.kept_gpu_sec, ended.lost_gpu_sec) == (2000, 2 * (60 + 30))


def test_figures_of_two_jobs_by_hand() -> None:
    """Two hours one after the other on one GPU at $2."""
    jobs = [job("a", 0, (1, 1), 3600, deadline_sec=3600), job("b", 0, (1, 1), 3600, deadline_sec=7199)]
    found = get_figures(simulate(jobs, plain(1), Fifo()))
    assert (found.makespan_hours, found.job_hours_mean, found.wait_hours_mean) == (2, 1.5, 0.5)
    assert found.job_hours_p95 == pytest.approx(1.95)
    assert (found.usd, found.gpu_hours, found.used_share, found.late) == (4, 2, 1, 1)
    assert found.kwh is None
    assert found.gco2e is None
