"""How a node's part in a job ends: what the trainer's exit means, and the job's hours."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gangway.components.core.job import JobSpec
from gangway.images.aws import aws_docker_argv
from tests.images.machines import exited

INSTANCE = "i-0123456789abcdef0"
INTERRUPTED = {"spot/instance-action": [json.dumps({"action": "terminate", "time": "2026-11-21T08:22:00Z"})]}
ENDED = {"autoscaling/target-lifecycle-state": ["Terminated"]}
GROUPS = ["describe-auto-scaling-groups", "--region", "us-east-2", "--output", "text"]
OF_STACK = [*GROUPS, "--filters", "Name=tag:gangway:stack,Values=demo", "--query"]
TWO_GROUPS = "[ $2 != describe-auto-scaling-groups ] || printf 'demo-0-spot\\tdemo-1-on-demand\\n'"


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
    assert job_node.started() == [aws_docker_argv(job_node.spec)]


def test_the_containers_user_gets_the_run_and_the_data(job_node: Any, tmp_path: Path) -> None:
    def folders() -> list[str]:
        assert job_node.run("run-trainer.sh").returncode == 0
        calls = job_node.calls("chown")
        assert all(call[:-1] == ["--no-dereference", "10001:10001"] for call in calls)
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
    assert "about to end" in done.stderr
    # Its 0 is not the trainer's: should the metadata not answer a second later, the job is not done.
    imds.answers.clear()
    job_node.env |= exited("0")
    assert job_node.run("leave-node.sh").returncode == 0
    assert job_node.calls("aws") == []


def test_a_machine_remembers_its_first_start_where_the_job_cannot_write(job_node: Any, tmp_path: Path) -> None:
    for up in (100.7, 5000.0):
        job_node.up_for(up)
        assert job_node.run("run-trainer.sh").returncode == 0
    assert job_node.state("first-start").read_text() == "100\n"
    assert list((tmp_path / "run").iterdir()) == []
    for call in job_node.calls("docker"):
        own = call[call.index("--member-key") :]
        folder = f"{job_node.spec.run_dir}/.launch/{job_node.key()}"
        assert own[2:6] == ["--job-dir", folder, "--max-hours", "8"]


@pytest.mark.parametrize("kind", ["spot", "on-demand"])
def test_the_trainer_is_told_which_capacity_its_node_came_from(job_node: Any, imds: Any, kind: str) -> None:
    imds.items["instance-life-cycle"] = kind
    assert job_node.run("run-trainer.sh").returncode == 0
    (call,) = job_node.calls("docker")
    assert call[:3] == ["run", "--env", f"GANGWAY_CAPACITY={kind}"]
    stream = call.index(f"awslogs-stream={imds.items['instance-id']}/job")
    assert call[stream - 1] == "--log-opt"


def test_without_its_name_a_node_s_lines_have_the_container_s_id(job_node: Any, imds: Any) -> None:
    imds.answers["instance-id"] = [None]
    assert job_node.run("run-trainer.sh").returncode == 0
    (call,) = job_node.calls("docker")
    assert not [word for word in call if word.startswith("awslogs-stream")]


def test_a_stacks_next_job_has_its_own_end(job_node: Any) -> None:
    job_node.state("ended").write_text("6 max-hours\n")
    assert job_node.run("run-trainer.sh").returncode == 0
    assert job_node.calls("docker") == []
    job = job_node.spec.job
    longer = job.training.model_copy(update={"config": {**job.training.config, "kimg": 2}})
    job_node.plan(job=job.model_copy(update={"training": longer}))
    done = job_node.run("run-trainer.sh")
    assert done.returncode == 0, done.stderr
    assert len(job_node.calls("docker")) == 1


def test_more_hours_or_nodes_are_the_same_job(job_node: Any) -> None:
    first = job_node.key()
    job = job_node.spec.job
    job_node.plan(max_hours=9, job=job.model_copy(update={"num_nodes_max": 7, "env": {}}))
    assert job_node.key() == first
    job_node.plan(job=job.model_copy(update={"image": job.image.replace("ab", "cd")}))
    assert job_node.key() != first


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
    assert "cannot complete" not in done.stderr


def test_a_hook_that_cannot_be_completed_is_left_to_its_timeout(machine: Any, imds: Any) -> None:
    imds.answers |= ENDED
    machine.fake("aws", "exit 254")
    done = machine.run("leave-node.sh")
    assert done.returncode == 0
    assert "cannot complete gangway-leave" in done.stderr


FINAL = [
    *(("0", "done"), ("2", "bad-input"), ("3", "fabric-too-slow")),
    *(("5", "too-many-failures"), ("6", "max-hours")),
]


def a_minute_later(node: Any) -> None:
    """Results on a file system are put by watch-node.sh, which then has the node leave."""
    node.fake("systemctl", "echo inactive; exit 3")
    done = node.run("watch-node.sh")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("status", "reason"), FINAL)
def test_after_a_final_result_the_node_leaves_and_no_alarm_brings_another(
    ended_node: Any, status: str, reason: str
) -> None:
    ended_node.env |= exited(status)
    done = ended_node.run("leave-node.sh")
    assert done.returncode == 0, done.stderr
    a_minute_later(ended_node)
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


@pytest.mark.slow
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
    assert "cannot suspend AlarmNotification of demo-0-spot" in done.stderr
    a_minute_later(ended_node)
    assert ended_node.left()


KILLED = {"SERVICE_RESULT": "signal", "EXIT_CODE": "killed", "EXIT_STATUS": "KILL"}


@pytest.mark.slow
@pytest.mark.parametrize("how", [exited("1"), exited("137"), KILLED])
def test_a_failed_node_is_looked_at_before_its_trainer_starts_again(ended_node: Any, how: dict[str, str]) -> None:
    ended_node.fake("nvidia-smi", "[[ $1 != --query-gpu=index ]] || printf '0\n1\n2\n3\n4\n5\n6\n7\n'")
    ended_node.fake("dmesg", "exit 0")
    ended_node.fake("dcgmi", "exit 1")
    ended_node.plan(efa_interfaces_planned=0)
    assert ended_node.run("run-trainer.sh").returncode == 0
    assert ended_node.calls("dmesg") == [], "the first start comes right after the checks of the boot"
    ended_node.env |= how
    assert ended_node.run("leave-node.sh").returncode == 0
    assert ended_node.calls("aws") == []
    done = ended_node.run("run-trainer.sh")
    assert done.returncode == 0, done.stderr
    assert (len(ended_node.calls("dmesg")), len(ended_node.calls("docker"))) == (1, 2)
    assert ended_node.run("run-trainer.sh").returncode == 0
    assert len(ended_node.calls("dmesg")) == 1, "it has passed"


def test_a_sick_node_is_replaced_and_nobody_is_told_that_the_job_has_ended(ended_node: Any) -> None:
    ended_node.fake("nvidia-smi", "[[ $1 != --query-gpu=index ]] || printf '0\n1\n2\n3\n4\n5\n6\n7\n'")
    ended_node.fake("dmesg", "echo 'NVRM: Xid (PCI:0000:53:00): 79, pid=1, GPU has fallen off the bus.'")
    ended_node.env |= exited("1")
    assert ended_node.run("leave-node.sh").returncode == 0
    for _ in range(2):
        assert ended_node.run("run-trainer.sh").returncode == 4
        ended_node.env |= exited("4")
        assert ended_node.run("leave-node.sh").returncode == 0
    assert ended_node.calls("docker") == []
    assert ended_node.said_to_group() == [ended_node.UNHEALTHY[1:]], "once, and its group does not become smaller"
    assert [event["event"] for event in ended_node.events()] == ["node-given-up"]


def test_a_node_that_fails_where_others_go_on_is_replaced(ended_node: Any) -> None:
    ended_node.env |= exited("4")
    ended_node.run("leave-node.sh")
    assert ended_node.said_to_group() == [ended_node.UNHEALTHY[1:]]
    (event,) = ended_node.events()
    assert event["event"] == "node-given-up"
    assert not [name for name in ("ended", "failed", "unfit") if ended_node.state(name).exists()]
    a_minute_later(ended_node)
    assert ended_node.said_to_group() == [ended_node.UNHEALTHY[1:]]


@pytest.mark.parametrize(
    ("status", "fails"), [("1", "chown"), ("2", "chown"), ("75", "chown"), ("125", "docker"), ("127", "docker")]
)
def test_a_node_that_cannot_even_start_the_container_is_given_up(ended_node: Any, status: str, fails: str) -> None:
    """No launcher counts these."""
    ended_node.plan(job=ended_node.spec.job.model_copy(update={"backend": "gloo"}), efa_interfaces_planned=0)
    ended_node.fake(fails, f"exit {status}")
    for _ in range(5):
        assert ended_node.events() == []
        ended = ended_node.run("run-trainer.sh").returncode
        assert ended == (1 if fails == "chown" else int(status))
        ended_node.env |= exited(str(ended))
        ended_node.run("leave-node.sh")
    assert [event["event"] for event in ended_node.events()] == ["node-given-up"]
    assert ended_node.said_to_group() == [ended_node.UNHEALTHY[1:]]
    assert ended_node.run("run-trainer.sh").returncode == 4


def test_starts_that_fail_now_and_then_are_forgotten_once_one_has_run(ended_node: Any) -> None:
    ended_node.state("not-run").write_text("\n" * 4)
    ended_node.env |= exited("75")
    assert ended_node.run("leave-node.sh").returncode == 0
    assert not ended_node.state("not-run").exists()


@pytest.mark.parametrize("how", [exited("75"), exited("143", "success"), {}])
def test_interruptions_and_wanted_stops_are_no_failures(ended_node: Any, how: dict[str, str]) -> None:
    ended_node.env |= how
    assert ended_node.run("leave-node.sh").returncode == 0
    assert ended_node.calls("aws") == []
    assert not ended_node.state("failed").exists()


RUN_ID = "aws-s0-20260101-000000-abcd"
FINAL_node_ended = [("2", "bad-input"), ("3", "fabric-too-slow"), ("5", "too-many-failures"), ("6", "max-hours")]
CLOUDS = ["aws", "gcp", "azure", "openstack"]


class Worker:
    """A worker of any cloud whose container has just ended, and the bucket's ended.json."""

    def __init__(self, machine: Any, job: JobSpec, ended: Callable[[], bytes | None]) -> None:
        self.machine, self.job, self._ended = machine, job.model_copy(update={"run_id": RUN_ID}), ended
        machine.plan(run_dir=f"{machine.root}/run", job=self.job)
        machine.state("ran").touch()

    def ends(self, status: str, script: str = "leave-node.sh") -> None:
        self.machine.env |= exited(status)
        done = self.machine.run(script)
        assert done.returncode == (1 if status == "4" else 0), done.stderr

    @property
    def ended(self) -> dict[str, Any] | None:
        content = self._ended()
        return None if content is None else json.loads(content)


