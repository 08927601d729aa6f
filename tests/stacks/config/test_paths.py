"""What an installed Gangway's processes find on their path, and what a user's do."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from stacks.config import paths
from stacks.config.paths import ROOT, module_environment, user_environment


@pytest.mark.parametrize("before", [None, "", "/mine", f"/mine{os.pathsep}{ROOT}"])
def test_modules_are_ours_wherever_they_begin(before: str | None, tmp_path: Path) -> None:
    for name in ("stacks", "random"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('not ours')\n")
    environment = {"PATH": os.environ["PATH"], **({} if before is None else {"PYTHONPATH": before})}
    said = subprocess.run(
        [sys.executable, "-m", "stacks.config.paths"],
        cwd=tmp_path,
        env=module_environment(environment),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (said.returncode, said.stderr) == (0, "")


@pytest.mark.parametrize(
    ("had", "left"),
    [
        ({}, {}),
        ({"PYTHONPATH": "/mine"}, {"PYTHONPATH": "/mine"}),
        ({"PYTHONPATH": str(ROOT), "HOME": "/root"}, {"HOME": "/root"}),
        ({"PYTHONPATH": f"{ROOT}{os.pathsep}/mine"}, {"PYTHONPATH": "/mine"}),
    ],
)
def test_what_an_installed_gangway_has_put_on_the_path_is_not_the_users(
    had: Mapping[str, str], left: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert user_environment(had) == had, "in a checkout nobody has"
    monkeypatch.setattr(paths, "in_checkout", lambda: False)
    assert user_environment(had) == left
