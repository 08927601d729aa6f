"""A real Slurm and a real Kubernetes for this folder's tests, where there can be one; and what the contract came to."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests import kube_cluster
from tests.kube_cluster import KubeCluster, KubeQueue, kubernetes
from tests.slurm_cluster import SlurmCluster, slurm, why_not

_ENGINES = ("local", "systemd", "slurm", "kubernetes")
_OF_CONTRACT = re.compile(rf"test_contract\.py::test_(\w+)\[({'|'.join(_ENGINES)})(?:-(.+))?\]")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """With -v, each test of the engines' contract in a line, by engine."""
    found = dict[str, dict[str, str]]()
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, ()):
            if match := _OF_CONTRACT.search(getattr(report, "nodeid", "")):
                name, engine, case = match.groups()
                row = f"{name.replace('_', ' ')}{f' ({case})' if case else ''}"
                found.setdefault(row, {})[engine] = outcome
    if not found or config.getoption("verbose") < 1:
        return
    terminalreporter.section("the contract, by engine")
    width = max(map(len, found))
    terminalreporter.write_line("  ".join([" " * width, *(f"{engine:<10}" for engine in _ENGINES)]).rstrip())
    for row, outcomes in found.items():
        told = (f"{outcomes.get(engine, '-'):<10}" for engine in _ENGINES)
        terminalreporter.write_line("  ".join([f"{row:<{width}}", *told]).rstrip())


@pytest.fixture(scope="session")
def standing_cluster() -> Iterator[SlurmCluster]:
    if why := why_not():
        pytest.skip(why)
    # munged's socket has a short name, and a folder that nobody else may write to.
    with TemporaryDirectory(prefix="gw-slurm-", ignore_cleanup_errors=True) as folder, slurm(Path(folder)) as made:
        yield made


@pytest.fixture
def cluster(standing_cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    """Empty, and found by Slurm's commands."""
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, standing_cluster.env[name])
    yield standing_cluster
    standing_cluster.reset()


@pytest.fixture(scope="session")
def standing_kubernetes() -> Iterator[KubeCluster]:
    if why := kube_cluster.why_not():
        pytest.skip(why)
    with TemporaryDirectory(prefix="gw-kube-", ignore_cleanup_errors=True) as folder, kubernetes(Path(folder)) as made:
        yield made


@pytest.fixture
def kube_queue(standing_kubernetes: KubeCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubeQueue]:
    """A namespace with a queue of one CPU, found by kubectl."""
    monkeypatch.setenv("KUBECONFIG", str(standing_kubernetes.kubeconfig))
    queue = standing_kubernetes.queue(cpus=1)
    yield queue
    standing_kubernetes.remove(queue)
    assert standing_kubernetes.kubelet.broken == []


@pytest.fixture
def by_another(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Whose environment it is from then on; until then it is the submitter's."""
    monkeypatch.setenv("MINE", "a b\nä=c")

    def begin() -> None:
        monkeypatch.delenv("MINE")
        monkeypatch.setenv("THEIRS", "s3cr3t")

    return begin
