"""Whether a job may be submitted by what jobs have cost: local queues run them, the clock is the test's."""

import os
import pwd
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangway.components.core.findings import InputError
from gangway.jobs import spending
from gangway.jobs.base import JobStatus, Phase, RunInterval, wait_until_over
from gangway.jobs.kubernetes.engine import KubernetesEngine
from gangway.jobs.local.engine import LocalQueue
from gangway.jobs.sites import Nodes, Site, choose_engine, get_site
from gangway.stacks.config.job_file import JobFile
from gangway.stacks.config.sections import LimitsConfig

NOW = datetime(2027, 3, 10, 12, tzinfo=UTC)
MARCH = datetime(2027, 3, 1, tzinfo=UTC)
ME = pwd.getpwuid(os.geteuid()).pw_name


def job(hours: float = 2, nodes: int = 1, **more: Any) -> JobFile:
    sizes = {"min": 1, "max": nodes}
    return JobFile.model_validate({"name": "a", "command": ["true"], "max_hours": hours, "nodes": sizes, **more})


def site(folder: Path, usd: float | None = 10, **limits: float) -> Site:
    nodes = Nodes(usd, "a list", region=None)
    return Site(LocalQueue(folder), "lab", nodes, LimitsConfig.model_validate(limits))


def status(hours: float, *, begins: datetime = NOW - timedelta(days=1), **more: Any) -> JobStatus:
    """Of a job that was done after so many hours on two nodes."""
    span = RunInterval(begins, begins + timedelta(hours=hours), 2)
    made = JobStatus("b-1", "b", ME, "vision", Phase.DONE, (), 1, 0, "", stretches=(span,), most_nodes=2, max_hours=5)
    return replace(made, **more)


def knows(here: Site, monkeypatch: pytest.MonkeyPatch, *jobs: JobStatus) -> None:
    monkeypatch.setattr(here.engine, "jobs", lambda: list(jobs))


def refusal(here: Site, asked: JobFile) -> InputError:
    with pytest.raises(InputError) as caught:
        spending.check(here, asked, NOW)
    return caught.value


def test_a_job_above_its_limit_is_refused_with_the_hours_that_fit(tmp_path: Path) -> None:
    here = site(tmp_path, job_usd=50)
    spending.check(here, job(2.5, 2), NOW)
    found = refusal(here, job(4, 2))
    assert found.place == "engines.lab.limits.job_usd"
    assert "a costs up to 80.00 USD" in found.problem
    assert found.allowed == "at most 50.00 USD"
    assert found.fix == "max_hours: 2.5, or nodes: {min: 1, max: 1}"
    assert not (tmp_path / ".new").exists()


@pytest.mark.parametrize("limits", [{"job_usd": 50}, {"usd_per_hour": 50}, {"user_usd_per_month": 50}])
def test_an_unknown_price_is_no_pass(tmp_path: Path, limits: dict[str, float]) -> None:
    found = refusal(site(tmp_path, None, **limits), job())
    assert "cannot be kept: a list" in found.problem
    assert "write engines.lab.usd_per_node_hour" in found.fix


def test_what_a_user_has_spent_this_month_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = site(tmp_path, user_usd_per_month=100)
    other, last_month = status(40, user="ann"), status(40, begins=MARCH - timedelta(days=9))
    over_midnight = status(3, begins=MARCH - timedelta(hours=1))
    knows(here, monkeypatch, status(1), other, last_month, over_midnight)
    spending.check(here, job(4), NOW)
    found = refusal(here, job(4.01))
    assert found.place == "engines.lab.limits.user_usd_per_month"
    assert "40.00 USD, which 100.00 USD leave: 60.00 spent, 0.00 reserved (records of jobs in" in found.allowed
    assert found.fix.startswith("max_hours: 4, or wait")


def test_an_open_job_counts_with_all_that_it_may_still_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = site(tmp_path, team_usd_per_month=200)
    running = RunInterval(NOW - timedelta(hours=1), None, 2)
    knows(here, monkeypatch, status(0, user="ann", phase=Phase.RUNNING, stretches=(running,)))
    spending.check(here, job(10, team="vision"), NOW)
    found = refusal(here, job(10.1, team="vision"))
    assert "20.00 spent, 80.00 reserved" in found.allowed
    spending.check(here, job(20, team="speech"), NOW)
    assert refusal(here, job()).place == "team", "a job without a team would be without a limit"


def test_all_open_jobs_together_have_an_hourly_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = site(tmp_path, usd_per_hour=45)
    knows(here, monkeypatch, status(9), status(0, user="ann", phase=Phase.WAITING, stretches=()))
    spending.check(here, job(100, 2), NOW)
    found = refusal(here, job(1, 3))
    assert "a costs up to 30.00 USD an hour" in found.problem
    assert found.fix.startswith("nodes: {min: 1, max: 2}, or wait")


