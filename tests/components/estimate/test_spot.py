"""Expected cost of spare capacity: the worked figures, and what must hold for all of them."""

import math
import random
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gangway.components.estimate.spot import (
    NEVER,
    LadderJob,
    LadderRung,
    Span,
    best_interval_sec,
    estimate_ladder,
    estimate_spot,
    get_shares,
    mtbf_sec,
    rate_per_hour,
)

nodes = st.integers(1, 256)
hours = st.floats(0.1, 2000)
fractions = st.floats(0, 0.5)
prices = st.floats(0.01, 200)


def test_the_worked_example_of_the_best_interval() -> None:
    assert best_interval_sec(10, 6000, 600) == pytest.approx(363.3, abs=0.1)


def test_a_tenth_a_month_on_eight_nodes_by_hand() -> None:
    """-ln(0.9)/720 a node and hour, times 8: an interruption each 854 hours."""
    assert rate_per_hour(0.1) == pytest.approx(1.4633e-4, rel=1e-4)
    assert mtbf_sec(8, 0.1) / 3600 == pytest.approx(854.2, abs=0.1)


def test_the_expected_cost_by_hand() -> None:
    """MTBF 60,000 s, interval 363 s: 1 + 10/363 over 1 - (181.5 + 600)/60000, for 100 h on 2 nodes at 20 USD."""
    fraction = 1 - math.exp(-720 * 3600 / 60000 / 2)
    found = estimate_spot(2, 20, 100, fraction, interval_sec=363, save_sec=10, restart_sec=600)
    expected = 100 * (1 + 10 / 363) / (1 - (363 / 2 + 600) / 60000)
    assert found.hours == pytest.approx(expected)
    assert found.usd == pytest.approx(2 * 20 * expected)
    assert found.goodput == pytest.approx(100 / expected)


@given(nodes, prices, hours)
def test_without_interruptions_nothing_is_lost(num_nodes: int, price: float, length: float) -> None:
    found = estimate_spot(num_nodes, price, length, 0.0)
    assert (found.hours, found.interruptions, found.goodput) == (length, 0.0, 1.0)
    assert found.usd == pytest.approx(num_nodes * price * length)


@given(nodes, prices, hours, st.floats(1, 3), fractions)
def test_more_hours_never_cost_less(
    num_nodes: int, price: float, length: float, factor: float, fraction: float
) -> None:
    short, long = (estimate_spot(num_nodes, price, length * times, fraction) for times in (1, factor))
    assert short.feasible == long.feasible
    assert short.usd is None or (long.usd is not None and long.usd >= short.usd * (1 - 1e-9))


@given(nodes, fractions, st.floats(1, 3))
def test_more_nodes_are_interrupted_more_often(num_nodes: int, fraction: float, factor: float) -> None:
    assume(fraction > 0)
    assert mtbf_sec(math.ceil(num_nodes * factor), fraction) <= mtbf_sec(num_nodes, fraction)


@given(st.integers(1, 64), st.floats(0.01, 0.3), st.floats(0.2, 5))
def test_no_other_interval_does_clearly_better(num_nodes: int, fraction: float, factor: float) -> None:
    """First-order optimum: the true one is within a percent of it wherever the job does well."""
    best = estimate_spot(num_nodes, 1, 100, fraction)
    assume(best.feasible and best.goodput > 0.8)
    other = estimate_spot(num_nodes, 1, 100, fraction, interval_sec=best.interval_sec * factor)
    assert not other.feasible or other.hours >= best.hours * 0.99


def test_a_job_that_loses_more_than_it_does_never_ends() -> None:
    found = estimate_spot(256, 20, 100, 0.9999, restart_sec=3600 * 24)
    assert not found.feasible
    assert (found.usd, found.goodput) == (None, 0.0)
    assert found.to_json()["hours"] is None


JOB = LadderJob(failures_per_hour=Span(1e-4, 2e-4, 4e-4), save_sec=10, restart_sec=600)
HOURS = 100
ON_DEMAND = LadderRung(220.0, num_nodes=4, hours=HOURS, interval_sec=1800)


def exactly(value: float) -> Span:
    return Span(value, value, value)


def spot(usd: float | None = 90.0, there: float = 0.64, taken: float = 1e-3) -> LadderRung:
    return replace(ON_DEMAND, usd_per_hour=usd, there=exactly(there), taken_per_hour=exactly(taken))


def alone(rung: LadderRung, job: LadderJob) -> float:
    """A run on one rung, as a plan prices each of them."""
    lost = (rung.taken_per_hour.value or 0.0) + (job.failures_per_hour.value or 0.0)
    estimate = estimate_spot(
        rung.num_nodes,
        0.0,
        rung.hours,
        0.0,
        failures_per_hour=lost,
        interval_sec=rung.interval_sec,
        save_sec=job.save_sec,
        restart_sec=job.restart_sec,
    )
    hours = min(job.restart_sec / 3600 + estimate.hours, job.max_hours)
    return math.inf if math.isinf(hours) else (rung.usd_per_hour or 0.0) * hours


def cost(rungs: list[LadderRung], job: LadderJob = JOB) -> float:
    usd = estimate_ladder(rungs, job).usd
    assert usd is not None
    return usd


