"""A breaker that is open, seen and reset: a run's folder on this machine, Auto Scaling in moto."""

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from moto import mock_aws
from typer.testing import CliRunner

from gangway.cli.main import app
from gangway.components.core.findings import InputError
from gangway.images.node import breaker as on_node
from gangway.jobs.systemd.state import HeldRecord, get_breaker

GROUPS = ["demo-0-spot", "demo-1-on-demand"]
BOTH = ["AlarmNotification", "Launch"]
RECORD = {"id": "run-1", "status": "running", "images": 1_234_000}
END = {"version": 1, "run_id": "run-1", "stack": "aws-demo", "node": "ip-1", "code": 2, "reason": "bad-input"}
NODES = ("1760000000-ip-1", "1760000100-ip-2")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run's folder, with all that nodes left there."""
    folder = tmp_path / "runs" / "aws-demo" / "aws-demo"
    (folder / "breaker").mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(RECORD))
    for name in NODES:
        (folder / "breaker" / name).write_text("no GPU")
    return folder


@pytest.fixture
def held(run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """The same, as the last node has written it."""
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{name}\n" for name in NODES)))
    reason = "cannot pull \x1b[31mthe image\nat all"
    assert on_node.main(["3", "3600", "aws-demo", "run-1", "1760000200-ip-3", reason]) == 0
    (run / "breaker" / "held.json").write_text(capsys.readouterr().out)
    return run


@pytest.fixture
def pulumi(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes a CLI that knows what a stack's program exported."""

    def make(**outputs: Any) -> None:
        known = {"run_bucket": "runs", "runs_url": run.as_uri(), "group_names": GROUPS, **outputs}
        fake = tmp_path / "fake" / "pulumi"
        fake.parent.mkdir(exist_ok=True)
        fake.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(known)}\nEND\n")
        fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{fake.parent}{os.pathsep}{os.environ['PATH']}")

    return make


@pytest.fixture
def scaling(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Auto Scaling with both groups, their launches held."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        ec2 = boto3.client("ec2", region_name="us-east-2")
        template = ec2.create_launch_template(
            LaunchTemplateName="t", LaunchTemplateData={"ImageId": "ami-12345678", "InstanceType": "t3.medium"}
        )["LaunchTemplate"]["LaunchTemplateId"]
        client = boto3.client("autoscaling", region_name="us-east-2")
        for name in GROUPS:
            client.create_auto_scaling_group(
                AutoScalingGroupName=name,
                LaunchTemplate={"LaunchTemplateId": template},
                MinSize=0,
                MaxSize=2,
                AvailabilityZones=["us-east-2a"],
            )
            client.suspend_processes(AutoScalingGroupName=name, ScalingProcesses=BOTH)
        yield client


def suspended(scaling: Any) -> list[list[str]]:
    groups = scaling.describe_auto_scaling_groups()["AutoScalingGroups"]
    return [sorted(process["ProcessName"] for process in group["SuspendedProcesses"]) for group in groups]


def gangway(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(words))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


def test_why_nothing_is_launched(held: Path, pulumi: Callable[..., None]) -> None:
    pulumi()
    code, said = gangway("breaker", "show", "aws-demo")
    assert code == 1
    assert said == (
        "since 2025-10-09 08:56 UTC launches of aws-demo are held: 3 nodes gave up within 60 minutes, the "
        "last, ip-3, because: cannot pull [31mthe image at all\n"
    )


@pytest.mark.slow
def test_a_reset_takes_the_marks_away_and_resumes(held: Path, pulumi: Callable[..., None], scaling: Any) -> None:
    pulumi()
    assert suspended(scaling) == [BOTH, BOTH]
    code, said = gangway("breaker", "reset", "aws-demo")
    assert code == 0
    assert "removed 3 objects" in said
    assert "resumed Launch and AlarmNotification of demo-0-spot, demo-1-on-demand" in said
    assert suspended(scaling) == [[], []]
    assert sorted(path.name for path in held.rglob("*") if path.is_file()) == ["run.json"]
    assert gangway("breaker", "show", "aws-demo") == (0, "launches are not stopped\n")
    assert gangway("breaker", "reset", "aws-demo")[0] == 0, "twice does no harm"


AFTER, BEFORE = "2025-10-09T08:57:00Z", "2025-10-09T08:50:00Z"


@pytest.mark.parametrize(
    ("record", "end", "quiet"),
    [
        ({"status": "running"}, {"time": AFTER}, True),
        ({"status": "running"}, {"time": BEFORE}, False),  # it was begun again since
        ({"status": "running"}, {"time": AFTER, "run_id": "run-0"}, False),
        ({"status": "done"}, None, True),  # nodes write no end of a job that is done
        ({"status": "done", "id": "run-0"}, None, False),
        ({"status": "interrupted"}, None, False),
    ],
)
def test_alarms_of_a_job_that_has_ended_stay_quiet(
    held: Path,
    pulumi: Callable[..., None],
    scaling: Any,
    record: dict[str, str],
    end: dict[str, str] | None,
    quiet: bool,
) -> None:
    pulumi()
    (held / "run.json").write_text(json.dumps({**RECORD, **record}))
    if end is not None:
        (held / "ended.json").write_text(json.dumps({**END, **end}))
    _, said = gangway("breaker", "reset", "aws-demo")
    assert suspended(scaling) == [["AlarmNotification"] if quiet else []] * 2
    assert ("AlarmNotification stays suspended" in said) == quiet


@pytest.mark.slow
@pytest.mark.parametrize("name", ["run.json", "ended.json"])
def test_what_nobody_can_read_of_its_end_keeps_nothing_held(
    held: Path, pulumi: Callable[..., None], scaling: Any, name: str
) -> None:
    pulumi()
    (held / name).write_text('{"version": 9}')
    code, said = gangway("breaker", "reset", "aws-demo")
    assert (code, suspended(scaling)) == (0, [[], []])
    assert "unknown whether the job has ended" in said
    assert name in said


def test_groups_that_are_gone_are_told(
    held: Path, pulumi: Callable[..., None], scaling: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulumi(group_names=["gone"])
    monkeypatch.setattr("boto3.client", lambda *args, **kwargs: scaling)
    with Stubber(scaling) as stub:
        stub.add_client_error("resume_processes", "ValidationError", "AutoScalingGroup name not found")
        with pytest.raises(InputError, match="Auto Scaling group gone: Launch and AlarmNotification cannot be resumed"):
            gangway("breaker", "reset", "aws-demo")
    assert gangway("breaker", "show", "aws-demo")[0] == 1, "launches are held, and it says so"


def test_on_google_cloud_the_first_group_is_left_to_up(held: Path, pulumi: Callable[..., None]) -> None:
    pulumi()
    code, said = gangway("breaker", "reset", "gcp-a3-spot")
    assert code == 0
    assert "then `pulumi up --refresh --stack gcp-a3-spot`" in said
    assert not (held / "breaker" / "held.json").exists()


def test_on_azure_the_head_sees_it_by_itself(held: Path, pulumi: Callable[..., None]) -> None:
    pulumi(run_bucket_url="https://x.blob.core.windows.net/runs")
    assert gangway("breaker", "reset", "azure-ndv5-spot")[1].count("\n") == 1
    assert not (held / "breaker" / "held.json").exists()


@pytest.mark.parametrize("stack", ["hosts-lab", "openstack-gpu"])
def test_where_nobody_replaces_a_node_there_is_nothing_to_reset(stack: str) -> None:
    with pytest.raises(InputError, match="does not replace nodes"):
        gangway("breaker", "reset", stack)


def test_a_stack_that_is_not_up(pulumi: Callable[..., None]) -> None:
    with pytest.raises(InputError, match="no run_bucket: the stack is not up"):
        get_breaker("aws", "aws-demo", "us-east-2", {})


@pytest.mark.parametrize("content", ["", "[]", '{"version": 1, "more": 2}'])
def test_what_no_node_writes_is_told(run: Path, pulumi: Callable[..., None], content: str) -> None:
    pulumi()
    (run / "breaker" / "held.json").write_text(content)
    with pytest.raises(InputError, match="not written by this version's nodes"):
        gangway("breaker", "show", "aws-demo")


def test_it_is_what_a_node_writes(held: Path) -> None:
    record = HeldRecord.model_validate_json((held / "breaker" / "held.json").read_bytes())
    assert (record.node, record.nodes) == ("ip-3", ("ip-1", "ip-2", "ip-3"))