@pytest.mark.parametrize(
    "odd",
    [
        {"phase": Phase.FOREIGN, "stretches": None, "most_nodes": None},
        {"phase": Phase.RUNNING, "most_nodes": None},
        {"stretches": None},
    ],
    ids=["another user's", "of an earlier release", "forgotten"],
)
def test_usage_that_nobody_knows_is_no_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, odd: dict[str, Any]
) -> None:
    here = site(tmp_path, team_usd_per_month=1000)
    knows(here, monkeypatch, status(1, **odd))
    found = refusal(here, job(team="vision"))
    assert "is unknown" in found.problem
    assert str(found.value).startswith("b-1")
    own = site(tmp_path, user_usd_per_month=1000)
    knows(own, monkeypatch, status(1, **{**odd, "user": "ann"}))
    spending.check(own, job(), NOW)


def test_a_cluster_that_forgets_its_jobs_has_no_monthly_limits() -> None:
    here = replace(site(Path("/"), user_usd_per_month=9), engine=KubernetesEngine("", "team-a", "gpu", "ann"))
    assert "forgets jobs" in refusal(here, job(0.1)).problem


def test_the_next_engine_gets_what_is_too_expensive_for_one(tmp_path: Path) -> None:
    dear, cheap = site(tmp_path / "dear", 100, job_usd=50), site(tmp_path / "cheap", 20, job_usd=50)
    placed = choose_engine([dear, cheap], job(), None, lambda here: spending.check(here, job(), NOW))
    assert placed.engine is cheap.engine
    assert any("a costs up to 200.00 USD" in line for line in placed.lines)
    with pytest.raises(InputError, match="a costs up to 200"):
        choose_engine([dear], job(), None, lambda here: spending.check(here, job(), NOW))
    assert not (tmp_path / "dear").exists(), "nothing was written"


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[LocalQueue]:
    made = LocalQueue(tmp_path / "jobs")
    yield made
    with suppress(InputError):
        for each in made.jobs():
            made.cancel(each.id)


def test_of_two_submits_at_once_one_passes(queue: LocalQueue) -> None:
    queue._folder.mkdir()
    here = Site(queue, "lab", Nodes(10, "a list"), LimitsConfig(user_usd_per_month=30))
    asked = job(2, command=["sleep", "600"])

    def submit(_: int) -> str:
        try:
            return spending.submit(here, asked, lambda: datetime.now(UTC))
        except InputError as error:
            return error.place

    with ThreadPoolExecutor(4) as pool:
        outcomes = sorted(pool.map(submit, range(4)))
    assert outcomes == ["a-1", *["engines.lab.limits.user_usd_per_month"] * 3]
    assert [each.id for each in queue.jobs()] == ["a-1"]


def test_without_locks_the_one_that_does_not_fit_is_cancelled(
    queue: LocalQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on two login nodes: another job came between the check and the submit."""
    here = Site(queue, "lab", Nodes(10, "a list"), LimitsConfig(user_usd_per_month=30))
    own, asked = LocalQueue.submit, job(2, command=["sleep", "600"])

    def submit(engine: LocalQueue, file: JobFile) -> str:
        own(engine, file)
        return own(engine, file)

    monkeypatch.setattr(LocalQueue, "submit", submit)
    with pytest.raises(InputError, match="user_usd_per_month"):
        spending.submit(here, asked, lambda: datetime.now(UTC))
    assert wait_until_over(queue, "a-2", lambda _: time.sleep(0.05)).phase is Phase.CANCELLED
    assert not queue.status("a-1").phase.is_over


def test_limits_are_read_from_the_engines_file_or_a_stack_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stack_file: Any
) -> None:
    def edit(values: dict[str, Any]) -> None:
        values["gangway:budget"]["limits"] = {"usd_per_hour": 7000}

    stack = str(stack_file(edit))
    engines = {
        "here": {"engine": "local", "usd_per_node_hour": 3, "limits": {"job_usd": 5}},
        "stack": {"engine": "local", "usd_per_node_hour": 3, "stack": stack},
    }
    (tmp_path / "engines.yaml").write_text(yaml.safe_dump({"engines": engines}))
    monkeypatch.setenv("GANGWAY_ENGINES", str(tmp_path / "engines.yaml"))
    assert get_site("here").limits == LimitsConfig(job_usd=5)
    assert get_site("stack").limits == LimitsConfig(usd_per_hour=7000)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"stack": "x.yaml", "limits": {"job_usd": 5}}, "only one of limits and stack"),
        ({"limits": {"usd_per_node_hour": 5}}, "write it beside limits"),
        ({"via": "ann@login", "limits": {"job_usd": 5}}, "submit there"),
    ],
)
def test_limits_that_cannot_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], words: str
) -> None:
    (tmp_path / "engines.yaml").write_text(yaml.safe_dump({"engines": {"here": {"engine": "local", **changes}}}))
    monkeypatch.setenv("GANGWAY_ENGINES", str(tmp_path / "engines.yaml"))
    with pytest.raises((InputError, ExceptionGroup)) as caught:
        get_site("here")
    errors = caught.value.exceptions if isinstance(caught.value, ExceptionGroup) else [caught.value]
    assert words in str(errors[0])