@pytest.fixture
def aws(job_node: Any) -> Worker:
    """Its `aws s3 cp` copies into a folder that stands for the bucket."""
    bucket = job_node.root / "bucket"
    copy = f'target={bucket}/${{@: -1}}; mkdir -p "$(dirname "$target")"; cp "${{@: -2:1}}" "$target"'
    job_node.fake("aws", f'[ "$1" = s3 ] || exit 0; {copy}')
    file = bucket / "s3:/gangway-records/runs/dcgan-celeba64/ended.json"
    return Worker(job_node, job_node.spec.job, lambda: file.read_bytes() if file.exists() else None)


@pytest.fixture
def gcp(gcp_machine: Any, gce: Any) -> Worker:
    key = "gangway-records/demo/dcgan-celeba64/ended.json"
    return Worker(gcp_machine, gcp_machine.gcp.job, lambda: gce.objects.get(key))


@pytest.fixture
def azure(azure_machine: Any, azure_vm: Any) -> Worker:
    key = "gwdemo/runs/demo/dcgan-celeba64/ended.json"
    return Worker(azure_machine, azure_machine.azure.job, lambda: azure_vm.blobs.get(key))


@pytest.fixture
def openstack(openstack_machine: Any, swift: Any) -> Worker:
    key = "demo-runs/demo/dcgan-celeba64/ended.json"
    return Worker(openstack_machine, openstack_machine.spec_.job, lambda: swift.objects.get(key))


