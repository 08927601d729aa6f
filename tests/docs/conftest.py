"""A copy of the checkout in which commands are typed, and the shell that they are typed into."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent.parent
COPIED = (
    *("components", "examples", "gangway", "images", "stacks", "tools", "trainer"),
    *("Makefile", "Pulumi.yaml", "pyproject.toml"),
)
SAMPLES = (Path("tests/gangway/finops/bill/samples"), Path("tests/stacks/providers/toy"))
"""What pages use of the tests."""
TIMEOUT_SEC = 240
WIDTH = 112
"""Columns that printed tables have on the pages."""

Shell = Callable[[str, Path, Mapping[str, str]], subprocess.CompletedProcess[str]]


def _run(command: str, folder: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Types a command; what it says on either stream is in `stdout`. Nothing that it has begun outlives it."""
    argv = ["bash", "-c", command]
    with subprocess.Popen(
        argv,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=TIMEOUT_SEC)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(argv, process.returncode, output)


def copy_checkout(folder: Path) -> Path:
    """Copies what a checkout holds, as far as commands of the pages use it."""
    for name in COPIED:
        source = REPO / name
        if source.is_dir():
            # Compiled modules come along: their times still fit.
            shutil.copytree(source, folder / name, symlinks=True, ignore=shutil.ignore_patterns(".venv"))
        else:
            shutil.copy2(source, folder / name)
    for samples in SAMPLES:
        shutil.copytree(REPO / samples, folder / samples, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


def content_of(folder: Path) -> dict[str, int]:
    """What lies there and when it was written, but for what Python compiles."""
    paths = (path for path in folder.rglob("*") if "__pycache__" not in path.parts and not path.is_symlink())
    return {path.relative_to(folder).as_posix(): path.stat().st_mtime_ns for path in paths if path.is_file()}


@pytest.fixture(scope="session")
def shared_checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_checkout(tmp_path_factory.mktemp("checkout"))


@pytest.fixture
def workplace(shared_checkout: Path) -> Iterator[Path]:
    """The shared copy; afterwards what was made in it is gone, and what was changed is as it was."""
    before = content_of(shared_checkout)
    yield shared_checkout
    after = content_of(shared_checkout)
    for made in after.keys() - before.keys():
        (shared_checkout / made).unlink()
    for changed in (name for name, written in before.items() if after.get(name) != written):
        shutil.copy2(REPO / changed, shared_checkout / changed)
    for folder in sorted((path for path in shared_checkout.rglob("*") if path.is_dir()), reverse=True):
        if not folder.is_symlink() and not any(folder.iterdir()):
            folder.rmdir()
    assert content_of(shared_checkout) == before


@pytest.fixture
def environment(workplace: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of a shell in the copy: its code, no account, no settings of whoever runs the tests."""
    kept = {name: os.environ[name] for name in ("LANG", "LC_ALL", "TMPDIR") if name in os.environ}
    return {
        **kept,
        "PATH": f"{workplace}/.venv/bin:{os.environ['PATH']}",
        "PYTHONPATH": str(workplace),
        "HOME": str(tmp_path_factory.mktemp("home")),
        "COLUMNS": str(WIDTH),
        "GANGWAY_PRICES": "none",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "CUDA_VISIBLE_DEVICES": "",
    }


@pytest.fixture(scope="session")
def run() -> Shell:
    """Types a command in a folder, with an environment."""
    return _run
