"""How a node's part in a job ends: what the trainer's exit means, and the job's hours."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from images.aws import AwsHeadSpec, aws_docker_argv

INSTANCE = "i-0123456789abcdef0"
INTERRUPTED = {"spot/instance-action": [json.dumps({"action": "terminate", "time": "2026-11-21T08:22:00Z"})]}
ENDED = {"autoscaling/target-lifecycle-state": ["Terminated"]}
GROUPS = ["describe-auto-scaling-groups", "--region", "us-east-2", "--output", "text"]
OF_STACK = [*GROUPS, "--filters", "Name=tag:gangway:stack,Values=demo", "--query"]
TWO_GROUPS = "[ $2 != describe-auto-scaling-groups ] || printf 'demo-0-spot\\tdemo-1-on-demand\\n'"


def exited(status: str, result: str = "exit-code") -> dict[str, str]:
    """What systemd tells ExecStopPost of a trainer that exited."""
    return {"SERVICE_RESULT": "success" if status == "0" else result, "EXIT_CODE": "exited", "EXIT_STATUS": status}


@pytest.fixture
def ended_node(job_node: Any) -> Any:
    """A node whose container has just ended."""
    job_node.fake("aws", TWO_GROUPS)
    job_node.state("ran").touch()
    return job_node


@pytest.mark.parametrize("status", [0, 1, 2, 75])
def test_trainer_hands_its_arguments_over_and_its_exit_code_back(job_node: Any, status: int) -> None:
    job_node.plan(max_hours=None)
    job_node.fake("docker", f"exit {status}")
    done = job_node.run("run-trainer.sh")
    assert done.returncode == status
    assert job_node.calls("docker") == [aws_docker_argv(job_node.spec)]


def test_the_containers_user_gets_the_run_and_the_data(job_node: Any, tmp_path: Path) -> None:
    def folders() -> list[str]:
        assert job_node.run("run-trainer.sh").returncode == 0
        calls = job_node.calls("install")
        assert all(call[:-1] == ["-d", "-o", "10001", "-g", "10001"] for call in calls)
        return [call[-1] for call in calls]

    assert folders() == [f"{tmp_path}/run"]
    job_node.plan(data_dir=f"{tmp_path}/data")
    assert folders()[1:] == [f"{tmp_path}/run", f"{tmp_path}/data"]


@pytest.mark.parametrize("answers", [INTERRUPTED, ENDED])
def test_the_trainer_is_not_started_on_a_node_that_is_about_to_go(job_node: Any, imds: Any, answers: Any) -> None:
    job_node.state("ran").touch()
    imds.answers |= answers
    done = job_node.run("run-trainer.sh")
    assert (done.returncode, job_node.calls("docker")) == (0, [])
    assert "about to go" in done.stderr
    # Its 0 is not the trainer's: should the metadata not answer a second later, the job is not done.
    imds.answers.clear()
    job_node.env |= exited("0")
    assert job_node.run("leave-node.sh").returncode == 0
    assert job_node.calls("aws") == []


def test_the_jobs_hours_count_from_its_first_start_on_any_node(job_node: Any, tmp_path: Path) -> None:
    assert job_node.run("run-trainer.sh").returncode == 0
    began = int((tmp_path / "run" / f"started-at-{job_node.key()}").read_text())
    assert job_node.run("run-trainer.sh").returncode == 0
    assert int((tmp_path / "run" / f"started-at-{job_node.key()}").read_text()) == began
    for call in job_node.calls("docker"):
        assert call[:3] == ["run", "--env", f"GANGWAY_STOP_AT={began + 8 * 3600}"]
    marks = {f"started-at-{job_node.key()}", f"started-on-{job_node.key()}"}
    assert {path.name for path in (tmp_path / "run").iterdir()} == marks


@pytest.mark.parametrize("kind", ["spot", "on-demand"])
def test_the_trainer_is_told_which_capacity_its_node_came_from(job_node: Any, imds: Any, kind: str) -> None:
    imds.items["instance-life-cycle"] = kind
    assert job_node.run("run-trainer.sh").returncode == 0
    (call,) = job_node.calls("docker")
    assert call[:3] == ["run", "--env", f"GANGWAY_CAPACITY={kind}"]


def test_a_job_whose_hours_are_over_is_not_started_again(job_node: Any) -> None:
    job_node.start_job(8 * 3600)
    done = job_node.run("run-trainer.sh")
    assert (done.returncode, job_node.calls("docker")) == (0, [])
    assert "the job's 28800 s are over, counted from its first start" in done.stderr
    assert f"or remove {job_node.spec.run_dir}/started-at-{job_node.key()}" in done.stderr
    assert job_node.events() == [
        {"event": "job-ended", "instance_id": INSTANCE, "exit_status": 75, "reason": "max-hours"}
    ]
    assert job_node.left()


def test_a_stacks_next_job_has_its_own_clock_and_end(job_node: Any) -> None:
    job_node.start_job(8 * 3600)
    assert job_node.run("run-trainer.sh").returncode == 0
    assert job_node.calls("docker") == []
    job = job_node.spec.job
    job_node.plan(job=job.model_copy(update={"argv": (*job.argv, "--kimg", "2")}))
    before = int(time.time())
    done = job_node.run("run-trainer.sh")
    assert done.returncode == 0, done.stderr
    (call,) = job_node.calls("docker")
    stop = int(call[2].removeprefix("GANGWAY_STOP_AT="))
    assert before <= stop - 8 * 3600 <= time.time()


def test_more_hours_or_nodes_are_the_same_job(job_node: Any) -> None:
    first = job_node.key()
    job = job_node.spec.job
    job_node.plan(max_hours=9, job=job.model_copy(update={"num_nodes_max": 7, "env": {}}))
    assert job_node.key() == first
    job_node.plan(job=job.model_copy(update={"image": job.image.replace("ab", "cd")}))
    assert job_node.key() != first


def test_the_head_reads_the_clock_of_its_workers_job(job_node: Any, head: AwsHeadSpec) -> None:
    job_node.fake("systemctl", "echo inactive; exit 3")
    job_node.start_job(9 * 3600)
    here = replace(head, run_dir=job_node.spec.run_dir)
    another = head.job.model_copy(update={"argv": ("train", "--preset", "another")})
    assert job_node.run("watch-node.sh", replace(here, job=another)).returncode == 0
    assert job_node.events() == []
    assert job_node.run("watch-node.sh", here).returncode == 0
    assert [event["reason"] for event in job_node.events()] == ["max-hours"]


def test_a_job_without_hours_goes_on(job_node: Any) -> None:
    job_node.start_job(1e9)
    job_node.plan(max_hours=None)
    assert job_node.run("run-trainer.sh").returncode == 0
    assert len(job_node.calls("docker")) == 1


@pytest.mark.parametrize("script", ["leave-node.sh", "watch-node.sh"])
def test_a_group_that_waits_for_the_node_is_told_that_it_may_go(machine: Any, imds: Any, script: str) -> None:
    imds.answers |= ENDED
    machine.fake("systemctl", "echo inactive; exit 3")
    machine.fake("aws", machine.OWN_GROUP)
    done = machine.run(script)
    assert done.returncode == 0, done.stderr
    query = f"AutoScalingGroups[?Instances[?InstanceId=='{INSTANCE}']].AutoScalingGroupName"
    assert machine.said_to_group() == [[*OF_STACK, query], machine.COMPLETED]


def test_a_hook_that_has_not_begun_is_completed_a_little_later(machine: Any, imds: Any, tmp_path: Path) -> None:
    imds.answers |= ENDED
    fails_once = f"[ -e {tmp_path}/tried ] || {{ touch {tmp_path}/tried; exit 254; }}"
    machine.fake("aws", f"{machine.OWN_GROUP}; [ $2 != complete-lifecycle-action ] || {fails_once}")
    done = machine.run("leave-node.sh", COMPLETE_SEC="20")
    assert done.returncode == 0, done.stderr
    assert machine.said_to_group().count(machine.COMPLETED) == 2
    assert "could not complete" not in done.stderr


def test_a_hook_that_cannot_be_completed_is_left_to_its_timeout(machine: Any, imds: Any) -> None:
    imds.answers |= ENDED
    machine.fake("aws", "exit 254")
    done = machine.run("leave-node.sh")
    assert done.returncode == 0
    assert "could not complete gangway-leave" in done.stderr


FINAL = [("0", "done"), ("2", "bad-input"), ("3", "fabric-too-slow")]


@pytest.mark.parametrize(("status", "reason"), FINAL)
def test_after_a_final_result_the_node_leaves_and_no_alarm_brings_another(
    ended_node: Any, status: str, reason: str
) -> None:
    ended_node.env |= exited(status)
    done = ended_node.run("leave-node.sh")
    assert done.returncode == 0, done.stderr
    quiet = ["suspend-processes", "--region", "us-east-2", "--auto-scaling-group-name"]
    assert ended_node.said_to_group() == [
        [*OF_STACK, "AutoScalingGroups[].AutoScalingGroupName"],
        [*quiet, "demo-0-spot", "--scaling-processes", "AlarmNotification"],
        [*quiet, "demo-1-on-demand", "--scaling-processes", "AlarmNotification"],
        ended_node.LEFT,
    ]
    assert ended_node.events() == [
        {"event": "job-ended", "instance_id": INSTANCE, "exit_status": int(status), "reason": reason}
    ]


@pytest.mark.parametrize(("status", "reason"), FINAL)
def test_a_node_that_is_to_stay_says_how_the_job_ended_and_stops_the_ladder_once(
    ended_node: Any, status: str, reason: str
) -> None:
    ended_node.plan(terminate_when_done=False)
    ended_node.env |= exited(status)
    ended_node.fake("systemctl", "echo inactive; exit 3")
    for script in ("leave-node.sh", "watch-node.sh"):
        assert ended_node.run(script).returncode == 0
    asked = [call[0] for call in ended_node.said_to_group()]
    assert asked == ["describe-auto-scaling-groups", "suspend-processes", "suspend-processes"]
    assert [event["reason"] for event in ended_node.events()] == [reason]


@pytest.mark.parametrize("answers", [INTERRUPTED, ENDED])
def test_a_node_that_is_about_to_go_judges_no_exit(ended_node: Any, imds: Any, answers: Any) -> None:
    imds.answers |= answers
    ended_node.plan(lifecycle_hook=None)
    ended_node.env |= exited("2")
    assert ended_node.run("leave-node.sh").returncode == 0
    assert ended_node.calls("aws") == []


def test_alarms_that_cannot_be_suspended_keep_no_node(ended_node: Any) -> None:
    ended_node.fake("aws", f"[ $2 != suspend-processes ] || exit 254; {TWO_GROUPS}")
    ended_node.env |= exited("0")
    done = ended_node.run("leave-node.sh")
    assert "could not suspend AlarmNotification of demo-0-spot" in done.stderr
    assert ended_node.left()


KILLED = {"SERVICE_RESULT": "signal", "EXIT_CODE": "killed", "EXIT_STATUS": "KILL"}


@pytest.mark.parametrize(("how", "status"), [(exited("1"), 1), (exited("137"), 137), (KILLED, 137)])
def test_the_fifth_failure_within_hours_ends_the_job(ended_node: Any, how: dict[str, str], status: int) -> None:
    ended_node.env |= how
    for _ in range(4):
        assert ended_node.run("leave-node.sh").returncode == 0
    assert ended_node.calls("aws") == []
    assert ended_node.run("leave-node.sh").returncode == 0
    (event,) = ended_node.events()
    assert (event["exit_status"], event["reason"]) == (status, "too-many-failures")
    assert ended_node.left()
    # systemd starts the unit once more: nothing runs, nothing is said twice.
    again = ended_node.run("run-trainer.sh")
    assert (again.returncode, ended_node.calls("docker")) == (0, [])
    assert f"the job has ended here ({status} too-many-failures)" in again.stderr
    ended_node.env |= exited("0")
    assert ended_node.run("leave-node.sh").returncode == 0
    assert len(ended_node.events()) == 1


@pytest.mark.parametrize("status", ["1", "2", "75"])
def test_a_node_that_cannot_even_start_the_container_does_not_try_for_ever(ended_node: Any, status: str) -> None:
    ended_node.fake("install", f"exit {status}")
    ended_node.env |= exited(status)
    for _ in range(5):
        assert ended_node.events() == []
        assert ended_node.run("run-trainer.sh").returncode == int(status)
        assert ended_node.run("leave-node.sh").returncode == 0
    assert [event["reason"] for event in ended_node.events()] == ["too-many-failures"]


def test_failures_of_long_ago_do_not_count(ended_node: Any) -> None:
    ended_node.env |= exited("1")
    ended_node.state("failures").write_text(f"{int(time.time()) - 7 * 3600}\n" * 9)
    assert ended_node.run("leave-node.sh").returncode == 0
    assert ended_node.calls("aws") == []


@pytest.mark.parametrize("how", [exited("75"), exited("143", "success"), {}])
def test_interruptions_and_wanted_stops_are_no_failures(ended_node: Any, how: dict[str, str]) -> None:
    ended_node.env |= how
    ended_node.state("failures").write_text(f"{int(time.time())}\n" * 9)
    assert ended_node.run("leave-node.sh").returncode == 0
    assert ended_node.calls("aws") == []