@pytest.fixture
def worker(request: pytest.FixtureRequest) -> Worker:
    made: Worker = request.getfixturevalue(request.param)
    return made


def on_every_cloud(names: tuple[str, ...], cases: Sequence[tuple[str, ...]]) -> pytest.MarkDecorator:
    """All cases on AWS; on the others the first, which shows that their scripts do the same, and the rest when slow."""
    rows = [
        pytest.param(cloud, *case, marks=pytest.mark.slow if cloud != "aws" and case != cases[0] else ())
        for cloud in CLOUDS
        for case in cases
    ]
    return pytest.mark.parametrize(("worker", *names), rows, indirect=["worker"])


@pytest.mark.slow
@on_every_cloud(("status", "reason"), FINAL_node_ended)
def test_a_job_that_no_node_can_go_on_with_is_told_at_once(worker: Worker, status: str, reason: str) -> None:
    worker.ends(status)
    told = worker.ended
    assert told is not None
    when = datetime.fromisoformat(told.pop("time"))
    assert abs((when - datetime.now(UTC)).total_seconds()) < 600
    assert told.pop("node")
    stack = worker.machine.spec.stack
    assert told == {"version": 1, "run_id": RUN_ID, "stack": stack, "code": int(status), "reason": reason}


@on_every_cloud(("status",), [("4",), ("0",), ("75",), ("1",)])
def test_done_interrupted_failed_or_unfit_is_no_end_for_all(worker: Worker, status: str) -> None:
    worker.ends(status)
    assert worker.ended is None


