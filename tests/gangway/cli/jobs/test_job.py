"""`gangway job --scale`: a stack's groups are asked once, and what has nothing to scale is refused before anything."""

import json
import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from moto import mock_aws
from typer.testing import CliRunner

from gangway.cli.main import app
from gangway.components.core.findings import InputError

STACK = {
    "gangway:region": "us-east-2",
    "gangway:cluster": {
        "accelerator": "H100x8",
        "nodes": {"min": 1, "max": 8},
        "capacity": [{"kind": "on-demand"}],
    },
    "gangway:storage": {"kind": "lustre", "capacity_gib": 4800, "throughput_mbps_per_tib": 500},
    "gangway:budget": {"monthly_usd": 900_000, "emails": ["ml-platform@example.com"]},
    "gangway:job": {
        "preset": "r3gan-imagenet64",
        "kimg": 20_000,
        "max_hours": 300,
        "settings": {"batch_size": 4096},
        "autoscale": {"images_per_sec": 400},
    },
    "gangway:tags": {"team": "ml-platform", "cost_center": "4711"},
}
GROUP = "by-speed-0-on-demand"


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stack file, a run of it that has put its record, and a CLI that knows the program's outputs."""
    run = tmp_path / "runs" / "by-speed" / "by-speed"
    run.mkdir(parents=True)
    (run / "run.json").write_text(json.dumps({"id": "run-1", "status": "interrupted", "images": 1_000_000}))
    fake = tmp_path / "bin" / "pulumi"
    fake.parent.mkdir()
    outputs = {"run_bucket": "runs", "runs_url": run.as_uri(), "group_names": [GROUP]}
    fake.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(outputs)}\nEND\n")
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(fake.parent), prepend=":")
    path = tmp_path / "Pulumi.by-speed.yaml"
    path.write_text(yaml.safe_dump({"config": STACK}))
    return path


@pytest.fixture
def groups() -> Iterator[Any]:
    with mock_aws():
        ec2, made = (boto3.client(name, region_name="us-east-2") for name in ("ec2", "autoscaling"))
        node = {"ImageId": "ami-12c6146b", "InstanceType": "t3.medium"}
        ec2.create_launch_template(LaunchTemplateName="node", LaunchTemplateData=node)
        made.create_auto_scaling_group(
            AutoScalingGroupName=GROUP,
            LaunchTemplate={"LaunchTemplateName": "node", "Version": "1"},
            MinSize=0,
            MaxSize=8,
            DesiredCapacity=8,
            VPCZoneIdentifier=ec2.describe_subnets()["Subnets"][0]["SubnetId"],
        )
        yield made


def asked(groups: Any) -> int:
    (group,) = groups.describe_auto_scaling_groups(AutoScalingGroupNames=[GROUP])["AutoScalingGroups"]
    found: int = group["DesiredCapacity"]
    return found


@pytest.mark.slow
def test_told_nothing_changes_and_asked_the_group_has_what_is_wanted(stack: Path, groups: Any) -> None:
    told = CliRunner().invoke(app, ["job", str(stack)])
    assert told.exit_code == 0, told.output
    assert "`gangway job by-speed --scale`" in told.output
    assert asked(groups) == 8
    done = CliRunner().invoke(app, ["job", str(stack), "--scale"])
    assert done.exit_code == 0, done.output
    assert f"{GROUP} changed from 8 to {asked(groups)} nodes" in done.output
    assert 1 <= asked(groups) < 8
    again = CliRunner().invoke(app, ["job", str(stack), "--scale"])
    assert again.exit_code == 0, again.output
    assert "last changed" in again.output
    assert "nothing was changed" in again.output


@pytest.mark.slow
def test_a_dry_run_says_it_and_changes_nothing(stack: Path, groups: Any) -> None:
    found = CliRunner().invoke(app, ["job", str(stack), "--scale", "--dry-run"])
    assert found.exit_code == 0, found.output
    assert f"{GROUP} would change from 8 to" in found.output
    (group,) = groups.describe_auto_scaling_groups(AutoScalingGroupNames=[GROUP])["AutoScalingGroups"]
    assert (group["DesiredCapacity"], group["Tags"]) == (8, [])


