"""What a node puts beside the record when its job has ended for good: once it is over for all nodes, and only then."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from gangway.components.core.job import JobSpec

RUN_ID = "aws-s0-20260101-000000-abcd"
FINAL = [("2", "bad-input"), ("3", "fabric-too-slow"), ("5", "too-many-failures"), ("6", "max-hours")]
CLOUDS = ["aws", "gcp", "azure", "openstack"]


def exited(status: str) -> dict[str, str]:
    """What systemd tells ExecStopPost of a trainer that exited."""
    return {
        "SERVICE_RESULT": "success" if status == "0" else "exit-code",
        "EXIT_CODE": "exited",
        "EXIT_STATUS": status,
    }


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
@on_every_cloud(("status", "reason"), FINAL)
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
