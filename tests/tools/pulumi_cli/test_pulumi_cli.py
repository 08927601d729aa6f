"""The build of the Pulumi CLI: what is found, what is built once, what a failed build leaves. Go is a stand-in."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

GO = """#!/bin/sh
echo "$1" >> "$GO_LOG"
case "$1 $2" in
"list -deps") echo "one two" ;;
"list -m") echo "$GO_SDK" ;;
build*)
    echo one >&2
    [ -z "$GO_FAILS" ] || { echo "one.go:1: no such thing" >&2; exit 1; }
    for word in "$@"; do [ "$last" = -o ] && out=$word; last=$word; done
    echo built > "$out" ;;
esac
"""
Run = Callable[..., subprocess.CompletedProcess[str]]


def _program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(text, "utf-8")
    path.chmod(0o755)


@pytest.fixture
def run(tmp_path: Path, repo: Path) -> Run:
    """Runs the tool with a `go` that only writes down what is asked of it."""
    _program(tmp_path / "go" / "go", GO)
    for helper in ("python/cmd/pulumi-language-python-exec", "python/dist/pulumi-resource-pulumi-python"):
        _program(tmp_path / "sdk" / helper, "")
        (tmp_path / "sdk" / helper).chmod(0o444)  # as Go's module cache has it
    plain = f"{tmp_path / 'bin'}:/usr/bin:/bin"

    def run(path: str = f"{tmp_path / 'go'}:{plain}", **env: str) -> subprocess.CompletedProcess[str]:
        variables = {
            "XDG_CACHE_HOME": str(tmp_path / "cache"), "GO_LOG": str(tmp_path / "log"), "GO_SDK": str(tmp_path / "sdk"),
            "PATH": path, **env,
        }  # fmt: skip
        argv = [sys.executable, "-m", "tools.pulumi_cli"]
        return subprocess.run(argv, cwd=repo, env=variables, capture_output=True, text=True, check=False)

    return run


def test_a_build_is_kept(run: Run, tmp_path: Path) -> None:
    first = run()
    folder = Path(first.stdout.strip())
    assert first.returncode == 0, first.stderr
    names = {"pulumi", "pulumi-language-python-exec", "pulumi-resource-pulumi-python"}
    assert {file.name for file in folder.iterdir()} == names
    assert all(stat.S_IXUSR & file.stat().st_mode for file in folder.iterdir() if file.name != "pulumi")
    (tmp_path / "log").unlink()
    assert Path(run().stdout.strip()) == folder
    assert not (tmp_path / "log").exists(), "Go is not asked a second time"


def test_an_installed_cli_is_preferred(run: Run, tmp_path: Path) -> None:
    _program(tmp_path / "bin" / "pulumi", "")
    assert run().stdout.strip() == str(tmp_path / "bin")
    assert not (tmp_path / "log").exists()


def test_without_go_it_says_what_to_install(run: Run, tmp_path: Path) -> None:
    missing = run(path=str(tmp_path / "bin"))
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "install" in missing.stderr
    assert not (tmp_path / "cache").exists()


def test_a_failed_build_shows_why_and_leaves_nothing(run: Run, tmp_path: Path) -> None:
    failed = run(GO_FAILS="yes")
    assert (failed.returncode, failed.stdout) == (2, "")
    assert "one.go:1: no such thing" in failed.stderr
    assert [file.suffix for file in (tmp_path / "cache" / "gangway").iterdir()] == [".lock"]
    assert run().returncode == 0, "the next one begins anew"


def test_the_cli_is_not_older_than_the_sdk(repo: Path) -> None:
    """Pulumi supports an older SDK under a newer engine, not the reverse."""
    from importlib.metadata import version

    from tools.pulumi_cli.__main__ import cli_version

    cli, sdk = ([int(number) for number in text.split(".")] for text in (cli_version(), version("pulumi")))
    assert cli[0] == sdk[0]
    assert cli >= sdk, "tools/pulumi_cli/go.mod is behind requirements.lock"
    assert os.access(repo / "tests/engine/host/pulumi-language-python", os.X_OK)
