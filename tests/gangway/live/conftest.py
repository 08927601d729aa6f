"""A stack on AWS that is up: its state in a file backend, groups, instances and logs in moto, its run in a folder."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from moto import mock_aws

from gangway.finops.audit import state as audit_state

REGION = "us-east-2"
GROUP = "demo-0-on-demand"
STACK: dict[str, Any] = {
    "gangway:region": REGION,
    "gangway:cluster": {
        "accelerator": "H100x8",
        "nodes": {"min": 1, "max": 2},
        "capacity": [{"kind": "on-demand"}],
    },
    "gangway:budget": {"monthly_usd": 90_000, "emails": ["ml-platform@example.com"]},
    "gangway:job": {"preset": "r3gan-imagenet64", "kimg": 20_000, "max_hours": 300, "settings": {"batch_size": 4096}},
    "gangway:storage": {"kind": "lustre", "capacity_gib": 4800, "throughput_mbps_per_tib": 500},
    "gangway:tags": {"team": "ml-platform", "cost_center": "4711"},
}


def tick(at: float, images: int, session: int = 0, **more: Any) -> dict[str, Any]:
    """A statistics line of two nodes with eight GPUs each, at 80 USD an hour."""
    joules = {f"node{node}/gpu{gpu}": [600.0 * at, "measured", "NVML"] for node in (0, 1) for gpu in (0, 1)}
    line = {"images": images, "time": at, "session": session, "kimg": images / 1000, "usd_per_hour": 80.0}
    return {**line, "gpu_utilisation": 0.9, "world_size": 16, "energy": joules, **more}


def run_lines(now: float, number: int = 20) -> list[dict[str, Any]]:
    """A minute between lines, the last of them now; 60,000 images a minute; a checkpoint and an interruption before."""
    began = now - 60 * number
    events = [
        {"event": "interrupt", "cause": "spot-interruption", "images": 60_000, "time": began - 600, "session": 0},
        {"event": "checkpoint", "images": 120_000, "time": began + 90, "session": 1},
    ]
    ticks = [tick(began + 60 * index, 60_000 * index, session=1) for index in range(number + 1)]
    return sorted([*events, *ticks], key=lambda line: line["time"])


def write_lines(folder: Path, lines: list[dict[str, Any]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stats.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


@dataclass
class Stack:
    """A stack.

    Attributes:
        folder: of its run.
        outputs: of the program; `save` writes them.
        resources: of its state beside the stack itself, as `pulumi stack export` has them.
    """

    project: Path
    name: str
    outputs: dict[str, Any]
    resources: list[dict[str, Any]] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.project / "bucket" / self.name / self.name

    def save(self) -> None:
        """Writes the state."""
        path = self.project / "state/.pulumi/stacks/gangway" / f"{self.name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        root = {"urn": f"urn:pulumi:{self.name}::gangway::pulumi:pulumi:Stack::x", "type": "pulumi:pulumi:Stack"}
        rows = [{**root, "outputs": self.outputs}, *self.resources]
        path.write_text(json.dumps({"version": 3, "checkpoint": {"latest": {"resources": rows}}}))

    def add(self, type_: str, name: str, **more: Any) -> None:
        """Puts a resource into the state."""
        urn = f"urn:pulumi:{self.name}::gangway::{type_}::{name}"
        self.resources.append({"urn": urn, "type": type_, "id": f"id-of-{name}", "outputs": {}, **more})


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project without the CLI, whose backend is a folder; nobody else's home or queue."""
    monkeypatch.setattr(audit_state, "which", lambda _: None)
    monkeypatch.setenv("PULUMI_BACKEND_URL", (tmp_path / "state").as_uri())
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "state").mkdir()
    (tmp_path / "Pulumi.yaml").write_text("name: gangway\nruntime: python\n")
    (tmp_path / "__main__.py").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def make_stack(project: Path) -> Callable[..., Stack]:
    """Makes a stack that is up, whose run began twenty minutes ago."""

    def make(name: str = "demo", config: dict[str, Any] | None = None, **outputs: Any) -> Stack:
        (project / f"Pulumi.{name}.yaml").write_text(yaml.safe_dump({"config": config or STACK}))
        made = Stack(project, name, {})
        made.outputs = {"run_bucket": "runs", "runs_url": made.folder.as_uri(), "group_names": [GROUP], **outputs}
        write_lines(made.folder, run_lines(time.time()))
        made.save()
        return made

    return make


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The stack's group with two nodes, its head, and its log groups; the logs' client."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    with mock_aws():
        ec2, groups = (boto3.client(name, region_name=REGION) for name in ("ec2", "autoscaling"))
        node = {"ImageId": "ami-12c6146b", "InstanceType": "t3.medium"}
        ec2.create_launch_template(LaunchTemplateName="node", LaunchTemplateData=node)
        groups.create_auto_scaling_group(
            AutoScalingGroupName=GROUP,
            LaunchTemplate={"LaunchTemplateName": "node", "Version": "1"},
            MinSize=0,
            MaxSize=2,
            DesiredCapacity=2,
            VPCZoneIdentifier=ec2.describe_subnets()["Subnets"][0]["SubnetId"],
            Tags=[{"Key": "gangway:stack", "Value": "demo", "PropagateAtLaunch": True}],
        )
        tags = [{"Key": "gangway:stack", "Value": "demo"}, {"Key": "gangway:role", "Value": "head"}]
        spec = [{"ResourceType": "instance", "Tags": tags}]
        ec2.run_instances(MinCount=1, MaxCount=1, TagSpecifications=spec, **node)
        logs = boto3.client("logs", region_name=REGION)
        for group in ("/gangway/demo", "/gangway/demo/events"):
            logs.create_log_group(logGroupName=group)
        yield logs


def put_lines(logs: Any, stream: str, lines: list[tuple[float, str]], group: str = "/gangway/demo") -> None:
    """Lines of a node, each with its time."""
    logs.create_log_stream(logGroupName=group, logStreamName=stream)
    events = [{"timestamp": int(at * 1000), "message": text} for at, text in lines]
    logs.put_log_events(logGroupName=group, logStreamName=stream, logEvents=events)
