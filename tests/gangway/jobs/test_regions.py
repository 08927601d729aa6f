"""Engines in regions: who takes a job that may not be everywhere, and that nothing of it goes where it may not."""

from pathlib import Path
from typing import Any

import pytest

from gangway.components.core.findings import InputError
from gangway.components.estimate.regions import Place, read_place
from gangway.jobs.base import Phase
from gangway.jobs.local.engine import LocalQueue
from gangway.jobs.moves import move_job, traffic_cost
from gangway.jobs.sites import VARIABLE, choose_engine, get_engine, get_sites
from gangway.jobs.slurm.engine import SlurmEngine
from gangway.stacks.config.job_file import JobFile
from tests.gangway.jobs.test_contract import job, limited, over, sites, until

EU = {"regions": {"residency": ["EU"]}}


def queue(folder: Path, region: str | None) -> LocalQueue:
    return LocalQueue(folder, region=None if region is None else read_place(region, "--on"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("region", "limits", "taken"),
    [
        ("aws:eu-central-1", {"residency": ["EU"]}, True),
        ("aws:eu-west-2", {"residency": ["EU"]}, False),
        ("hosts:lab/FR", {"residency": ["EU"]}, True),
        ("hosts:lab", {"residency": ["EU"]}, False),
        ("hosts:lab", {"allow": ["hosts:"]}, True),
        (None, {"residency": ["EU"]}, False),
        (None, {"deny": ["aws:"]}, False),
        (None, {}, True),
        ("aws:us-east-1", {"deny": ["aws:us-"]}, False),
    ],
)
def test_submit(tmp_path: Path, region: str | None, limits: dict[str, Any], taken: bool) -> None:
    engine = queue(tmp_path / "jobs", region)
    if taken:
        assert over(engine, engine.submit(job("true", regions=limits))).phase is Phase.DONE
        return
    with pytest.raises(InputError) as refused:
        engine.submit(job("true", regions=limits))
    assert refused.value.fix
    assert list(engine.jobs()) == []
    assert not (tmp_path / "jobs").exists(), "nothing by half"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "taken"), [("aws:us-east-1", False), ("aws:eu-west-3", True), ("aws:eu-central-1", True)]
)
def test_its_data_are_where_they_may_be(tmp_path: Path, data: str, taken: bool) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "one").write_text("1")
    engine = queue(tmp_path / "jobs", "aws:eu-central-1")
    file = job("true", data={"region": data, "gib": 1, "source": (tmp_path / "set").as_uri()}, **EU)
    if taken:
        assert over(engine, engine.submit(file)).phase is Phase.DONE
        return
    with pytest.raises(InputError) as refused:
        engine.submit(file)
    assert refused.value.place == "data.region"
    with pytest.raises(InputError, match="no engine accepts this job"):
        choose_engine(sites(engine, queue(tmp_path / "others", "aws:eu-west-3")), file)
    assert not (tmp_path / "jobs").exists(), "nothing is copied"


def test_of_several_the_first_that_stands_where_it_may(tmp_path: Path) -> None:
    here, london, paris = (
        queue(tmp_path / name, region) for name, region in (("a", None), ("b", "aws:eu-west-2"), ("c", "aws:eu-west-3"))
    )
    placed = choose_engine(sites(here, london, paris), job("true", **EU))
    assert placed.engine is paris
    assert len(placed.lines) == 3
    with pytest.raises(InputError, match="no engine accepts this job"):
        choose_engine(sites(here, london), job("true", **EU))


def test_an_engine_elsewhere_is_not_even_asked(tmp_path: Path) -> None:
    """There is no Slurm in this test: asking it would end in another mistake."""
    slurm = SlurmEngine(tmp_path, region=Place("aws", "us-east-1"))
    with pytest.raises(InputError) as refused:
        choose_engine(sites(slurm), job("true", **EU))
    assert "unavailable" not in str(refused.value)


