"""`gangway job submit` and its like, as a user types them, on the local engine."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from stacks.cli import main as cli
from stacks.engines.registry import VARIABLE

FILE = "name: mine\ncommand: [sh, -c, {script}]\nmax_hours: 1\n"


@pytest.fixture(autouse=True)
def own_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, f"local:{tmp_path / 'queue'}")


def gangway(words: list[str]) -> object:
    """The exit code of a command line."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["gangway", *words])
        patch.setattr(cli, "gc", SimpleNamespace(freeze=lambda: None))
        with pytest.raises(SystemExit) as left:
            cli.main()
    return left.value.code


def submitted(tmp_path: Path, script: str, capsys: pytest.CaptureFixture[str]) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(FILE.format(script=json.dumps(script)))
    assert gangway(["job", "submit", str(path)]) == 0
    return capsys.readouterr().out.strip()


@pytest.mark.parametrize(("script", "code"), [("echo made", 0), ("exit 2", 2)])
def test_submit_wait_logs_status(tmp_path: Path, capsys: pytest.CaptureFixture[str], script: str, code: int) -> None:
    job_id = submitted(tmp_path, script, capsys)
    assert gangway(["job", "wait", job_id]) == code
    capsys.readouterr()
    assert gangway(["job", "logs", "--follow", job_id]) == 0
    assert ("made\n" in capsys.readouterr().out) == (code == 0)
    assert gangway(["job", "status", "--json", job_id]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["id"], found["exit_code"], found["starts"]) == (job_id, code, 1)
    assert gangway(["job", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [found]
    assert gangway(["job", "list"]) == 0
    assert job_id in capsys.readouterr().out


def test_cancel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job_id = submitted(tmp_path, "sleep 600", capsys)
    assert gangway(["job", "cancel", job_id]) == 0
    assert gangway(["job", "wait", job_id]) == 1
    assert "cancelled" in capsys.readouterr().out


def test_a_file_with_mistakes_submits_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("name: mine\npreset: dcgan-digits\ncommand: [true]\nmax_hours: 1\n")
    assert gangway(["job", "submit", str(path)]) == 2
    told = capsys.readouterr().err
    assert str(path) in told
    assert "fix:" in told
    assert not (tmp_path / "queue").exists()


@pytest.mark.parametrize("words", [["status", "mine-7"], ["list", "--on", "slurmm"], ["submit", "/no/such/file"]])
def test_mistakes(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert gangway(["job", *words]) == 2
    told = capsys.readouterr().err
    assert "error:" in told
    assert "fix:" in told


def test_without_a_command_it_is_a_stack(capsys: pytest.CaptureFixture[str]) -> None:
    assert gangway(["job", "no-such-stack"]) == 2
    plain = capsys.readouterr().err
    assert gangway(["job", "show", "no-such-stack"]) == 2
    assert capsys.readouterr().err == plain