def test_a_node_that_is_taken_back_tells_of_no_end(aws: Worker, imds: Any) -> None:
    imds.answers["spot/instance-action"] = [json.dumps({"action": "terminate", "time": "2026-11-21T08:22:00Z"})]
    aws.ends("2")
    assert aws.ended is None


def test_an_end_is_put_once(aws: Worker) -> None:
    aws.machine.plan(terminate_when_done=False)
    aws.machine.fake("systemctl", "echo inactive; exit 3")
    aws.ends("2")
    for _ in range(2):
        aws.ends("2", "watch-node.sh")
    assert len(aws.machine.asked("s3")) == 1


def test_an_end_that_cannot_be_put_keeps_no_node_and_is_tried_again(aws: Worker) -> None:
    aws.machine.fake("aws", "[ $1 != s3 ]")
    aws.machine.env |= exited("2")
    done = aws.machine.run("leave-node.sh")
    assert done.returncode == 0
    assert "cannot upload dcgan-celeba64/ended.json: commands that wait for the record time out" in done.stderr
    aws.machine.fake("aws")
    aws.machine.fake("systemctl", "echo inactive; exit 3")
    aws.ends("2", "watch-node.sh")
    aws.ends("2", "watch-node.sh")
    assert len(aws.machine.asked("s3")) == 2, "once it was put, no more"
    assert aws.machine.left()


def test_a_bucket_that_hesitates_is_asked_again(aws: Worker) -> None:
    aws.machine.plan(log_group=None)
    aws.machine.fails_at_first("aws", 1)
    aws.machine.env |= exited("2")
    assert aws.machine.run("leave-node.sh", END_SEC="20").returncode == 0
    assert aws.machine.state("end-put").exists()
