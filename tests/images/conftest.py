"""Specs, golden files and a stand-in node for the image tests.

Golden files are compared byte for byte; after a wanted change write them anew, and read the diff before committing:

    GANGWAY_UPDATE_GOLDEN=1 pytest tests/images
"""

import json
import os
import shlex
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

import images
from components.job import JobSpec, Rendezvous, Volume
from images import HeadInitSpec, NodeInitSpec
from images.shell import head_env_text, job_env_text, node_env_text

GOLDEN = Path(__file__).parent / "golden"
SCRIPTS = Path(images.__file__).parent / "templates" / "aws"
REGISTRY = "123456789012.dkr.ecr.us-east-2.amazonaws.com"


@pytest.fixture
def same_as_golden() -> Callable[[str, str], None]:
    """Compares text with a golden file, or writes the file when GANGWAY_UPDATE_GOLDEN=1."""

    def check(name: str, text: str) -> None:
        if os.environ.get("GANGWAY_UPDATE_GOLDEN") == "1":
            (GOLDEN / name).write_bytes(text.encode())
        assert text.encode() == (GOLDEN / name).read_bytes(), f"{name} differs; see tests/images/conftest.py"

    return check


@pytest.fixture(scope="session")
def job() -> JobSpec:
    return JobSpec(
        name="dcgan-celeba64",
        image=f"{REGISTRY}/gangway-trainer@sha256:" + "ab" * 32,
        backend="nccl",
        num_nodes_min=2,
        num_nodes_max=4,
        processes_per_node=8,
        rendezvous=Rendezvous(host="head.gangway.internal", port=29400),
        volumes=(Volume(source="/fsx", target="/fsx"), Volume(source="/scratch", target="/data", read_only=True)),
        env={"GANGWAY_NOTE": 'it\'s "50 %" of $HOME\nüñí'},
        argv=("train", "--run-dir", "/fsx/runs/dcgan-celeba64"),
    )


@pytest.fixture(scope="session")
def node(job: JobSpec) -> NodeInitSpec:
    """A p5.48xlarge worker with every part of the node planned."""
    return NodeInitSpec(
        job=job,
        region="us-east-2",
        image_registry=REGISTRY,
        bucket_uri="s3://gangway-records/runs/",
        run_dir="/fsx/runs/dcgan-celeba64",
        efa_interfaces_planned=32,
        lustre_dns_name="fs-0123456789abcdef0.fsx.us-east-2.amazonaws.com",
        lustre_mount_name="abcdefgh",
        scratch_mount_point="/scratch",
        tags={"team": "ml-platform", "cost_center": "4711"},
        stack="demo",
        log_group="/gangway/demo",
        lifecycle_hook="gangway-leave",
        max_hours=8,
        terminate_when_done=True,
    )


@pytest.fixture(scope="session")
def plain_node(job: JobSpec) -> NodeInitSpec:
    """A CPU worker: gloo, no EFA, no file system, no scratch."""
    return NodeInitSpec(
        job=job.model_copy(update={"backend": "gloo", "volumes": (), "env": {}}),
        region="eu-west-1",
        image_registry=REGISTRY,
        bucket_uri="s3://gangway-records",
        run_dir="/var/lib/gangway/run",
    )


@pytest.fixture(scope="session")
def head(job: JobSpec) -> HeadInitSpec:
    """A head node with a file system and Prometheus."""
    return HeadInitSpec(
        image=job.image,
        region="us-east-2",
        image_registry=REGISTRY,
        stack="demo",
        job_name=job.name,
        bucket_uri="s3://gangway-records/runs/",
        run_dir="/fsx/runs/dcgan-celeba64",
        lustre_dns_name="fs-0123456789abcdef0.fsx.us-east-2.amazonaws.com",
        lustre_mount_name="abcdefgh",
        prometheus_image="prom/prometheus:v3.7.3",
        log_group="/gangway/demo",
        max_hours=8,
    )


@pytest.fixture(scope="session")
def plain_head(head: HeadInitSpec) -> HeadInitSpec:
    """A head node that only keeps the rendezvous."""
    return replace(head, lustre_dns_name=None, lustre_mount_name=None, prometheus_image=None, log_group=None)


