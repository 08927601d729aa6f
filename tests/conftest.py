"""What every test starts from: no cloud credentials, one torch thread, a fresh Pulumi runtime; and EC2's metadata
service in small.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import settings

REPO = Path(__file__).resolve().parent.parent
FIRST = {"docs": 0, "trainer": 0, "engine": 0, "images": 0, "gangway": 1, "stacks": 1}
"""The order of folders, those whose tests start processes before the others."""
UNINTERRUPTED = frozenset({"trainer/checkpoint/test_resume.py", "trainer/test_clouds.py", "trainer/test_faults.py"})
"""Files whose tests compare with the same run, which takes as long as several of them."""


def group_of(nodeid: str) -> str:
    """What one worker has to itself, so that it makes once what its tests share.

    A file; below gangway and stacks a folder, whose files plan the same stacks.
    """
    path = nodeid.partition("::")[0].removeprefix("tests/")
    if path in UNINTERRUPTED:
        return "uninterrupted"
    folder = path.rpartition("/")[0]
    return folder if folder.startswith(("gangway/", "stacks/")) else path


# How long an example takes depends on the machine and on whether a cloud's SDK is loaded yet: never a reason to fail.
# Continuous integration tries the same few examples each time, so that it judges the change; every other run explores.
settings.register_profile("gangway", deadline=None, max_examples=60)
settings.register_profile("ci", settings.get_profile("gangway"), derandomize=True, max_examples=25)
settings.register_profile("deep", settings.get_profile("gangway"), max_examples=250)  # of `make test-all`
settings.load_profile("ci" if "CI" in os.environ else "gangway")


def pytest_configure(config: pytest.Config) -> None:
    """Sets what has to stand before torch and a cloud's SDK are imported."""
    config.pluginmanager.register(_load(Path(__file__).with_name("attack_table.py")))
    if find_spec("pulumi") is not None:  # .venv-xla has none of it
        config.pluginmanager.register(_load(Path(__file__).with_name("stack_fixtures.py")))
    # The SDK warns of its own deprecated resources when it is imported, whichever of them are used.
    config.addinivalue_line("filterwarnings", r"ignore::DeprecationWarning:pulumi_aws\..*")
    config.addinivalue_line("filterwarnings", r"ignore::DeprecationWarning:pulumi_gcp\..*")
    config.addinivalue_line("filterwarnings", r"ignore::DeprecationWarning:pulumi_command\..*")
    config.addinivalue_line("filterwarnings", r"ignore::DeprecationWarning:pulumi_openstack\..*")
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    # Here as well, since some modules load a catalogue while they are collected.
    os.environ["GANGWAY_PRICES"] = "none"
    # nohup, or a shell's background, ignores these for all children too: a function ignores them for pytest alone.
    for number in (signal.SIGHUP, signal.SIGINT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


@pytest.hookimpl(optionalhook=True)  # .venv-xla has no pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Gives a group's tests to one worker, under --dist loadgroup.

    By their files, since pytest-xdist 3.8 writes the groups of its own marker where pytest 9.2 does not read them.
    """
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # has no types

    scheduler = LoadScopeScheduling(config, log)
    scheduler._split_scope = group_of
    return scheduler


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest groups are begun first, so that at the end no worker waits for another's."""
    items.sort(key=lambda item: FIRST.get(item.path.relative_to(REPO / "tests").parts[0], len(FIRST)))


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test may reach an account, or read the configuration of the shell it was started from."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "PULUMI_", "GANGWAY_")) and name != "GANGWAY_UPDATE_GOLDEN":
            monkeypatch.delenv(name)
    # Whose prices are the developer's own: no test may depend on them.
    monkeypatch.setenv("GANGWAY_PRICES", "none")


@pytest.fixture(autouse=True)
def _fresh_pulumi_runtime() -> Iterator[None]:
    """Takes mocks, configuration and root resource away again after a test that set them."""
    yield
    if "pulumi" in sys.modules:
        from pulumi import runtime

        runtime.settings.reset_options(project="project", stack="stack")
        runtime.set_all_config({})


@pytest.fixture(autouse=True)
def _one_torch_thread() -> None:
    """Two test processes on two cores: more threads only wait for each other."""
    if "torch" in sys.modules:
        import torch

        torch.set_num_threads(1)


@pytest.fixture(scope="session")
def repo() -> Path:
    """The repository's root."""
    return REPO


@pytest.fixture(scope="session")
def demo_file() -> Path:
    """The stack file that the README and `gangway demo` use."""
    return REPO / "stacks" / "Pulumi.aws-demo.yaml"


class Imds:
    """EC2's instance metadata, version 2, in small: no token, no answer.

    Attributes:
        items: what there is besides 404.
        answers: items that change: one answer after another, the last for ever; None is 404.
        tokens: those that are still good.
        requests: the items asked for.
        status: of every answer but 404.
    """

    def __init__(self) -> None:
        self.items = {"instance-id": "i-0123456789abcdef0", "autoscaling/target-lifecycle-state": "InService"}
        self.answers: dict[str, list[str | None]] = {}
        self.tokens: list[str] = []
        self.requests: list[str] = []
        self.status = 200
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                if self.path != "/latest/api/token" or not self.headers["X-aws-ec2-metadata-token-ttl-seconds"]:
                    self._reply(400)
                    return
                stand_in.tokens.append(f"token-{time.monotonic_ns()}")
                self._reply(200, stand_in.tokens[-1])

            def do_GET(self) -> None:
                item = self.path.removeprefix("/latest/meta-data/")
                if self.headers["X-aws-ec2-metadata-token"] not in stand_in.tokens:
                    self._reply(401)
                    return
                stand_in.requests.append(item)
                answer = stand_in.answer(item)
                self._reply(404 if answer is None else stand_in.status, answer or "")

            def _reply(self, status: int, text: str = "") -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
                """Keep the test output clean."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, item: str) -> str | None:
        """What is there now."""
        if item not in self.answers:
            return self.items.get(item)
        left = self.answers[item]
        return left.pop(0) if len(left) > 1 else left[0]


@pytest.fixture
def imds() -> Iterator[Imds]:
    stand_in = Imds()
    thread = threading.Thread(target=stand_in.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield stand_in
    stand_in.server.shutdown()
    thread.join()
    stand_in.server.server_close()


def _load(path: Path) -> ModuleType:
    """A module of tests by its file: with importlib's import mode they cannot import each other."""
    name = f"gangway_tests_{path.stem}"
    if name not in sys.modules:
        spec = spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def load_module() -> Callable[[Path], ModuleType]:
    """Loads what several test modules share, by its file."""
    return _load


def _serving(name: str) -> Iterator[Any]:
    """What a module of tests starts, which is stopped after the test."""
    stand_in, thread = _load(Path(__file__).with_name(name)).started()
    yield stand_in
    stand_in.server.shutdown()
    thread.join()
    stand_in.server.server_close()


@pytest.fixture
def gce() -> Iterator[Any]:
    """Google's metadata server and APIs in small; see tests/gce_standin.py."""
    yield from _serving("gce_standin.py")


@pytest.fixture
def compute() -> Iterator[Any]:
    """Compute Engine's instances and images in small; see tests/compute_standin.py."""
    yield from _serving("compute_standin.py")


@pytest.fixture
def azure_vm() -> Iterator[Any]:
    """Azure's metadata service and APIs in small, as a machine sees them; see tests/azure_standin.py."""
    yield from _serving("azure_standin.py")


@pytest.fixture
def fsx(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """FSx's tasks in small, which every client of it is told of; see tests/fsx_standin.py."""
    with _load(Path(__file__).with_name("fsx_standin.py")).serving() as stand_in:
        settings = {"AWS_ENDPOINT_URL_FSX": stand_in.url, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        yield stand_in


@pytest.fixture
def swift() -> Iterator[Any]:
    """Keystone and Swift in small, as a machine on OpenStack sees them; see tests/openstack_standin.py."""
    yield from _serving("openstack_standin.py")


@pytest.fixture(scope="session")
def arm_models() -> ModuleType:
    """Microsoft's own management models, by the resources of Pulumi's provider; see tests/arm_models.py."""
    return _load(Path(__file__).with_name("arm_models.py"))


@pytest.fixture(scope="session")
def as_model(arm_models: ModuleType) -> Callable[[Any, Mapping[str, Any]], Any]:
    """Makes an instance of a management model from inputs as they are on the wire; fails on what it does not know."""
    found: Callable[[Any, Mapping[str, Any]], Any] = arm_models.as_model
    return found


@pytest.fixture(scope="session")
def arm_mistakes(arm_models: ModuleType) -> Callable[[Any], list[str]]:
    """What Microsoft's models say against the resources of a declaration, or of a recording."""

    def find(made: Any) -> list[str]:
        found: list[str] = arm_models.mistakes_in(made.resources)
        return found

    return find