@given(
    st.lists(st.builds(spot, st.floats(0, 500), st.floats(0.01, 1), st.floats(0, 0.1)), min_size=1, max_size=3),
    st.data(),
)
def test_a_rung_out_of_reach_has_no_share_and_changes_nothing(rungs: list[LadderRung], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(rungs)))
    never = replace(ON_DEMAND, usd_per_hour=data.draw(st.none() | st.floats(0, 500)), in_reach=False)
    found, without = estimate_ladder([*rungs[:at], never, *rungs[at:]], JOB), estimate_ladder(rungs, JOB)
    assert found.shares[at] == 0
    assert replace(found, shares=(*found.shares[:at], *found.shares[at + 1 :])) == without


def test_where_no_rung_is_in_reach_the_job_never_ends_and_nobody_says_what_it_costs() -> None:
    found = estimate_ladder([replace(ON_DEMAND, in_reach=False)], JOB)
    assert (found.shares, found.hours, found.usd, found.usd_high) == ((0.0,), math.inf, None, None)


def test_each_rung_has_what_those_above_it_leave() -> None:
    assert get_shares([1.0]) == (1.0,)
    assert get_shares([0.5, 0.5, 1.0]) == (0.5, 0.25, 0.25)
    assert get_shares([0.0, 0.3]) == (0.0, 1.0), "the last is taken to be there"


def test_spot_that_is_never_there_is_on_demand_and_one_that_always_is_is_spot() -> None:
    assert cost([spot(there=0.0), ON_DEMAND]) == pytest.approx(alone(ON_DEMAND, JOB))
    assert cost([spot(there=1.0), ON_DEMAND]) == pytest.approx(alone(spot(), JOB))
    assert cost([ON_DEMAND]) == pytest.approx(alone(ON_DEMAND, JOB))
    assert estimate_ladder([spot(there=1.0), replace(ON_DEMAND, usd_per_hour=None)], JOB).usd is not None, "unused"


def test_max_hours_end_the_run_done_or_not() -> None:
    rungs = [spot(there=0.5, taken=0.02), ON_DEMAND]
    whole, cut = estimate_ladder(rungs, JOB), estimate_ladder(rungs, replace(JOB, max_hours=HOURS / 2))
    assert (cut.hours, cut.hours_low, cut.hours_high) == (HOURS / 2,) * 3
    assert whole.hours is not None
    assert whole.usd is not None
    assert cut.usd == pytest.approx(whole.usd * HOURS / 2 / whole.hours)
    assert cut.interruptions == pytest.approx((whole.interruptions or 0.0) * HOURS / 2 / whole.hours)
    assert estimate_ladder(rungs, replace(JOB, max_hours=whole.hours * 2)) == whole
    endless = estimate_ladder([spot(there=1.0, taken=100.0), ON_DEMAND], replace(JOB, max_hours=HOURS))
    assert endless.hours == endless.hours_high == HOURS, "paid to the last hour, whatever was done"


rates, rung_prices = st.floats(0, 0.05), st.floats(1, 500)
any_rungs = st.lists(
    st.builds(
        LadderRung,
        usd_per_hour=rung_prices,
        num_nodes=st.integers(1, 64),
        hours=st.floats(0.05, 500),
        interval_sec=st.floats(60, 7200),
        there=st.floats(0, 1).map(exactly),
        taken_per_hour=st.floats(0, 0.3).map(exactly),
    ),
    min_size=1,
    max_size=4,
)


@given(any_rungs)
def test_it_is_between_the_cheapest_and_the_dearest_rung(rungs: list[LadderRung]) -> None:
    """Whatever their nodes, speeds and failures: of those with a share of the time."""
    shares = get_shares([rung.there.value or 0.0 for rung in rungs])
    ends = sorted(alone(rung, JOB) for rung, share in zip(rungs, shares, strict=True) if share > 0)
    assert ends[0] * (1 - 1e-9) <= cost(rungs) <= ends[-1] * (1 + 1e-9)


@given(any_rungs, st.floats(0.01, 600))
def test_cut_short_it_costs_as_much_for_the_images_it_makes(rungs: list[LadderRung], max_hours: float) -> None:
    whole, cut = estimate_ladder(rungs, JOB), estimate_ladder(rungs, replace(JOB, max_hours=max_hours))
    assert whole.hours is not None
    assert cut.hours == min(whole.hours, max_hours)
    if math.isfinite(whole.hours):
        assert cut.usd == pytest.approx((whole.usd or 0.0) * cut.hours / whole.hours)


def test_fewer_nodes_do_less_in_an_hour_and_fail_less_often() -> None:
    """Half of the nodes at half of the speed cost as much as all of them, where nothing interrupts."""
    calm = replace(JOB, failures_per_hour=NEVER, save_sec=0.0, restart_sec=0.0)
    half = replace(ON_DEMAND, usd_per_hour=110.0, num_nodes=2, hours=2 * HOURS)
    mixed = estimate_ladder([replace(ON_DEMAND, there=exactly(0.5)), half], calm)
    assert mixed.usd == pytest.approx(cost([ON_DEMAND], calm)) == pytest.approx(cost([half], calm))
    assert mixed.hours == pytest.approx(HOURS / 0.75), "half of the time at full speed, half of it at half speed"
    stops = [estimate_ladder([rung], JOB) for rung in (ON_DEMAND, half)]
    per_hour = [(each.interruptions or 0.0) / (each.hours or 0.0) for each in stops]
    assert per_hour[0] == pytest.approx(2 * per_hour[1])


