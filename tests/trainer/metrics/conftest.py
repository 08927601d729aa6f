"""What the tests of the quality metrics share: one worker, and a weights file of random values in the true shapes."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gangway.trainer.distributed.world import World
from gangway.trainer.metrics import inception
from tools.bench.feature_speed import write_random_weights


@pytest.fixture(scope="session")
def alone() -> World:
    """The only worker."""
    return World(0, 0, 1, 0, 1, torch.device("cpu"), "none", "one process")


@pytest.fixture(scope="session")
def random_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """RANDOM values, not the published weights: fit to compare two computations, and for nothing else."""
    path = tmp_path_factory.mktemp("weights") / "random-not-the-published-weights.pth"
    write_random_weights(path)
    return path


@pytest.fixture
def accept_random_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes any file for the published Inception weights."""
    monkeypatch.setattr(inception, "INCEPTION", replace(inception.INCEPTION, sha256_prefix=""))
