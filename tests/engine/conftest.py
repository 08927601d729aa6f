"""The real Pulumi engine in a sandbox: a copy of the project, a file backend, stand-ins for the resource plugins.

Nothing is written into the repository: the engine adds a salt to each stack file it selects, so it gets copies. The CLI
is the one on PATH, or else the one that `make pulumi` has built; without either these tests are skipped. All but one
stack's life per provider are left to `make test-all`. Run them alone:

    pytest -m engine
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tools.pulumi_cli.__main__ import find_cli

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
COMMAND_TIMEOUT_SEC = 600
IN_CI = frozenset({
    *(f"test_a_stack_lives_and_leaves_nothing_behind[{name}]" for name in ("aws-g5-dev", "azure-nc-dev", "gcp-v5e-pod",
                                                                           "openstack-gpu")),
    "test_machines_are_given_their_services_and_freed_of_them",
})  # fmt: skip
"""One stack's life for each provider."""
CLOCK = """
import sys, time

if any(word.endswith("pulumi-language-python-exec") for word in sys.orig_argv):
    now = time.time
    time.time = lambda: now() + {seconds}
"""
"""A sitecustomize: the clock of the program, not of its language host. gRPC's server waits for a true deadline."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the other tests under the engine slow."""
    for item in items:
        if item.get_closest_marker("engine") and item.name not in IN_CI:
            item.add_marker(pytest.mark.slow)


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


def _is_rendered_again(step: dict[str, Any]) -> bool:
    """Whether it is a text that stacks/base/kept.py renders again: only what differs from it then changes a machine."""
    return (step["op"], step["type"]) == ("replace", "pulumi:index:Stash")


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
        rendered = sum(1 for step in self._steps() if _is_rendered_again(step))
        return Counter(summary["resourceChanges"]) - Counter(replace=rendered)

    def types(self, operation: str) -> set[str]:
        """The type tokens of the resources that saw `operation`."""
        return {step["type"] for step in self._steps() if step["op"] == operation and not _is_rendered_again(step)}

    def _steps(self) -> Iterator[dict[str, Any]]:
        return (event["resourcePreEvent"]["metadata"] for event in self.events if "resourcePreEvent" in event)

    def began(self, operation: str) -> dict[str, int]:
        """When `operation` began on each resource: URN -> place among the events."""
        return self._places("resourcePreEvent", operation)

    def ended(self, operation: str) -> dict[str, int]:
        """When `operation` was over on each resource, as `began`."""
        return self._places("resOutputsEvent", operation)

    def _places(self, event: str, operation: str) -> dict[str, int]:
        steps = ((place, said[event]["metadata"]) for place, said in enumerate(self.events) if event in said)
        return {step["urn"]: place for place, step in steps if step["op"] == operation}


@dataclass(frozen=True)
class Engine:
    """One stack in a project of its own.

    Attributes:
        project: copy of the project: stack files copied, code linked.
        cloud: where the stand-ins keep their resources.
        state: the engine's file backend.
        stack: the stack's name.
        env: environment of every command.
    """

    project: Path
    cloud: Path
    state: Path
    stack: str
    env: dict[str, str]

    def run(self, command: str, *options: str) -> Outcome:
        """Runs `pulumi <command>` on the stack, unattended, and collects the engine's events."""
        words = ["pulumi", command, "--stack", self.stack, "--non-interactive", "--json", *options]
        status, stdout, stderr = run_limited(words, self.env, self.project)
        return Outcome(status, tuple(json.loads(line) for line in stdout.splitlines() if line[:1] == "{"), stderr)

    def applied(self, command: str, *options: str) -> Outcome:
        """Runs a command that changes things, without asking and without a preview before it, and that must succeed."""
        outcome = self.run(command, "--yes", "--skip-preview", *options)
        assert outcome.status == 0, outcome.text
        return outcome

    def plain(self, *words: str) -> str:
        """Runs a command of the CLI that prints text and must succeed; returns the text."""
        status, stdout, stderr = run_limited(["pulumi", *words, "--non-interactive"], self.env, self.project)
        assert status == 0, stdout + stderr
        return stdout

    def set_clock(self, later_sec: float) -> None:
        """The program finds itself so many seconds later than now; negative: earlier."""
        folder = self.project.with_name("clock")
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(CLOCK.format(seconds=later_sec), "utf-8")
        self.env["PYTHONPATH"] = os.pathsep.join([str(folder), self.env.get("PYTHONPATH", "")])

    @property
    def file(self) -> Path:
        """The stack file's copy."""
        return self.project / "stacks" / f"Pulumi.{self.stack}.yaml"

    def change(self, edit: Callable[[dict[str, Any]], None]) -> None:
        """Edits the configuration in the stack file's copy."""
        content = yaml.safe_load(self.file.read_text("utf-8"))
        edit(content["config"])
        self.file.write_text(yaml.safe_dump(content), "utf-8")

    def put(self, id_: str, name: str) -> Path:
        """Puts an object into a bucket of the stand-ins' cloud; its file, to delete it by."""
        file = self.cloud / f"{hashlib.sha256(f'content|{name}'.encode()).hexdigest()}.json"
        record = {"type": "content", "id": name, "urn": "", "inputs": {"in": id_}, "outputs": {}}
        file.write_text(json.dumps(record), "utf-8")
        return file

    def resources(self) -> list[dict[str, Any]]:
        """What the stand-ins' cloud holds."""
        return [json.loads(file.read_text("utf-8")) for file in sorted(self.cloud.glob("*.json"))]


