"""The real Pulumi engine in a sandbox: a copy of the project, a file backend, a stand-in for the AWS plugin.

Nothing is written into the repository: the engine adds a salt to each stack file it selects, so it gets copies. Tests
that need the CLI are skipped, with the reason, where `pulumi` is not on PATH. Run them alone:

    pytest -m engine
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
COMMAND_TIMEOUT_SEC = 120


def run_limited(command: list[str], env: dict[str, str], cwd: Path) -> tuple[int, str, str]:
    """Runs a command in a session of its own, which does not outlive it. Returns exit status, stdout, stderr."""
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(
        command, env=env, cwd=cwd, stdin=null, stdout=pipe, stderr=pipe, start_new_session=True
    ) as process:
        try:
            stdout, stderr = process.communicate(timeout=COMMAND_TIMEOUT_SEC)
        finally:
            _end_session(process.pid)
    return process.returncode, stdout.decode(), stderr.decode()


def _end_session(leader: int) -> None:
    """Kills what is left of a session. A process group would miss the plugins: the engine gives each its own."""
    for pid in psutil.pids():
        with suppress(OSError):  # gone meanwhile, or somebody else's
            if os.getsid(pid) == leader:
                os.kill(pid, signal.SIGKILL)


@dataclass(frozen=True)
class Outcome:
    """What one run of the engine did.

    Attributes:
        status: exit status of the CLI.
        events: the engine's events, in their order.
        stderr: what the CLI wrote beside them.
    """

    status: int
    events: tuple[dict[str, Any], ...] = field(repr=False)
    stderr: str = field(repr=False)

    @property
    def text(self) -> str:
        """Everything a person would have read."""
        diagnostics = (event.get("diagnosticEvent", {}) for event in self.events)
        return (
            "".join(said["message"] for said in diagnostics if said.get("severity", "debug") != "debug") + self.stderr
        )

    @property
    def changes(self) -> Counter[str]:
        """How many resources saw which operation (create, update, replace, delete, same)."""
        (summary,) = (event["summaryEvent"] for event in self.events if "summaryEvent" in event)
        return Counter(summary["resourceChanges"])

    def types(self, operation: str) -> set[str]:
        """The type tokens of the resources that saw `operation`."""
        steps = (event["resourcePreEvent"]["metadata"] for event in self.events if "resourcePreEvent" in event)
        return {step["type"] for step in steps if step["op"] == operation}


@dataclass(frozen=True)
class Engine:
    """One stack in a project of its own.

    Attributes:
        project: copy of the project: stack files copied, code linked.
        cloud: where the stand-in keeps its resources.
        stack: the stack's name.
        env: environment of every command.
    """

    project: Path
    cloud: Path
    stack: str
    env: dict[str, str]

    def run(self, command: str, *options: str) -> Outcome:
        """Runs `pulumi <command>` on the stack, unattended, and collects the engine's events."""
        words = ["pulumi", command, "--stack", self.stack, "--non-interactive", "--json", *options]
        status, stdout, stderr = run_limited(words, self.env, self.project)
        return Outcome(status, tuple(json.loads(line) for line in stdout.splitlines() if line[:1] == "{"), stderr)

    def plain(self, *words: str) -> str:
        """Runs a command of the CLI that prints text and must succeed; returns the text."""
        status, stdout, stderr = run_limited(["pulumi", *words, "--non-interactive"], self.env, self.project)
        assert status == 0, stdout + stderr
        return stdout

    def change(self, edit: Callable[[dict[str, Any]], None]) -> None:
        """Edits the configuration in the stack file's copy."""
        file = self.project / "stacks" / f"Pulumi.{self.stack}.yaml"
        content = yaml.safe_load(file.read_text("utf-8"))
        edit(content["config"])
        file.write_text(yaml.safe_dump(content), "utf-8")

    def resources(self) -> list[dict[str, Any]]:
        """What the stand-in's cloud holds."""
        return [json.loads(file.read_text("utf-8")) for file in sorted(self.cloud.glob("*.json"))]


def _copy_project(project: Path) -> None:
    """Links the code, so that tracebacks and coverage name the repository's files; copies what the engine writes."""
    (project / "stacks").mkdir(parents=True)
    shutil.copy(REPOSITORY / "Pulumi.yaml", project)
    (project / ".venv").symlink_to(sys.prefix)
    for source in (REPOSITORY / "stacks").iterdir():
        target = project / "stacks" / source.name
        if source.suffix == ".yaml":
            shutil.copy(source, target)
        else:
            target.symlink_to(source)


@pytest.fixture
def make_engine(tmp_path: Path) -> Callable[[str], Engine]:
    """Makes an Engine with the named stack initialised."""
    if shutil.which("pulumi") is None:
        pytest.skip("the pulumi CLI is not on PATH: install it to run the stacks under the real engine")

    def make(stack: str) -> Engine:
        project, cloud, state = tmp_path / "project", tmp_path / "cloud", tmp_path / "state"
        _copy_project(project)
        for folder in (cloud, state):
            folder.mkdir()
        # A person's login, configuration or credentials must not decide what these tests see.
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "PULUMI_"))}
        env = {
            **kept,
            "PATH": os.pathsep.join([str(HERE / "standin"), f"{sys.prefix}/bin", os.environ["PATH"]]),
            "GANGWAY_STANDIN_STATE": str(cloud),
            "PULUMI_BACKEND_URL": state.as_uri(),
            "PULUMI_CONFIG_PASSPHRASE": "engine-tests",
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
            "PULUMI_ENABLE_STREAMING_JSON_PREVIEW": "true",
            "PULUMI_HOME": str(tmp_path / "home"),
            "PULUMI_SKIP_UPDATE_CHECK": "true",
        }
        engine = Engine(project, cloud, stack, env)
        engine.plain("stack", "init", stack)
        return engine

    return make


@pytest.fixture(
    params=sorted(file.stem.removeprefix("Pulumi.") for file in (REPOSITORY / "stacks").glob("Pulumi.*.yaml"))
)
def engine(request: pytest.FixtureRequest, make_engine: Callable[[str], Engine]) -> Engine:
    """Every stack of the repository in turn."""
    return make_engine(request.param)
