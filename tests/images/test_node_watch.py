"""What a node does every minute: it leaves when the job's hours are over, or when nothing else has made it leave."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from images.aws import AwsHeadSpec

TWO_GROUPS = "[ $2 != describe-auto-scaling-groups ] || printf 'demo-0-spot\\tdemo-1-on-demand\\n'"


@pytest.fixture
def idle_node(job_node: Any) -> Any:
    """A node whose trainer does not run, an hour after boot."""
    job_node.fake("aws", TWO_GROUPS)
    job_node.fake("systemctl", "echo inactive; exit 3")
    (job_node.root / "uptime").write_text("3600.25 28000.00\n")
    job_node.env["GANGWAY_UPTIME"] = f"{job_node.root}/uptime"
    return job_node


def test_a_node_that_is_needed_is_left_alone(idle_node: Any) -> None:
    idle_node.start_job(7 * 3600)
    assert idle_node.run("watch-node.sh").returncode == 0
    assert idle_node.calls("aws") == []


def test_an_idle_node_ends_with_the_jobs_hours(idle_node: Any) -> None:
    idle_node.start_job(8 * 3600)
    assert idle_node.run("watch-node.sh").returncode == 0
    assert [(event["exit_status"], event["reason"]) for event in idle_node.events()] == [(75, "max-hours")]
    assert idle_node.left()


@pytest.mark.parametrize(("max_hours", "ends"), [(1, True), (1.1, False)])
def test_a_node_on_which_no_job_began_counts_from_its_boot(idle_node: Any, max_hours: float, ends: bool) -> None:
    idle_node.plan(max_hours=max_hours)
    assert idle_node.run("watch-node.sh").returncode == 0
    assert idle_node.left() == ends


def test_a_node_that_could_not_leave_tries_again(idle_node: Any) -> None:
    idle_node.state("ended").write_text("3 fabric-too-slow\n")
    assert idle_node.run("watch-node.sh").returncode == 0
    assert idle_node.left()
    assert idle_node.events() == []


def test_a_node_that_is_to_stay_is_not_told_to_leave_by_the_watch(idle_node: Any) -> None:
    idle_node.start_job(9 * 3600)
    idle_node.plan(terminate_when_done=False)
    for _ in range(2):
        assert idle_node.run("watch-node.sh").returncode == 0
    assert (idle_node.left(), len(idle_node.events())) == (False, 1)


@pytest.mark.parametrize("state", ["active", "activating", "deactivating"])
def test_a_running_trainer_stops_itself_and_is_left_alone(idle_node: Any, state: str) -> None:
    idle_node.fake("systemctl", f"echo {state}")
    idle_node.start_job(8 * 3600 + 60)
    assert idle_node.run("watch-node.sh").returncode == 0
    assert idle_node.calls("systemctl") == [["is-active", "gangway-trainer.service"]]
    assert idle_node.calls("aws") == []


def test_a_trainer_that_is_stuck_after_the_jobs_hours_is_stopped(idle_node: Any) -> None:
    idle_node.fake("systemctl", "echo active")
    idle_node.start_job(8 * 3600 + 601)
    assert idle_node.run("watch-node.sh").returncode == 0
    assert ["stop", "gangway-trainer.service"] in idle_node.calls("systemctl")
    assert idle_node.left()


def test_the_head_node_says_once_that_the_hours_are_over(idle_node: Any, head: AwsHeadSpec, tmp_path: Path) -> None:
    there = replace(head, run_dir=f"{tmp_path}/run")
    (tmp_path / "uptime").write_text("999999.0 0\n")
    assert idle_node.run("watch-node.sh", there).returncode == 0
    assert idle_node.calls("aws") == [], "it may be older than the job"
    idle_node.start_job(8 * 3600)
    for _ in range(2):
        assert idle_node.run("watch-node.sh", there).returncode == 0
    assert [event["reason"] for event in idle_node.events()] == ["max-hours"]
    assert idle_node.said_to_group() == []
