"""The simulator against what queueing theory says exactly, within confidence intervals over seeds."""

import math
import random
import statistics

import pytest

from gangway.sim.schedule.jobs import Job
from gangway.sim.schedule.policies import Fifo
from gangway.sim.schedule.simulator import get_figures, simulate
from tests.gangway.sim.schedule.builders import job, plain

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
