"""A real Slurm and a real Kubernetes for this folder's tests, where there can be one."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests import kube_cluster
from tests.kube_cluster import KubeCluster, KubeQueue, kubernetes
from tests.slurm_cluster import SlurmCluster, slurm, why_not


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
