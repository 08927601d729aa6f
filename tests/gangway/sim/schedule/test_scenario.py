"""Scenarios as they are written: what the catalogue fills in, jobs that are generated, policies beside each other."""

import math
import statistics

import pytest
from pydantic import ValidationError

from gangway.components.catalog.loader import load_provider
from gangway.components.catalog.machine_facts import load_philly
from gangway.components.core.findings import InputError
from gangway.components.estimate.scaling import Links
from gangway.components.estimate.spot import rate_per_hour
from gangway.components.estimate.statistics import compare_pairs
from gangway.sim.comparison import changes, compare
from gangway.sim.schedule.jobs import Curve, generate
from gangway.sim.schedule.policies import Fifo, Goodput
from gangway.sim.schedule.scenario import JobConfig, ScenarioConfig, build

P5 = {"provider": "aws", "machine_type": "p5.48xlarge", "region": "us-east-1"}
JOBS = [{"name": "a", "submit_hours": 1, "gpus": "2-8", "hours": 3, "ends_at": 0.5, "deadline_hours": 9}]


def scenario(**cluster: object) -> ScenarioConfig:
    capacity = cluster.pop("capacity", [{"kind": "spot", "nodes": 2}, {"kind": "on-demand", "nodes": 1}])
    return ScenarioConfig.model_validate({"cluster": {"capacity": capacity, **cluster}, "jobs": JOBS})


def test_the_catalogue_fills_in_what_is_not_said() -> None:
    found = build(scenario(machine=P5))
    spot, on_demand = found.cluster.rungs
    catalog = load_provider("aws")
    price = next(one for one in catalog.prices if (one.machine_type, one.region) == ("p5.48xlarge", "us-east-1"))
    assert found.cluster.gpus_per_node == 8
    assert spot.usd_per_gpu_hour is not None
    assert spot.usd_per_gpu_hour.at(0) * 8 == pytest.approx(price.spot_typical.value)
    assert on_demand.usd_per_gpu_hour is not None
    assert on_demand.usd_per_gpu_hour.at(0) * 8 == pytest.approx(price.on_demand.value)
    assert spot.gone_per_hour == pytest.approx(on_demand.gone_per_hour + rate_per_hour(0.4)), "the open bucket"
    assert found.cluster.power is not None
    assert found.cluster.power.pue == catalog.regions["us-east-1"].pue.value
    assert any("assumed" in note for note in found.notes)


def test_what_is_said_wins_over_the_catalogue() -> None:
    capacity = [{"kind": "spot", "nodes": 1, "usd_per_gpu_hour": [1, 2], "gone_per_hour": 0, "notice_sec": 30}]
    power = {"busy_watts": 900, "idle_watts": 90, "gco2e_per_kwh": 100}
    found = build(scenario(machine=P5, capacity=capacity, gpus_per_node=4, power=power)).cluster
    (rung,) = found.rungs
    assert rung.usd_per_gpu_hour is not None
    assert rung.usd_per_gpu_hour.values == (1, 2)
    assert (rung.gone_per_hour, rung.notice_sec, found.gpus_per_node) == (0, 30, 4)
    assert found.power is not None
    assert found.power.busy_watts == 900


def test_a_part_of_a_machine_is_charged_for_the_whole_and_says_so() -> None:
    whole, half = (build(scenario(machine=P5, gpus_per_node=gpus)) for gpus in (8, 4))
    usd = [found.cluster.rungs[1].usd_per_gpu_hour for found in (whole, half)]
    assert usd[0] is not None
    assert usd[1] is not None
    assert usd[1].at(0) == 2 * usd[0].at(0)
    assert [note for note in half.notes if "4 of the 8 GPUs of each p5.48xlarge" in note]
    assert not [note for note in whole.notes if "of the 8 GPUs" in note]
    with pytest.raises(InputError, match=r"p5\.48xlarge has fewer(.|\n)*write gpus_per_node: 8"):
        build(scenario(machine=P5, gpus_per_node=16))


