"""A real Slurm for this folder's tests, where there can be one."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest

from tests.slurm_cluster import SlurmCluster, slurm, why_not


@pytest.fixture(scope="session")
def standing_cluster() -> Iterator[SlurmCluster]:
    if why := why_not():
        pytest.skip(why)
    # munged's socket has a short name, and a folder that nobody else may write to.
    with slurm(Path(mkdtemp(prefix="gw-slurm-"))) as made:
        yield made


@pytest.fixture
def cluster(standing_cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    """Empty, and found by Slurm's commands."""
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, standing_cluster.env[name])
    yield standing_cluster
    standing_cluster.reset()
