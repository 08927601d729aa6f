"""The command line: what it prints, and exit code 2 with one clear message for every mistake."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from trainer.__main__ import main
from trainer.config import PRESETS, TrainConfig
from trainer.record import schema


@pytest.fixture(autouse=True)
def _no_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    """The handlers stay pytest's."""
    monkeypatch.setattr("trainer.interruption.signal.signal", lambda number, handler: None)


def test_presets_and_schema_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presets"]) == 0
    assert TrainConfig.from_json(capsys.readouterr().out) == PRESETS["dcgan-digits"]
    assert main(["schema"]) == 0
    assert capsys.readouterr().out == schema()


def test_every_field_has_a_flag_with_its_sentence() -> None:
    text = subprocess.run([sys.executable, "-m", "trainer", "train", "--help"], capture_output=True, text=True).stdout
    assert all(f"--{name.replace('_', '-')}" in text for name in TrainConfig.model_fields)
    assert "weight of the R1 penalty" in text


def test_digits_are_prepared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "prepare", "digits", "--out", str(tmp_path)]) == 0
    assert json.loads((tmp_path / "index.json").read_text())["num_images"] == 1797
    assert str(tmp_path) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--preset", "biggan"], "--preset: no such preset\n  got:     'biggan'\n  allowed: dcgan-digits"),
        (["train", "--preset", "dcgan-digits", "--kimg", "many"], "command line: kimg: not an accepted value"),
        (["train", "--preset", "dcgan-digits", "--context", "none.json"], "none.json: no such file"),
        (["train", "--config", "none.json"], "none.json: no such file"),
        (["train", "--preset", "dcgan-digits", "--metrics-port", "70000"], "--metrics-port: not a port"),
        (["data", "prepare", "imagenet", "--out", "x"], "data prepare: no such data set"),
        (["evaluate", "--run-dir", "none"], "none: no checkpoint to judge"),
    ],
)
def test_a_mistake_is_named_and_exits_2(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_only_local_rank_0_reports(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert main(["train", "--preset", "biggan"]) == 2
    assert capsys.readouterr().err == ""


def test_a_bad_context_in_the_environment_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GANGWAY_CONTEXT", '{"num_nodes": "none"}')
    assert main(["train", "--preset", "dcgan-digits"]) == 2
    assert "$GANGWAY_CONTEXT: num_nodes" in capsys.readouterr().err


def test_a_port_in_use_stops_the_run_before_it_begins(
    tmp_path: Path, digits_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as holder:
        holder.bind(("", 0))
        holder.listen()
        port = str(holder.getsockname()[1])
        flags = ["--run-dir", str(tmp_path / "run"), "--data", str(digits_dir), "--metrics-port", port]
        assert main(["train", "--preset", "dcgan-digits", *flags]) == 2
    assert "--metrics-port: cannot listen there" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