@pytest.mark.slow
@pytest.mark.parametrize("region", ["aws:eu-west-2", None])
def test_a_move_to_where_it_may_not_be_copies_nothing(tmp_path: Path, region: str | None) -> None:
    source, target = queue(tmp_path / "a", "aws:eu-west-1"), queue(tmp_path / "b", region)
    job_id = source.submit(job("echo secret >data; while [ ! -e end ]; do sleep 0.1; done", **EU))
    until(source, job_id, lambda found, log: (tmp_path / "a" / job_id / "run" / "data").exists())
    with pytest.raises(InputError, match="regions"):
        move_job(source, job_id, target, limited(), lambda done, total: None)
    assert not (tmp_path / "b").exists()
    assert source.status(job_id).phase is Phase.RUNNING, "it goes on where it is"
    source.cancel(job_id)
    over(source, job_id)


@pytest.mark.slow
def test_a_move_to_where_it_may_be(tmp_path: Path) -> None:
    source, target = queue(tmp_path / "a", "aws:eu-west-1"), queue(tmp_path / "b", "hosts:lab/DE")
    job_id = source.submit(job("test -e seen && exit 0; touch seen; while :; do sleep 0.1; done", **EU))
    until(source, job_id, lambda found, log: (tmp_path / "a" / job_id / "run" / "seen").exists())
    moved = move_job(source, job_id, target, limited(), lambda done, total: None)
    found = over(target, moved.job_id)
    assert found.phase is Phase.DONE
    assert found.moves == (moved.move,)
    (move,) = found.moves
    assert move.usd == pytest.approx(move.bytes / 2**30 * 0.09), "leaving AWS for anywhere"
    assert move.why_usd.startswith("0.09 USD/GiB, aws:eu-west-1 to hosts:lab: ")
    assert move.sec > 0


@pytest.mark.parametrize(
    ("source", "target", "usd", "why"),
    [
        ("aws:eu-west-1", "aws:eu-west-3", 0.02, "list-price"),
        ("aws:eu-west-1", "aws:eu-west-1", 0.0, "within one region"),
        ("hosts:lab/DE", "aws:eu-west-1", None, "hosts:lab"),
        ("aws:eu-west-1", None, None, "the region of local:"),
        (None, "aws:eu-west-1", None, "the region of local:"),
        (None, None, 0.0, "on this machine"),
    ],
)
def test_what_a_gib_costs(tmp_path: Path, source: str | None, target: str | None, usd: float | None, why: str) -> None:
    found, said = traffic_cost(queue(tmp_path / "a", source), queue(tmp_path / "b", target), 2**30)
    assert found == usd
    assert why in said


def test_regions_behind_names_of_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = get_engine(f"local:{tmp_path}#aws:eu-central-1")
    assert (named.where, named.region) == (str(tmp_path), Place("aws", "eu-central-1"))
    assert get_engine(f"slurm:{tmp_path}@gpu#hosts:lab/DE").where == f"{tmp_path}@gpu"
    monkeypatch.setenv(VARIABLE, "local#gcp:europe-west4")
    assert get_engine(None).region == Place("gcp", "europe-west4")
    assert get_engine(f"local:{tmp_path}").region is None
    both = f"local:{tmp_path}#aws:eu-central-1,local:{tmp_path}"
    with pytest.raises(InputError, match="two regions"):
        get_sites(both)
    assert len(get_sites(f"{both}#aws:eu-central-1")) == 1


@pytest.mark.parametrize("behind", ["#", "#eu-central-1", "#aws:eu-centrl-1", "#hosts:lab/Germany"])
def test_mistakes_behind_names_of_engines(tmp_path: Path, behind: str) -> None:
    with pytest.raises(InputError) as refused:
        get_engine(f"local:{tmp_path}{behind}")
    assert refused.value.place == "--on"
    assert refused.value.fix


@pytest.mark.slow
def test_a_job_keeps_its_limits(tmp_path: Path) -> None:
    engine = queue(tmp_path, "aws:eu-west-1")
    file: JobFile = job("true", **EU)
    job_id = engine.submit(file)
    assert engine.job(job_id).regions == file.regions
    over(engine, job_id)
