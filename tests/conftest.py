"""What every test starts from: no cloud credentials, one torch thread, a Pulumi runtime nobody has used before."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

REPO = Path(__file__).resolve().parent.parent

# How long an example takes depends on the machine and on whether a cloud's SDK is loaded yet: never a reason to fail.
# Continuous integration tries the same examples each time, so that it judges the change; every other run explores.
settings.register_profile("gangway", deadline=None, max_examples=60, derandomize="CI" in os.environ)
settings.load_profile("gangway")


def pytest_configure(config: pytest.Config) -> None:
    """Sets what has to stand before torch and a cloud's SDK are imported."""
    # The SDK warns of its own deprecated resources when it is imported, whichever of them are used.
    config.addinivalue_line("filterwarnings", r"ignore::DeprecationWarning:pulumi_aws\..*")
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test may reach an account, or read the configuration of the shell it was started from."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "PULUMI_", "GANGWAY_")) and name != "GANGWAY_UPDATE_GOLDEN":
            monkeypatch.delenv(name)


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
