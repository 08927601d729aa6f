"""What a node puts beside the record when its job has ended for good: once it is over for all nodes, and only then."""

import json
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from components.core.job import JobSpec

RUN_ID = "aws-s0-20260101-000000-abcd"
FINAL = [("2", "bad-input"), ("3", "fabric-too-slow")]
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
        assert done.returncode == 0, done.stderr

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


@on_every_cloud(("status",), [("0",), ("75",), ("1",)])
def test_done_interrupted_or_failed_once_is_no_end(worker: Worker, status: str) -> None:
    worker.ends(status)
    assert worker.ended is None


def test_a_node_that_is_taken_back_tells_of_no_end(aws: Worker, imds: Any) -> None:
    imds.answers["spot/instance-action"] = [json.dumps({"action": "terminate", "time": "2026-11-21T08:22:00Z"})]
    aws.ends("2")
    assert aws.ended is None


def fails_for_good(worker: Worker) -> None:
    """The fifth failure within hours."""
    worker.machine.state("failures").write_text(f"{int(time.time())}\n" * 4)
    worker.ends("1")


def marks(worker: Worker, kind: str, *nodes: str) -> Path:
    """Of nodes, beside the run: started-on or ended-on."""
    folder: Path = worker.machine.root / "run" / f"{kind}-{worker.machine.key()}"
    folder.mkdir(parents=True, exist_ok=True)
    for node in nodes:
        (folder / node).touch()
    return folder


def test_failures_of_one_node_end_nothing_while_others_are_enough(aws: Worker) -> None:
    """Two to four nodes, of which three have come: with one that fails two are left, with two one is."""
    aws.machine.plan(terminate_when_done=False)
    assert aws.machine.run("run-trainer.sh").returncode == 0
    assert len(list(marks(aws, "started-on", "node-2", "node-3").iterdir())) == 3
    fails_for_good(aws)
    assert aws.ended is None
    assert len(list(marks(aws, "ended-on").iterdir())) == 1
    aws.machine.fake("systemctl", "echo inactive; exit 3")
    aws.ends("1", "watch-node.sh")
    assert aws.ended is None
    marks(aws, "ended-on", "node-2")
    aws.ends("1", "watch-node.sh")
    told = aws.ended
    assert told is not None
    assert (told["code"], told["reason"]) == (1, "too-many-failures")


def test_who_fails_last_tells_where_fewer_came_than_were_wanted(aws: Worker) -> None:
    """One to four nodes, of which the usual two of spot came."""
    aws.machine.plan(job=aws.job.model_copy(update={"num_nodes_min": 1}))
    assert aws.machine.run("run-trainer.sh").returncode == 0
    marks(aws, "started-on", "node-2")
    marks(aws, "ended-on", "node-2")
    fails_for_good(aws)
    assert aws.ended is not None


def test_bad_input_of_one_node_ends_nothing_while_others_are_enough(aws: Worker) -> None:
    """A GPU whose memory does not hold a step exits like a mistake in the stack file, which all nodes have."""
    aws.machine.plan(terminate_when_done=False)
    aws.machine.fake("systemctl", "echo inactive; exit 3")
    assert aws.machine.run("run-trainer.sh").returncode == 0
    marks(aws, "started-on", "node-2", "node-3")
    aws.ends("2")
    assert aws.ended is None
    marks(aws, "ended-on", "node-2")
    aws.ends("2", "watch-node.sh")
    told = aws.ended
    assert told is not None
    assert (told["code"], told["reason"]) == (2, "bad-input")


def test_the_end_of_the_hours_is_everyones(aws: Worker) -> None:
    aws.machine.start_job(9 * 3600)
    marks(aws, "started-on", "node-2", "node-3")
    assert aws.machine.run("run-trainer.sh").returncode == 0
    assert aws.ended is not None


def test_who_could_not_start_takes_nobody_from_those_who_did(aws: Worker) -> None:
    marks(aws, "started-on", "node-2", "node-3")
    fails_for_good(aws)
    assert aws.ended is None


@pytest.mark.parametrize("script", ["leave-node.sh", "watch-node.sh"])
def test_a_node_that_is_taken_away_counts_no_more(aws: Worker, imds: Any, script: str) -> None:
    assert aws.machine.run("run-trainer.sh").returncode == 0
    assert len(list(marks(aws, "started-on").iterdir())) == 1
    imds.answers["autoscaling/target-lifecycle-state"] = ["Terminated"]
    aws.machine.fake("systemctl", "echo inactive; exit 3")
    aws.machine.plan(lifecycle_hook=None)
    aws.ends("75", script)
    assert list(marks(aws, "started-on").iterdir()) == []


def test_nor_does_one_that_gives_up(aws: Worker) -> None:
    assert aws.machine.run("run-trainer.sh").returncode == 0
    assert aws.machine.give_up("no GPU").returncode == 1
    assert list(marks(aws, "started-on").iterdir()) == []


def test_a_file_system_that_hangs_ends_nobody(aws: Worker) -> None:
    aws.machine.fake("timeout", '[ "$2" != ls ] || exit 124; exec /usr/bin/timeout "$@"')
    fails_for_good(aws)
    assert aws.ended is None


def test_the_failures_of_a_single_node_are_the_jobs(aws: Worker) -> None:
    aws.machine.plan(job=aws.job.model_copy(update={"num_nodes_min": 1, "num_nodes_max": 1}))
    fails_for_good(aws)
    told = aws.ended
    assert told is not None
    assert told["reason"] == "too-many-failures"


def test_a_node_that_is_started_again_counts_no_more(aws: Worker) -> None:
    fails_for_good(aws)
    ended_on = aws.machine.root / "run" / f"ended-on-{aws.machine.key()}"
    assert len(list(ended_on.iterdir())) == 1
    aws.machine.state("ended").unlink()
    assert aws.machine.run("run-trainer.sh").returncode == 0
    assert list(ended_on.iterdir()) == []


def test_hours_that_are_over_are_told_by_a_worker(aws: Worker) -> None:
    aws.machine.start_job(9 * 3600)
    assert aws.machine.run("run-trainer.sh").returncode == 0
    told = aws.ended
    assert told is not None
    assert (told["code"], told["reason"]) == (75, "max-hours")


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
    assert "could not put dcgan-celeba64/ended.json: who waits for the record waits until the deadline" in done.stderr
    assert aws.machine.left()
    aws.machine.fake("aws")
    aws.machine.fake("systemctl", "echo inactive; exit 3")
    aws.ends("2", "watch-node.sh")
    aws.ends("2", "watch-node.sh")
    assert len(aws.machine.asked("s3")) == 2, "once it was put, no more"


def test_a_bucket_that_hesitates_is_asked_again(aws: Worker) -> None:
    aws.machine.plan(log_group=None)
    aws.machine.fails_at_first("aws", 1)
    aws.machine.env |= exited("2")
    assert aws.machine.run("leave-node.sh", END_SEC="20").returncode == 0
    assert aws.machine.state("end-put").exists()