def test_a_job_is_what_its_line_says() -> None:
    """Three hours on two GPUs, of which it does half."""
    found = build(scenario(gpus_per_node=8))
    (job,) = found.jobs(0)
    assert (job.ask.gpus_min, job.ask.gpus_max, job.ask.submit_sec, job.ask.deadline_sec) == (2, 8, 3600, 32400)
    assert job.ask.images == pytest.approx(3 * 3600 * 2000)
    assert job.images == job.ask.images / 2


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"gpus": "8-2"}, "write gpus: 2-8"),
        ({"kimg": 5}, "one of both"),
        ({"hours": None}, "one of both"),
        ({"deadline_hours": 1}, "a deadline after the submission"),
        ({"gpus": "0"}, "string_pattern_mismatch"),
        ({"submit_hours": -1}, "greater_than_equal"),
        ({"ends_at": 1.5}, "less_than_equal"),
    ],
)
def test_a_wrong_job_is_refused(change: dict[str, object], says: str) -> None:
    with pytest.raises(ValidationError) as wrong:
        JobConfig.model_validate({**JOBS[0], **change})
    assert says in str(wrong.value) or says in {each["type"] for each in wrong.value.errors()}


def test_what_could_never_run_is_refused() -> None:
    with pytest.raises(InputError, match="needs more GPUs than the cluster has"):
        build(scenario(capacity=[{"kind": "reserved", "nodes": 1}]))
    double = ScenarioConfig.model_validate(
        {"cluster": {"capacity": [{"kind": "reserved", "nodes": 8}]}, "jobs": JOBS * 2}
    )
    with pytest.raises(InputError, match="stands there twice"):
        build(double)
    with pytest.raises(InputError, match="did you mean 'us-east-1'"):
        build(scenario(machine={**P5, "region": "us-east1"}))


def test_generated_jobs_have_the_published_statistics() -> None:
    """Means over many; lengths are log-normal with so heavy a tail that their own mean says little, their logarithm's
    does.
    """
    facts = load_philly()
    found = build(ScenarioConfig.model_validate({
        "cluster": {"capacity": [{"kind": "reserved", "nodes": 512}]},
        "generate": {"jobs": 8000, "elastic": 4},
    }))  # fmt: skip
    jobs = found.jobs(3)
    widths = [job.ask.gpus_min for job in jobs]
    assert statistics.fmean(widths) == pytest.approx(facts.mean_gpus.value, rel=0.05)
    assert sum(job.images < job.ask.images for job in jobs) / len(jobs) == pytest.approx(
        facts.ended_early.value, abs=0.02
    )
    assert all(job.ask.gpus_max == min(512, 4 * job.ask.gpus_min) for job in jobs)
    work = sum(job.images for job in jobs) / 1000
    assert work / 512 / max(job.ask.submit_sec for job in jobs) == pytest.approx(1.0, rel=0.01)
    assert found.jobs(3) == jobs
    assert found.jobs(4) != jobs
    assert sum(facts.gpus.value.values()) == pytest.approx(1)
    assert sum(width * share for width, share in facts.gpus.value.items()) == pytest.approx(
        facts.mean_gpus.value, abs=0.01
    )


def test_some_users_jobs_end_early_more_often() -> None:
    jobs = generate(
        load_philly(), Curve(1000), Links(1, 1, 1, 0, 0), number=5000, num_gpus=64, load=1, elastic=1, seed=0
    )
    early = {
        user: [job.images < job.ask.images for job in jobs if job.ask.group == user] for user in ("user-0", "user-1")
    }
    shares = {user: sum(ends) / len(ends) for user, ends in early.items()}
    assert shares["user-0"] > 2 * shares["user-1"] > 0


def test_policies_meet_the_same_jobs_and_are_compared_in_pairs() -> None:
    config = ScenarioConfig.model_validate({
        "cluster": {"capacity": [{"kind": "reserved", "nodes": 16, "usd_per_gpu_hour": 2}]},
        "generate": {"jobs": 40, "elastic": 4},
    })  # fmt: skip
    arms = list(compare(build(config), [Fifo, Goodput], range(6)))
    fifo, goodput = arms
    assert [len(arm.figures) for arm in arms] == [6, 6]
    change = changes(arms)["goodput", "job_hours_mean"]
    assert change is not None
    ratios = [
        own.job_hours_mean / other.job_hours_mean for own, other in zip(goodput.figures, fifo.figures, strict=True)
    ]
    assert change.change == pytest.approx(math.prod(ratios) ** (1 / 6) - 1)
    assert change.low is not None
    alone = compare_pairs([[(1.0, ratio) for ratio in ratios]])
    assert alone is not None
    assert change.p_value is not None
    assert alone.p_value is not None
    assert change.p_value > alone.p_value, "one of several figures"
    assert changes(arms)["goodput", "kwh"] is None, "no machine is named, so that nobody knows its draw"
    one = changes(list(compare(build(config), [Fifo, Goodput], [0])))["goodput", "usd"]
    assert one is not None
    assert (one.low, one.direction) == (None, 0), "one seed claims nothing"
