"""Which Gangway the processes find that it starts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gangway.stacks.config import paths
from gangway.stacks.config.paths import ROOT, module_environment


@pytest.mark.parametrize("before", [None, "", "/mine", f"/mine{os.pathsep}{ROOT}"])
def test_modules_are_ours_wherever_they_begin(before: str | None, tmp_path: Path) -> None:
    for name in ("gangway", "random"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('not ours')\n")
    environment = {"PATH": os.environ["PATH"], **({} if before is None else {"PYTHONPATH": before})}
    said = subprocess.run(
        [sys.executable, "-m", "gangway.stacks.config.paths"],
        cwd=tmp_path,
        env=module_environment(environment),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (said.returncode, said.stderr) == (0, "")


def test_an_installed_gangway_leaves_the_path_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "in_checkout", lambda: False)
    assert module_environment({"PYTHONPATH": "/mine"}) == {"PYTHONPATH": "/mine", "PYTHONSAFEPATH": "1"}
    assert module_environment({}) == {"PYTHONSAFEPATH": "1"}
