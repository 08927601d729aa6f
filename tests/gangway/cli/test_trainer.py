"""The trainer's commands under `gangway`: arguments, help and exit codes are the trainer's own."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gangway.cli import main as cli
from gangway.trainer.core.host import COMMANDS


def gangway(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gangway.cli", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


def test_a_run_is_trained_and_judged_by_the_command_it_prints(repo: Path, tmp_path: Path) -> None:
    """With data that was prepared elsewhere."""
    data, run = tmp_path / "prepared here", tmp_path / "run"
    prepared = gangway("data", "prepare", "digits", "--resolution", "16", "--out", str(data), cwd=repo)
    assert prepared.returncode == 0, prepared.stderr
    small = ["--resolution", "16", "--batch-size", "8", "--kimg", "0.008", "--ngf", "8", "--ndf", "8"]
    trained = gangway(
        *("train", "--preset", "dcgan-digits", *small, "--metrics", "none", "--metrics-kimg", "0"),
        *("--data", str(data), "--run-dir", str(run)),
        cwd=repo,
    )
    assert trained.returncode == 0, trained.stderr
    printed = trained.stdout.rpartition("or judge it: python -m gangway.trainer ")[2].strip()
    assert printed == f"evaluate --run-dir {run} --data '{data}'"
    judged = subprocess.run(
        f"{sys.executable} -m gangway.cli {printed} --metrics fd-enl0 --samples 16",
        cwd=repo, shell=True, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert judged.returncode == 0, judged.stderr
    assert "FD-ENL0" in judged.stdout


@pytest.mark.parametrize("arguments", [("train", "--prset", "x"), ("presets", "nosuch"), ("data", "prepare", "nosuch")])
def test_a_mistake_ends_as_in_the_trainer(arguments: tuple[str, ...], repo: Path) -> None:
    done = gangway(*arguments, cwd=repo)
    assert done.returncode == 2
    assert "fix:" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_names_every_command_of_the_trainer_and_the_version_is_said() -> None:
    shown = CliRunner().invoke(cli.app, ["-h"], terminal_width=100).stdout
    assert all(f" {name} " in shown for name in COMMANDS)
    for command in (["plan", "-h"], ["bench", "-h"], ["prices", "show", "-h"]):
        assert CliRunner().invoke(cli.app, command).exit_code == 0
    version = CliRunner().invoke(cli.app, ["--version"])
    assert version.exit_code == 0
    assert version.stdout.startswith("gangway 0.")


@pytest.mark.parametrize("preset", ["r3gan-ffhq256", "r3gan-imagenet64"])
def test_a_preset_is_told_with_what_it_takes_on_machines(preset: str) -> None:
    shown = CliRunner().invoke(cli.app, ["presets", preset])
    assert shown.exit_code == 0
    assert "projected, not measured" in shown.stdout
    for machine in ("A100-80Gx8", "H100x8", "H200x8"):
        assert re.search(rf"^{machine} .* GiB .*\$", shown.stdout, re.MULTILINE), shown.stdout
    demo = CliRunner().invoke(cli.app, ["presets", "cyclegan-photos"])
    assert demo.exit_code == 0
    assert "H100x8" not in demo.stdout, "one image in a step is none for eight workers"
