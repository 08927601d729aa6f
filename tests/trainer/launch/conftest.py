"""Keys of jobs, made once: by openssl, as a user would."""

from pathlib import Path

import pytest

from trainer.drill.cluster import make_key
from trainer.launch.member_key import MemberKey


@pytest.fixture(scope="session")
def job_pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job's key; read only."""
    path = tmp_path_factory.mktemp("key") / "job.pem"
    make_key(path)
    return path


@pytest.fixture(scope="session")
def other_pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another job's."""
    path = tmp_path_factory.mktemp("other-key") / "job.pem"
    make_key(path)
    return path


@pytest.fixture(scope="session")
def key(job_pem: Path) -> MemberKey:
    return MemberKey.read(job_pem)


@pytest.fixture(scope="session")
def other_key(other_pem: Path) -> MemberKey:
    return MemberKey.read(other_pem)