@given(rates, st.floats(1, 10), st.floats(0, 1), st.floats(1, 219))
def test_what_is_taken_more_often_never_costs_less(taken: float, more: float, there: float, usd: float) -> None:
    seldom, often = ([spot(usd, there, rate), ON_DEMAND] for rate in (taken, taken * more))
    assert cost(seldom) <= cost(often) * (1 + 1e-12)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1e-3), rung_prices, rung_prices)
def test_the_expected_lies_within_its_ends(one: float, other: float, taken: float, usd: float, second: float) -> None:
    low, high = sorted((one, other))
    first = replace(ON_DEMAND, usd_per_hour=usd, there=Span(low, (low + high) / 2, high))
    rungs = [replace(first, taken_per_hour=Span(0.0, taken, taken * 3)), replace(ON_DEMAND, usd_per_hour=second)]
    found = estimate_ladder(rungs, JOB)
    assert found.usd is not None
    assert found.usd_low is not None
    assert found.usd_high is not None
    assert found.usd_low * (1 - 1e-9) <= found.usd <= found.usd_high * (1 + 1e-9)
    assert found.hours is not None
    assert found.hours_low * (1 - 1e-9) <= found.hours <= found.hours_high * (1 + 1e-9)


def test_what_nobody_knows_leaves_the_ends_alone() -> None:
    silent = replace(spot(), taken_per_hour=Span(0.0, None, 0.01))
    found = estimate_ladder([silent, ON_DEMAND], JOB)
    assert (found.usd, found.hours, found.interruptions) == (None, None, None)
    assert found.usd_low is not None
    assert found.usd_high is not None
    assert found.usd_low < found.usd_high
    assert estimate_ladder([spot(usd=None), ON_DEMAND], JOB).usd is None
    assert found.plus(1000).usd_low == found.usd_low + 1000
    assert found.plus(1000).usd is None


def test_a_job_that_never_ends_has_no_dollars_in_json() -> None:
    found = estimate_ladder([spot(taken=100.0), ON_DEMAND], JOB)
    assert found.usd == found.hours == math.inf
    assert found.to_json()["usd"] is None
    free = estimate_ladder([spot(usd=0.0, taken=100.0), replace(ON_DEMAND, usd_per_hour=0.0)], JOB)
    assert free.usd == math.inf, "no end has no price, not even of free machines"


def played_out(dice: random.Random, there: float, taken: float, failing: float, job: LadderJob) -> float:
    """Dollars of one job: each node is of spot while there is some, and of the next rung until there is again."""
    back = taken * there / (1 - there)
    on_spot = [dice.random() < there for _ in range(ON_DEMAND.num_nodes)]
    save, restart = job.save_sec / 3600, job.restart_sec / 3600
    every = (ON_DEMAND.interval_sec or 0.0) / 3600
    done, since, standing, usd = 0.0, 0.0, restart, 0.0
    while done < HOURS:
        events = [(dice.expovariate(taken if own else back), at) for at, own in enumerate(on_spot)]
        first, node = min(events)
        failed = dice.expovariate(failing * len(on_spot))
        # Until the next event of any kind: a checkpoint, the end, a node lost or had back.
        step = min(first, failed, standing if standing > 0 else min(every - since, HOURS - done - since))
        price = sum(90.0 if own else 220.0 for own in on_spot) / len(on_spot)
        usd += price * step
        if standing > 0:
            standing = max(0.0, standing - step)
        else:
            since += step
            if since >= every - 1e-12 or done + since >= HOURS - 1e-12:
                done, since, usd = done + since, 0.0, usd + price * save
        lost = failed <= step or (first <= step and on_spot[node])
        if first <= step:
            on_spot[node] = not on_spot[node]
        if lost:
            since, standing = 0.0, restart
    return usd


@pytest.mark.slow
def test_it_agrees_with_jobs_that_are_played_out() -> None:
    """Nodes are taken often, so that stops matter: without takings it would cost 4 % less."""
    dice, job = random.Random(24), replace(JOB, failures_per_hour=exactly(2e-3))
    there, taken = 0.7, 0.04
    rungs = [spot(90.0, there, taken), ON_DEMAND]
    runs = [played_out(dice, there, taken, 2e-3, job) for _ in range(1500)]
    mean = sum(runs) / len(runs)
    spread = (sum((each - mean) ** 2 for each in runs) / len(runs)) ** 0.5 / len(runs) ** 0.5
    assert cost(rungs, job) == pytest.approx(mean, abs=4 * spread, rel=0.01)
    calm = [replace(rungs[0], taken_per_hour=NEVER), ON_DEMAND]
    assert cost(calm, job) < 0.96 * mean
