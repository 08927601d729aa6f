"""What a cluster with a queue was billed, by team and user: parts that add up to the bill."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gangway.cli.main import app
from gangway.components.core.findings import InputError
from gangway.finops.bill.queue_jobs import read_queue_jobs
from gangway.jobs.job_folder import user_name
from gangway.jobs.local.engine import LocalQueue
from tests.gangway.jobs.test_contract import job, over

DAY = datetime(2026, 10, 5, tzinfo=UTC)


def listed(path: Path, *jobs: tuple[str, str, str, list[tuple[float, float | None, int]]]) -> Path:
    """As `gangway job list --json` prints it: id, user, team, and hours of the day on so many nodes."""

    def at(hour: float | None) -> str | None:
        return None if hour is None else (DAY + timedelta(hours=hour)).isoformat()

    rows: list[dict[str, Any]] = [
        {
            "id": job_id, "name": "a", "user": user, "team": team, "phase": "done", "nodes": [], "starts": 1,
            "exit_code": 0, "reason": "",
            "stretches": [{"start": at(begin), "end": at(end), "nodes": nodes} for begin, end, nodes in stretches],
        }
        for job_id, user, team, stretches in jobs
    ]  # fmt: skip
    path.write_text(json.dumps(rows))
    return path


def reconciled(samples: Path, *words: str) -> dict[str, Any]:
    call = ["reconcile", "--bill", str(samples / "aws_focus.csv"), "--json", *words]
    result = CliRunner().invoke(app, call, catch_exceptions=False)
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_who_used_how_much_and_what_it_came_to(samples: Path, tmp_path: Path) -> None:
    path = listed(
        tmp_path / "jobs.json",
        ("train-1", "ann", "vision", [(8, 10, 2), (11, 12, 1)]),
        ("train-2", "bob", "speech", [(9, 10, 1)]),
        ("train-3", "ann", "vision", [(13, 14, 1)]),
        ("never-4", "eve", "vision", []),
    )
    found = reconciled(samples, "--jobs", f"aws:aws-p5-spot={path}")
    assert {(each["team"], each["user"]): (each["jobs"], each["node_hours"]) for each in found["shares"]} == {
        ("vision", "ann"): (2, 6.0),
        ("speech", "bob"): (1, 1.0),
    }
    usd = {each["user"]: each["usd"] for each in found["shares"]}
    assert usd["ann"] > usd["bob"] > 0
    parts = [*usd.values(), *(each["usd"] for name in ("unexplained", "untagged") for each in found[name])]
    assert sum(parts) == pytest.approx(found["total"]["usd"])


def test_two_at_once_share_by_their_nodes(samples: Path, tmp_path: Path) -> None:
    path = listed(tmp_path / "jobs.json", ("a-1", "ann", "", [(0, 24, 3)]), ("b-2", "bob", "", [(0, 24, 1)]))
    found = reconciled(samples, "--jobs", f"aws:aws-p5-spot={path}")
    usd = {each["user"]: each["usd"] for each in found["shares"]}
    assert usd["ann"] == pytest.approx(3 * usd["bob"])
    assert found["unexplained"] == []


def test_the_table_is_shown_beside_the_rest(samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    path = listed(tmp_path / "jobs.json", ("a-1", "ann", "", [(8, 10, 2)]))
    call = ["reconcile", "--bill", str(samples / "aws_focus.csv"), "--jobs", f"aws:aws-p5-spot={path}"]
    result = CliRunner().invoke(app, call, catch_exceptions=False)
    assert result.exit_code == 0
    (row,) = [line for line in result.stdout.splitlines() if "ann" in line]
    cells = [cell.strip() for cell in row.split("│")]
    assert cells[:5] == ["aws-p5-spot, aws", "(none)", "ann", "1", "4.0"]
    assert "of jobs" in result.stdout


def test_one_that_goes_on_is_counted_up_to_when_it_was_listed(tmp_path: Path) -> None:
    path = listed(tmp_path / "jobs.json", ("a-1", "ann", "", [(8, None, 2)]))
    at = (DAY + timedelta(hours=9.5)).timestamp()
    os.utime(path, (at, at))
    (found,) = read_queue_jobs([f"aws:s={path}"])
    assert found.node_hours == 3.0


@pytest.mark.parametrize(
    "changes",
    [{"start": "2026-10-05T08:00:00"}, {"end": "2026-10-05T10:00:00"}, {"end": "2026-10-05T07:00:00Z"}, {"nodes": -4}],
)
def test_what_is_no_time_on_nodes_is_told(tmp_path: Path, changes: dict[str, object]) -> None:
    path = listed(tmp_path / "jobs.json", ("a-1", "ann", "", [(8, 9, 1)]))
    rows = json.loads(path.read_text())
    rows[0]["stretches"][0].update(changes)
    path.write_text(json.dumps(rows))
    with pytest.raises(InputError, match="a-1") as refused:
        read_queue_jobs([f"aws:s={path}"])
    assert "gangway job list" in refused.value.fix


def test_one_that_the_lister_may_not_read_is_not_taken_for_idle(tmp_path: Path) -> None:
    queue = LocalQueue(tmp_path / "queue")
    job_id = queue.submit(job("true"))
    over(queue, job_id)
    (tmp_path / "queue" / job_id / "state.json").write_text("")
    (row,) = json.loads(CliRunner().invoke(app, ["job", "list", "--json", "--on", f"local:{tmp_path}/queue"]).stdout)
    assert (row["phase"], row["stretches"]) == ("cannot be read", None)


def test_what_an_engine_lists_is_read(tmp_path: Path) -> None:
    queue = LocalQueue(tmp_path / "queue")
    over(queue, queue.submit(job("sleep 0.2", team="vision")))
    result = CliRunner().invoke(app, ["job", "list", "--json", "--on", f"local:{tmp_path}/queue"])
    (tmp_path / "jobs.json").write_text(result.stdout)
    (found,) = read_queue_jobs([f"gcp:pool={tmp_path}/jobs.json"])
    assert (found.user, found.team, found.stack, found.provider) == (user_name(os.geteuid()), "vision", "pool", "gcp")
    assert found.node_hours * 3600 >= 0.2


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("jobs.json", "--jobs aws:my-stack=jobs.json"),
        ("asw:pool=jobs.json", "did you mean 'aws'?"),
        ("aws:pool=none.json", "check the path"),
        ("aws:pool=bad.json", "gangway job list --json > jobs.json"),
        ("aws:pool=notjson", "gangway job list --json > jobs.json"),
    ],
)
def test_what_is_no_listing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, said: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.json").write_text('[{"id": "a"}]')
    (tmp_path / "notjson").write_text("no")
    with pytest.raises(InputError) as refused:
        read_queue_jobs([word])
    assert said in refused.value.fix


def test_a_listing_given_twice_is_not_counted_twice(tmp_path: Path) -> None:
    path = listed(tmp_path / "jobs.json", ("a-1", "ann", "", [(8, 9, 1)]))
    with pytest.raises(InputError, match="duplicate job"):
        read_queue_jobs([f"aws:s={path}", f"aws:s={path}"])


def test_runs_or_jobs_are_asked_for(samples: Path) -> None:
    result = CliRunner().invoke(app, ["reconcile", "--bill", str(samples / "aws_focus.csv")])
    assert "--runs, --jobs or both" in str(result.exception)


def test_a_job_whose_hours_nobody_knows_is_no_part_of_a_bill(tmp_path: Path) -> None:
    path = listed(tmp_path / "jobs.json", ("train-1", "ann", "vision", [(8, 10, 2)]))
    path.write_text(json.dumps([{**each, "stretches": None} for each in json.loads(path.read_text())]))
    with pytest.raises(InputError, match="train-1"):
        read_queue_jobs([f"aws:mine={path}"])


def test_two_namespaces_of_a_stack_count_their_jobs_each_from_one(samples: Path, tmp_path: Path) -> None:
    vision = listed(tmp_path / "vision.json", ("q-1", "ann", "vision", [(8, 10, 2)]))
    speech = listed(tmp_path / "speech.json", ("q-1", "bob", "speech", [(9, 10, 1)]))
    rows = json.loads(speech.read_text())
    speech.write_text(json.dumps([{**each, "submitted_at": "2026-07-01T07:00:01Z"} for each in rows]))
    found = reconciled(samples, *("--jobs", f"aws:aws-p5-spot={vision}"), *("--jobs", f"aws:aws-p5-spot={speech}"))
    usd = {each["team"]: each["usd"] for each in found["shares"]}
    assert usd["vision"] > usd["speech"] > 0
