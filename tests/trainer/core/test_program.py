"""Messages name the program by which its user reaches the trainer."""

import sys
from pathlib import Path

import pytest

from gangway.trainer.core.program import COMMANDS, MODULE, program


@pytest.mark.parametrize("started", ["-c", "/opt/gangway/trainer/__main__.py", "/usr/bin/pytest", ""])
def test_it_is_the_module_where_nothing_else_started_it(started: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [started, "train"])
    assert program() == MODULE == "python -m gangway.trainer"


def test_it_is_gangway_by_the_name_that_a_shell_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "bin" / "gangway"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(script), "train"])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program() == str(script)
    monkeypatch.setenv("PATH", str(script.parent))
    assert program() == "gangway"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["bin/gangway", "train"])
    assert program() == "gangway"


def test_every_command_is_one_of_the_trainers(capsys: pytest.CaptureFixture[str]) -> None:
    from gangway.trainer.__main__ import main

    for name in COMMANDS:
        with pytest.raises(SystemExit) as left:
            main([name, "--help"])
        assert left.value.code == 0
        assert f"{MODULE} {name}" in capsys.readouterr().out
