"""`gangway image build`: what it refuses, what it shows, and what it prints and writes after a build."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gangway.cli.main import app
from gangway.components.core.findings import InputError
from gangway.live.image_build import local, remote
from gangway.stacks.loading.loader import from_file

ECR = "123456789012.dkr.ecr.us-east-2.amazonaws.com/gan/trainer"
DIGEST = f"sha256:{'0123456789abcdef' * 4}"
Run = Callable[..., Any]


@pytest.fixture
def stack(repo: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(repo / "stacks" / "Pulumi.aws-demo.yaml", tmp_path))


@pytest.fixture
def run(stack: Path) -> Run:
    def call(*words: str) -> Any:
        return CliRunner().invoke(app, ["image", "build", str(stack), *words])

    return call


def test_a_dry_run_needs_neither_docker_nor_a_cloud(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "which", lambda _: None)
    done = run("--dry-run", "--repository", ECR)
    assert done.exit_code == 0
    assert f"--tag {ECR}:content-" in done.stdout
    assert "the build service of aws" in run("--dry-run", "--remote", "--repository", ECR).stdout


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ((), "--repository"),
        (("--repository", "trainer"), "--repository"),
        (("--repository", f"{ECR}:tag"), "--repository"),
        (("--remote", "--no-push", "--repository", ECR), "--no-push"),
        (("--write", "--no-push", "--repository", ECR), "--write"),
        (("--remote", "--bucket", "b", "--repository", ECR), "--bucket"),
    ],
)
def test_what_contradicts_is_refused(run: Run, words: tuple[str, ...], place: str) -> None:
    problem = run(*words).exception
    assert isinstance(problem, InputError)
    assert problem.place == place
    assert problem.fix


def test_a_local_build_prints_the_line_and_writes_it(run: Run, stack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "need_engine", lambda: "docker")
    monkeypatch.setattr(local, "build", lambda context, engine: None)
    monkeypatch.setattr(local, "push", lambda context, engine: DIGEST)
    before = stack.read_text()
    done = run("--local", "--write", "--repository", ECR)
    assert done.stdout.splitlines() == [f"digest: {DIGEST}", f"gangway:image: {{prebuilt: {ECR}@{DIGEST}}}"]
    assert from_file(stack).image.prebuilt == f"{ECR}@{DIGEST}"
    lines = stack.read_text().splitlines()
    assert [line for line in lines if line in before.splitlines()] == before.splitlines(), "every line stays"
    assert run("--dry-run").exit_code == 0, "the next one takes the repository from the stack file"


def test_without_push_nothing_is_pushed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "need_engine", lambda: "docker")
    monkeypatch.setattr(local, "build", lambda context, engine: None)
    assert "not pushed" in run("--local", "--no-push", "--repository", ECR).stdout


def test_a_remote_build_is_followed_on_stderr(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def follow(build: Any, timeout_sec: int, echo: Callable[[str], None]) -> str:
        echo(f"{build.service}: {timeout_sec} s")
        return DIGEST

    monkeypatch.setattr(remote, "run_build", follow)
    done = run("--remote", "--timeout-minutes", "5", "--repository", ECR)
    assert done.stderr == "CodeBuild: 300 s\n"
    assert done.stdout.startswith(f"digest: {DIGEST}\n")