@dataclass
class Machine:
    """A directory that a node script takes for the machine: fake commands first on PATH, their calls recorded."""

    root: Path
    spec: NodeInitSpec
    env: dict[str, str] = field(default_factory=dict)

    UNHEALTHY: ClassVar = [
        *("autoscaling", "set-instance-health", "--region", "us-east-2", "--instance-id", "i-0123456789abcdef0"),
        *("--health-status", "Unhealthy", "--no-should-respect-grace-period"),
    ]
    """What a node says of itself when it gives up."""

    OWN_GROUP: ClassVar = "[ $2 != describe-auto-scaling-groups ] || echo demo-0-spot"
    """What the fake `aws` does where the node asks for its group."""

    COMPLETED: ClassVar = [
        *("complete-lifecycle-action", "--region", "us-east-2", "--auto-scaling-group-name", "demo-0-spot"),
        *("--lifecycle-hook-name", "gangway-leave", "--instance-id", "i-0123456789abcdef0"),
        *("--lifecycle-action-result", "CONTINUE"),
    ]
    """What it tells that group's hook then."""

    LEFT: ClassVar = [
        *("terminate-instance-in-auto-scaling-group", "--region", "us-east-2", "--instance-id", "i-0123456789abcdef0"),
        "--should-decrement-desired-capacity",
    ]
    """What it tells its group when it leaves."""

    def fake(self, name: str, body: str = "exit 0") -> None:
        """A command that records its arguments, then runs `body` (bash)."""
        path = self.root / "fake" / name
        # Words end in ASCII's unit separator and calls in its record separator, so an argument may hold a newline. One
        # write for each call: the two ends of a pipe run at the same time.
        record = f"printf -v record '%s\\x1f' {name} \"$@\"; printf '%s\\x1e' \"$record\" >>'{self.root}/calls'"
        path.write_text(f"#!/usr/bin/env bash\n{record}\n{body}\n")
        path.chmod(0o755)

    def calls(self, name: str) -> list[list[str]]:
        """The argument lists with which the fake command `name` was called."""
        return [words[1:] for words in self.every_call() if words[0] == name]

    def every_call(self) -> list[list[str]]:
        """The calls of all fake commands, in their order, each with the command's name."""
        log = self.root / "calls"
        records = log.read_text(errors="surrogateescape").split("\x1e")[:-1] if log.exists() else []
        return [record.split("\x1f")[:-1] for record in records]

    def asked(self, service: str) -> list[list[str]]:
        """The calls of AWS's command line for one service."""
        return [call for call in self.calls("aws") if call[0] == service]

    def said_to_group(self) -> list[list[str]]:
        """What was asked of Auto Scaling, without its name."""
        return [call[1:] for call in self.asked("autoscaling")]

    def left(self) -> bool:
        """Whether the node has left its group."""
        return self.LEFT in self.said_to_group()

    def start_job(self, seconds_ago: float) -> None:
        """As the first node does it, in the past."""
        (self.root / "run").mkdir()
        (self.root / "run" / "started-at").write_text(f"{int(time.time() - seconds_ago)}\n")

    def events(self) -> list[dict[str, Any]]:
        """The lines that were sent to the log group."""
        sent = [json.loads(call[-1]) for call in self.asked("logs") if call[1] == "put-log-events"]
        return [json.loads(entry["message"]) for entries in sent for entry in entries]

    def state(self, name: str) -> Path:
        """A file in which the scripts keep what they know from one call to the next."""
        (self.root / "state").mkdir(exist_ok=True)
        return self.root / "state" / name

    def run(self, script: str, head: HeadInitSpec | None = None, **settings: str) -> subprocess.CompletedProcess[str]:
        """Runs a node script as it is shipped; `settings` are its GANGWAY_... overrides. `head`: on that head node."""
        return self._bash(["bash", str(SCRIPTS / script)], head, settings)

    def give_up(self, reason: str, **settings: str) -> subprocess.CompletedProcess[str]:
        """Calls the function of that name, as any of the scripts would."""
        line = f'. {shlex.quote(str(SCRIPTS / "common.sh"))}; give_up "$1"'
        return self._bash(["bash", "-euo", "pipefail", "-c", line, "bash", reason], None, settings)

    def _bash(
        self, command: list[str], head: HeadInitSpec | None, settings: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        (self.root / "node.env").write_text(node_env_text(self.spec) if head is None else head_env_text(head))
        (self.root / "job.env").write_text(job_env_text(self.spec))
        env = {
            "PATH": f"{self.root}/fake:{os.environ['PATH']}",
            "GANGWAY_NODE_ENV": f"{self.root}/node.env",
            "GANGWAY_JOB_ENV": f"{self.root}/job.env",
            "GANGWAY_STATE_DIR": f"{self.root}/state",
            "GANGWAY_POLL_SEC": "0.05",
            # One look each; the tests that wait set their own.
            "GANGWAY_LET_GO_SEC": "0",
            "GANGWAY_COMPLETE_SEC": "0",
            **self.env,
            **{f"GANGWAY_{name}": value for name, value in settings.items()},
        }
        return subprocess.run(
            command, env=env, capture_output=True, text=True, errors="surrogateescape", timeout=30, check=False
        )

    def plan(self, **changes: Any) -> None:
        """Changes the spec that the scripts are told."""
        self.spec = replace(self.spec, **changes)


@pytest.fixture
def machine(tmp_path: Path, node: NodeInitSpec, imds: Any) -> Machine:
    (tmp_path / "fake").mkdir()
    made = Machine(tmp_path, node, {"GANGWAY_IMDS_URL": imds.url})
    made.fake("aws")
    return made


@pytest.fixture
def job_node(machine: Any, tmp_path: Path) -> Any:
    """A node on which the trainer may be started."""
    machine.plan(run_dir=f"{tmp_path}/run")
    machine.fake("docker")
    machine.fake("install", 'mkdir -p "${@: -1}"')
    return machine