def _copy_project(project: Path) -> None:
    """Links the code, so that tracebacks and coverage name the repository's files; copies what the engine writes."""
    (project / "stacks").mkdir(parents=True)
    shutil.copy(REPOSITORY / "Pulumi.yaml", project)
    (project / ".venv").symlink_to(sys.prefix)
    # As `make` links it: Pulumi starts dynamic providers in the program's folder, and looks for the environment there.
    (project / "stacks" / ".venv").symlink_to(Path("..", ".venv"))
    for read_by_the_image in (".dockerignore", "images", "trainer"):
        (project / read_by_the_image).symlink_to(REPOSITORY / read_by_the_image)
    for source in (REPOSITORY / "stacks").iterdir():
        if source.name == ".venv":
            continue
        target = project / "stacks" / source.name
        if source.suffix == ".yaml":
            shutil.copy(source, target)
        else:
            target.symlink_to(source)


def _sandbox(folder: Path, project: Path, stack: str) -> Engine:
    """An engine with nothing behind it yet, in which `stack` is initialised."""
    cloud, state = folder / "cloud", folder / "state"
    for empty in (cloud, state):
        empty.mkdir()
    # A person's login, configuration or credentials must not decide what these tests see.
    strange = ("AWS_", "PULUMI_", "GOOGLE_", "CLOUDSDK_", "AZURE_", "ARM_", "OS_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(strange)}
    cli = find_cli()
    assert cli is not None, "need_cli has looked for it"
    # A language host beside the CLI is preferred to the stand-in.
    path = [str(HERE / "standin"), f"{sys.prefix}/bin", str(cli), os.environ["PATH"], str(HERE / "host")]
    env = {
        **kept,
        "PATH": os.pathsep.join(path),
        "GANGWAY_STANDIN_STATE": str(cloud),
        "PULUMI_BACKEND_URL": state.as_uri(),
        "PULUMI_CONFIG_PASSPHRASE": "engine-tests",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        "PULUMI_ENABLE_STREAMING_JSON_PREVIEW": "true",
        "PULUMI_HOME": str(folder / "home"),
        "PULUMI_SKIP_UPDATE_CHECK": "true",
    }
    engine = Engine(project, cloud, state, stack, env)
    engine.plain("stack", "init", stack)
    return engine


def _need_cli() -> Path:
    folder = find_cli()
    if folder is None:
        pytest.skip("no Pulumi CLI: install it, or build it with `make pulumi`, to run tests under the real engine")
    return folder


@pytest.fixture
def need_cli() -> Path:
    """The folder of the CLI; skips the test where there is none."""
    return _need_cli()


@pytest.fixture
def make_engine(tmp_path: Path, azure_vm: Any, fsx: Any) -> Callable[[str], Engine]:
    """Makes an Engine with the named stack initialised; Azure's APIs and FSx's, as far as the program and providers of
    ours ask them, are stand-ins.
    """
    _need_cli()
    azure_vm.new_passwords = True

    def make(stack: str) -> Engine:
        project = tmp_path / "project"
        _copy_project(project)
        engine = _sandbox(tmp_path, project, stack)
        engine.env["GANGWAY_API_URL"] = azure_vm.url
        azure_vm.tagged = lambda: [
            {"id": one["id"], "type": one["outputs"].get("type", ""), "tags": one["inputs"].get("tags") or {}}
            for one in engine.resources()
        ]
        engine.env.update(AWS_ENDPOINT_URL_FSX=fsx.url, AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b")
        if stack.startswith(("azure-", "aks-", "gcp-", "gke-")):
            engine.change(_hurry)
        return engine

    return make


def _hurry(config: dict[str, Any]) -> None:
    """A stand-in's cloud heeds a grant at once; that there is a wait at all is part of what is tried."""
    wait = {"azure": "role_wait_sec", "gcp": "grant_wait_sec"}[config["gangway:provider"]]
    config[f"gangway:{config['gangway:provider']}"][wait] = 1


PYTHON_PROJECT = """
name: gangway
runtime: {name: python, options: {toolchain: pip, virtualenv: .venv}}
"""


@pytest.fixture
def make_program_engine(make_engine: Callable[[str], Engine]) -> Callable[[str, dict[str, Any]], Engine]:
    """Makes an Engine for a Python program, which can import `components` and read its arguments from args.json."""

    def make(program: str, args: dict[str, Any]) -> Engine:
        engine = make_engine("dev")
        shutil.rmtree(engine.project / "stacks")
        for linked in ("images", "trainer", ".dockerignore"):
            (engine.project / linked).unlink()
        (engine.project / "components").symlink_to(REPOSITORY / "components")
        (engine.project / "Pulumi.yaml").write_text(PYTHON_PROJECT, "utf-8")
        (engine.project / "__main__.py").write_text(program, "utf-8")
        (engine.project / "args.json").write_text(json.dumps(args), "utf-8")
        return engine

    return make


@pytest.fixture
def make_yaml_engine(tmp_path: Path) -> Callable[[str], Engine]:
    """Makes an Engine for a Pulumi program in YAML, in a folder beside one `gangway` with the components."""
    _need_cli()
    if shutil.which("pulumi-language-yaml") is None:
        pytest.skip("pulumi-language-yaml is not on PATH: install the whole Pulumi CLI")

    def make(program: str) -> Engine:
        project, gangway = tmp_path / "program", tmp_path / "gangway"
        for folder in (project, gangway / ".venv"):
            folder.mkdir(parents=True)
        (project / "Pulumi.yaml").write_text(program, "utf-8")
        (gangway / "components").symlink_to(REPOSITORY / "components")
        # The plugin's environment as `pulumi package add` would make it; nobody installs anything here.
        (gangway / ".venv" / "plugin").symlink_to(sys.prefix)
        return _sandbox(tmp_path, project, "dev")

    return make


@pytest.fixture
def standin(load_module: Callable[[Path], Any]) -> Iterator[Any]:
    """The running stand-in of the TPU API."""
    with load_module(REPOSITORY / "tests/tpu_standin.py").TpuStandin() as running:
        yield running


@pytest.fixture(scope="session")
def running_plugin(load_module: Callable[[Path], Any]) -> Callable[..., AbstractContextManager[Any]]:
    """Runs the stand-in of a package over a folder, for whoever speaks to it without the engine; see plugins.py."""
    started: Callable[..., AbstractContextManager[Any]] = load_module(HERE / "plugins.py").running
    return started


@pytest.fixture(scope="session")
def queue_life(load_module: Callable[[Path], Any]) -> Any:
    """The phases of a cluster with a queue; see queue_life.py."""
    return load_module(HERE / "queue_life.py")


@pytest.fixture(
    params=sorted(
        name
        for file in (REPOSITORY / "stacks").glob("Pulumi.*.yaml")
        # Machines that are there already are no cloud: test_hosts.py, test_hosts_slurm.py; a cluster with a queue has
        # no job: test_aks.py, test_eks.py, test_gke.py; what brings its resources needs them: test_existing_*.py.
        if not (name := file.stem.removeprefix("Pulumi.")).startswith(("hosts-", "eks-", "gke-", "aks-"))
        and not name.endswith("-existing")
    )
)
def engine(
    request: pytest.FixtureRequest, make_engine: Callable[[str], Engine], standin: Any, running_plugin: Any
) -> Iterator[Engine]:
    """Every stack of the repository in turn; on Google Cloud the queue of TPUs is the stand-in's.

    The stand-in for the provider's plugin runs all the while: to read its SDK takes longer than what it then does.
    """
    made = make_engine(request.param)

    def ask_the_standin(config: dict[str, Any]) -> None:
        if "gangway:gcp" in config:
            config["gangway:gcp"]["tpu_api_url"] = standin.url

    made.change(ask_the_standin)
    package = {"azure": "azure-native"}.get(provider := request.param.partition("-")[0], provider)
    with running_plugin(package, made.cloud) as plugin:
        made.env["PULUMI_DEBUG_PROVIDERS"] = f"{package}:{plugin.port}"
        yield made


@pytest.fixture
def set_value() -> Callable[[str, Any], Callable[[dict[str, Any]], None]]:
    """Makes an edit that sets `a.b.c` in the `gangway:` namespace; None removes it."""

    def make(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
        first, *rest = path.split(".")
        *parents, last = (f"gangway:{first}", *rest)

        def edit(config: dict[str, Any]) -> None:
            place = config
            for parent in parents:
                place = place[parent]
            if value is None:
                del place[last]
            else:
                place[last] = value

        return edit

    return make