@pytest.mark.slow
def test_by_a_deadline_the_progress_has_to_be_known(stack: Path, groups: Any) -> None:
    by_deadline(stack)
    unknown = CliRunner().invoke(app, ["job", str(stack), "--scale"])
    assert unknown.exit_code == 0, unknown.output
    assert "progress is unknown" in unknown.output
    assert asked(groups) == 8
    known = CliRunner().invoke(app, ["job", str(stack), "--scale", "--images", "1000000"])
    assert known.exit_code == 0, known.output
    assert asked(groups) == 1


def by_deadline(stack: Path, **autoscale: object) -> None:
    job = {**STACK["gangway:job"], "autoscale": autoscale or {"deadline": "2090-01-01T00:00:00Z"}}  # type: ignore[dict-item]
    stack.write_text(yaml.safe_dump({"config": {**STACK, "gangway:job": job}}))


@pytest.mark.slow
def test_a_job_that_trains_without_a_stop_is_scaled_by_its_progress(stack: Path, groups: Any, tmp_path: Path) -> None:
    """Its last record is days old, or there is none."""
    by_deadline(stack)
    run = tmp_path / "runs/by-speed/by-speed"
    record, old = json.loads((run / "run.json").read_text()), datetime.now(UTC) - timedelta(days=2)
    (run / "run.json").write_text(json.dumps({**record, "sessions": [{"end": old.isoformat()}]}))
    stale = CliRunner().invoke(app, ["job", str(stack), "--scale"])
    assert f"{old:%Y-%m-%d %H:%M} UTC; nothing was changed" in stale.output
    progress = {"version": 1, "images": 1_500_000, "time": int(datetime.now(UTC).timestamp())}
    (run / "progress.json").write_text(json.dumps(progress))
    known = CliRunner().invoke(app, ["job", str(stack), "--scale"])
    assert known.exit_code == 0, known.output
    assert "1,500,000 images" in known.output
    assert asked(groups) == 1


def test_told_without_progress_it_says_that_nobody_knows(stack: Path) -> None:
    by_deadline(stack)
    told = CliRunner().invoke(app, ["job", str(stack)])
    assert told.exit_code == 0, told.output
    assert "progress is unknown" in told.output


def test_a_budget_below_a_new_price_hides_nothing_of_the_job(stack: Path) -> None:
    by_deadline(stack, budget_usd=0.5)
    told = CliRunner().invoke(app, ["job", str(stack)])
    assert told.exit_code == 0, told.output
    assert "record run-1: interrupted, 1,000,000 images" in told.output
    assert "autoscale: unknown" in told.output
    assert "launches are not stopped" in told.output
    refused = CliRunner().invoke(app, ["job", str(stack), "--scale", "--images", "1"])
    assert isinstance(refused.exception, InputError)


@pytest.mark.slow
def test_a_group_that_was_emptied_stays_empty(stack: Path, groups: Any) -> None:
    groups.set_desired_capacity(AutoScalingGroupName=GROUP, DesiredCapacity=0)
    found = CliRunner().invoke(app, ["job", str(stack), "--scale"])
    assert found.exit_code == 0, found.output
    assert asked(groups) == 0


@pytest.mark.slow
def test_a_job_that_is_over_is_left_alone(stack: Path, groups: Any, tmp_path: Path) -> None:
    record = tmp_path / "runs/by-speed/by-speed/run.json"
    record.write_text(json.dumps({"id": "run-1", "status": "done", "images": 20_000_000}))
    found = CliRunner().invoke(app, ["job", str(stack), "--scale"])
    assert "the job is over; nothing was changed" in found.output
    assert asked(groups) == 8


def test_what_has_nothing_to_scale_is_refused(stack: Path, tmp_path: Path) -> None:
    folder = CliRunner().invoke(app, ["job", str(tmp_path), "--scale"])
    assert isinstance(folder.exception, Exception)
    assert "a run's folder has no node groups" in str(folder.exception)
    for words in (["--dry-run"], ["--images", "1"]):
        alone = CliRunner().invoke(app, ["job", str(stack), *words])
        assert "has no effect without --scale" in str(alone.exception)
    job = {name: value for name, value in STACK["gangway:job"].items() if name != "autoscale"}  # type: ignore[attr-defined]
    stack.write_text(yaml.safe_dump({"config": {**STACK, "gangway:job": job}}))
    plain = CliRunner().invoke(app, ["job", str(stack), "--scale"])
    assert "has no autoscale section" in str(plain.exception)
