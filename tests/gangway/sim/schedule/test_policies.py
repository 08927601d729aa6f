"""What each policy does, on examples small enough to follow by hand."""

import pytest

from gangway.components.core.findings import InputError
from gangway.sim.schedule.cluster import Cluster, Rung
from gangway.sim.schedule.jobs import Ask, Job
from gangway.sim.schedule.policies import (
    POLICIES,
    Backfill,
    Fifo,
    Goodput,
    Grants,
    JobView,
    Learned,
    LengthModel,
    Policy,
    Shortest,
    View,
    policy_named,
)
from gangway.sim.schedule.simulator import EndlessError, Outcome, get_figures, simulate
from tests.gangway.sim.schedule.builders import job, plain, random_jobs


def ends(outcome: Outcome) -> dict[str, float]:
    return {one.ask.name: one.end_sec for one in outcome.jobs}


WIDE = [job("long", 0, (3, 3), 1000), job("wide", 1, (4, 4), 100), job("small", 2, (1, 1), 500)]


def test_fifo_lets_nobody_past() -> None:
    assert ends(simulate(WIDE, plain(4), Fifo())) == {"long": 1000, "wide": 1100, "small": 1600}


def test_backfill_fills_the_gap_and_delays_nobody() -> None:
    assert ends(simulate(WIDE, plain(4), Backfill())) == {"small": 502, "long": 1000, "wide": 1100}


def test_backfill_leaves_out_what_would_delay_the_first() -> None:
    jobs = [*WIDE[:2], job("small", 2, (1, 1), 999)]
    assert ends(simulate(jobs, plain(4), Backfill()))["small"] == 2099


def test_backfill_takes_what_is_to_spare_for_as_long_as_it_likes() -> None:
    jobs = [job("long", 0, (3, 3), 1000), job("next", 1, (3, 3), 100), job("small", 2, (1, 1), 5000)]
    assert ends(simulate(jobs, plain(4), Backfill())) == {"long": 1000, "next": 1100, "small": 5002}


def test_backfill_counts_the_start_of_a_job_that_has_not_begun_to_train() -> None:
    jobs = [
        *(job("b", 0, (5, 5), 4500), job("a", 1000, (6, 6), 3600)),
        *(job("head", 1001, (6, 6), 100), job("c", 1002, (1, 1), 20000)),
    ]
    cluster = plain(12, start_sec=600)
    starts = {one.ask.name: one.first_sec for one in simulate(jobs, cluster, Backfill()).jobs}
    assert starts["head"] == 5100, "when b ends, though a seems to end first where its start is forgotten"


@pytest.mark.parametrize("cluster", [plain(8), plain(8, start_sec=600, save_sec=60, interval_sec=900)])
@pytest.mark.parametrize("seed", range(20))
def test_backfills_reservation_holds(seed: int, cluster: Cluster) -> None:
    """Where jobs take what they asked for, who is first in the queue starts no later than it was told."""
    told: dict[str, float] = {}

    class Listening(Backfill):
        def decide(self, view: View) -> Grants:
            grants = super().decide(view)
            waiting = [one for one in view.waiting() if one.ask.name not in grants]
            if waiting:
                having = [one for one in view.jobs if one.ask.name in grants]
                free = view.gpus - sum(grants.values())
                for one in sorted(having, key=lambda one: self._end(one, grants, view)):
                    free += grants[one.ask.name]
                    if free >= waiting[0].ask.gpus_min:
                        told.setdefault(waiting[0].ask.name, self._end(one, grants, view))
                        break
            return grants

        def _end(self, one: JobView, grants: Grants, view: View) -> float:
            return view.now_sec + one.length_sec(grants[one.ask.name])

    jobs = [Job(one.ask, one.ask.images) for one in random_jobs(seed, 40, 8)]
    starts = {one.ask.name: one.first_sec for one in simulate(jobs, cluster, Listening()).jobs}
    assert told
    assert all(starts[name] <= sec + 1e-6 for name, sec in told.items())


def test_shortest_stops_a_long_job_for_a_much_shorter_one() -> None:
    jobs = [job("long", 0, (1, 1), 1000), job("short", 100, (1, 1), 50)]
    assert ends(simulate(jobs, plain(1), Shortest())) == {"short": 150, "long": 1050}


def test_shortest_moves_nobody_for_little() -> None:
    jobs = [job("long", 0, (1, 1), 1000), job("short", 100, (1, 1), 800)]
    assert ends(simulate(jobs, plain(1), Shortest())) == {"long": 1000, "short": 1800}


def test_what_a_move_costs_is_paid_when_the_job_starts_again() -> None:
    """A start of 10 s each time, and the save that it owed."""
    jobs = [job("long", 0, (1, 1), 1000), job("short", 100, (1, 1), 50)]
    outcome = simulate(jobs, plain(1, start_sec=10, save_sec=5), Shortest())
    assert ends(outcome) == {"short": 160, "long": 160 + 15 + 910}
    assert {one.ask.name: one.moves for one in outcome.jobs} == {"short": 0, "long": 1}


