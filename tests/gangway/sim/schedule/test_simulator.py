"""What holds whatever the jobs, the policy and the nodes do."""

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangway.sim.schedule.cluster import Cluster, Hourly, Rung
from gangway.sim.schedule.jobs import Job
from gangway.sim.schedule.policies import POLICIES, Fifo
from gangway.sim.schedule.policy import Grants, View
from gangway.sim.schedule.simulator import Outcome, get_figures, simulate
from tests.gangway.sim.schedule.builders import job, random_jobs

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
    assert outcome.paid_gpu_sec == pytest.approx(kept + lost + outcome.idle_gpu_sec)
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