def test_goodput_shrinks_to_let_one_in_and_grows_again() -> None:
    jobs = [job("first", 0, (1, 4), 40000), job("second", 3600, (1, 4), 7200)]
    outcome = simulate(jobs, plain(4, start_sec=10, save_sec=1), Goodput())
    spans = sorted(outcome.spans, key=lambda span: span.from_sec)
    assert [len(span.slots) for span in spans if span.job == "first"] == [4, 2, 4]
    assert next(len(span.slots) for span in spans if span.job == "second") == 2


def test_goodput_gives_to_whom_more_is_worth() -> None:
    """One scales, one hardly does."""
    flat = Ask("flat", 0, 1, 4, 1e5, (1.0, 1.01, 1.02, 1.03), (1.0, 1.01, 1.02, 1.03))
    scales = Ask("scales", 0, 1, 4, 1e5, (1.0, 2.0, 3.0, 4.0), (1.0, 2.0, 3.0, 4.0))
    view = View(0, 5, [JobView(ask, 0, 0, 0, 0, ask.rate) for ask in (flat, scales)], 10)
    assert Goodput().decide(view) == {"flat": 1, "scales": 4}


def test_a_move_that_does_not_pay_is_left() -> None:
    """Nearly done: a restart would take longer than what is left."""
    ask = Ask("a", 0, 1, 4, 1000, (1.0, 2.0, 3.0, 4.0), (1.0, 2.0, 3.0, 4.0))
    view = View(990, 4, [JobView(ask, 1, 990, 990, 0, ask.rate)], 600)
    assert Goodput().decide(view) == {"a": 1}


def test_the_length_model_learns_a_group() -> None:
    model = LengthModel()
    early, whole = job("e", 0, (1, 1), 100, group="early").ask, job("w", 0, (1, 1), 100, group="whole").ask
    assert model.share(early) == model.share(whole) == 1, "before it knows anything it believes what is asked"
    for _ in range(30):
        model.learn(early, early.images / 10)
        model.learn(whole, whole.images)
    assert model.share(early) < 0.2
    assert model.share(whole) > 0.8


def test_learned_lengths_beat_those_asked_for_where_some_always_end_early() -> None:
    jobs = []
    for index in range(60):
        early = index % 2 == 0
        jobs.append(job(f"{index}", index * 300, (1, 1), 60 if early else 500, asked_sec=600 if early else 500,
                        group="early" if early else "whole"))  # fmt: skip
    asked, learned = (get_figures(simulate(jobs, plain(1), policy)) for policy in (Shortest(), Learned()))
    assert learned.job_hours_mean < asked.job_hours_mean


@pytest.mark.slow
def test_learned_lets_nobody_wait_for_ever() -> None:
    """A stream of short jobs that fills the cluster for ten days; shortest leaves the long one to the end."""
    stream = [job(f"s{index}", index * 100, (1, 1), 100) for index in range(8640)]
    jobs = [*stream, job("long", 50, (1, 1), 3600)]
    starved, served = (ends(simulate(jobs, plain(1), policy))["long"] for policy in (Shortest(), Learned()))
    assert starved > 860_000
    assert served < 3 * 24 * 3600


def test_a_policy_that_breaks_the_rules_is_told() -> None:
    class Greedy(Fifo):
        name = "greedy"

        def decide(self, view: View) -> Grants:
            return {one.ask.name: one.ask.gpus_min for one in view.jobs}

    class Small(Fifo):
        name = "small"

        def decide(self, view: View) -> Grants:
            return {one.ask.name: 1 for one in view.jobs}

    with pytest.raises(ValueError, match="greedy: 7 GPUs given of 4"):
        simulate(WIDE, plain(4), Greedy())
    with pytest.raises(ValueError, match="small: long given 1 GPUs, not 3 to 3"):
        simulate(WIDE, plain(4), Small())


def test_a_job_that_never_ends_is_named() -> None:
    """Its node goes every six minutes, before its start is over."""
    cluster = Cluster((Rung("spot", 1, gone_per_hour=10, back_hours=0.01),), start_sec=36000)
    with pytest.raises(EndlessError, match="1 jobs have not ended") as left:
        simulate([job("never", 0, (1, 1), 1e6)], cluster, Fifo())
    assert left.value.names == ["never"]


def test_policies_are_found_by_name() -> None:
    assert {name: policy.name for name, policy in POLICIES.items()} == {name: name for name in POLICIES}
    assert all(policy.says for policy in POLICIES.values())
    assert policy_named("fifo") is Fifo
    with pytest.raises(InputError, match="did you mean 'backfill'"):
        policy_named("backfil")


def test_a_policy_of_ones_own_takes_ten_lines() -> None:
    """The one in the module's docstring."""
    from gangway.sim.schedule import policies

    assert policies.__doc__ is not None
    code = policies.__doc__.partition("\n\n")[2].replace("\n    ", "\n").removeprefix("    ")
    names: dict[str, type[Policy]] = {}
    exec(f"from gangway.sim.schedule.policies import *\n{code}", names)
    jobs = [job("a", 0, (1, 1), 100), job("b", 1, (1, 1), 100), job("c", 2, (1, 1), 100)]
    assert list(ends(simulate(jobs, plain(1), names["LastComeFirst"]()))) == ["a", "c", "b"]
