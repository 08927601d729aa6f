"""The command line: what it prints, and exit code 2 with one clear message for every mistake."""

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gangway.trainer.__main__ import main, run
from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import LoneError, WorkerFailedError
from gangway.trainer.records.run_record import RunRecord, schema

PRESET = ("--preset", "dcgan-digits")


@pytest.fixture(autouse=True)
def _no_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    """The handlers stay pytest's."""
    monkeypatch.setattr("gangway.trainer.preemption.notices.signal.signal", lambda number, handler: None)


def test_presets_and_schema_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presets"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in table[:-2]] == ["PRESET", *PRESETS]
    assert main(["presets", "--json"]) == 0
    values = [TrainConfig.model_validate(entry["config"]) for entry in json.loads(capsys.readouterr().out)]
    assert values == list(PRESETS.values())
    assert main(["schema"]) == 0
    assert capsys.readouterr().out == schema()


def test_every_field_has_a_flag_with_its_sentence() -> None:
    text = _help("train")
    assert all(f"--{name.replace('_', '-')}" in text for name in TrainConfig.model_fields)
    assert "weight of the R1 penalty" in text


def test_help_tells_what_a_flag_takes_and_what_holds_without_it() -> None:
    text = _help("train")
    assert "VALUE" not in text.partition("\n")[2], "each flag says more than that"
    assert re.search(r"--resume auto\|never\s.*\[auto\]", text)
    assert re.search(r"--log-format text\|json\s.*\[text\]", text)
    assert all(re.search(rf"\s{name}[,\s]", text) for name in PRESETS), "no name is broken in two"


def test_help_does_not_wait_for_torch() -> None:
    program = "import sys; from gangway.trainer.__main__ import main; main(sys.argv[1:])"
    for command in ((), ("train",)):
        argv = [sys.executable, "-X", "importtime", "-c", program, *command, "--help"]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
        assert "gangway.trainer.config.train_config" in loaded
        assert not loaded & {"torch", "numpy"}


def _help(*command: str) -> str:
    """A command's help with every line break between words as one blank."""
    argv = [sys.executable, "-m", "gangway.trainer", *command, "--help"]
    first, _, rest = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.partition("\n")
    return f"{first}\n{' '.join(rest.split())}"


def test_digits_are_prepared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "prepare", "digits", "--out", str(tmp_path)]) == 0
    assert json.loads((tmp_path / "index.json").read_text())["num_images"] == 1797
    assert str(tmp_path) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--preset", "biggan"], "--preset: no such preset\n  got:     'biggan'\n  allowed: dcgan-digits"),
        (["train", "--preset", ""], "--preset: no such preset\n  got:     ''"),
        (["presets", "dcgan-digit"], "NAME: no such preset\n  got:     'dcgan-digit'"),
        (["train", *PRESET, "--ngf", "65536", "--run-dir", "run"], "--ngf: the networks' weights, gradients, moments"),
        (["train", *PRESET, "--kimg", "many"], "--kimg: not an accepted value\n  got:     'many'"),
        (["train", *PRESET, "--augment", "color"], "--augment: not an accepted value\n  got:     'color'"),
        (["train", *PRESET, "--backend", "nccl"], "--backend: nccl needs CUDA"),
        (["train", *PRESET, "--context", "none.json"], "none.json: no such file"),
        (["train", "--config", "none.json"], "none.json: no such file"),
        (["train", *PRESET, "--metrics-port", "70000"], "--metrics-port: not a port"),
        (["train", *PRESET, "--metrics-port", "x"], "--metrics-port: not an accepted value\n  got:     'x'"),
        (["train", *PRESET, "--track", "wandbb"], "--track: no such target\n  got:     'wandbb'"),
        (["train", *PRESET, "--run-dir", "/dev/null"], "--run-dir: /dev/null is a file where a folder is needed"),
        (["train", *PRESET, "--kim", "3"], "unknown flag --kim\n  got:     '--kim 3'\n  fix:     did you mean --kimg?"),
        (["trian"], "COMMAND: not an accepted value\n  got:     'trian'"),
        (["data", "prepare", "imagenet", "--out", "x"], "DATASET: not an accepted value\n  got:     'imagenet'"),
        (["data", "prepare", "digits", "--out", "/dev/null/x"], "--out: /dev/null is a file"),
        (["evaluate", "--run-dir", "none"], "--run-dir: no such folder\n  got:     'none'"),
        (["evaluate", "--run-dir", "."], "--run-dir: holds no run"),
        (["sample", "--run-dir", "none", "--out", "a.png"], "--run-dir: no such folder\n  got:     'none'"),
        (["export", "--run-dir", "none", "--format", "onnx", "--out", "a.onnx"], "--run-dir: no such folder"),
        (["record", "--run-dir", "none"], "--run-dir: no such folder\n  got:     'none'"),
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
    error = capsys.readouterr().err
    assert message in error
    assert error.count("  fix:") == 1
    assert not list(tmp_path.iterdir())


def test_an_interrupted_command_says_so_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("gangway.trainer.__main__._schema", interrupted)
    assert main(["schema"]) == 75
    assert capsys.readouterr().err.startswith("interrupted: nothing is left half written")


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


def test_a_port_in_use_stops_the_run_before_data_is_prepared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as holder:
        holder.bind(("", 0))
        holder.listen()
        port = str(holder.getsockname()[1])
        flags = ["--run-dir", str(tmp_path / "run"), "--data", str(tmp_path / "data"), "--metrics-port", port]
        assert main(["train", *PRESET, *flags]) == 2
    error = capsys.readouterr().err
    assert "--metrics-port: cannot listen there" in error
    assert "fix:" in error
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("from_file", "place"), [(False, "--backend: "), (True, "config.json: backend: ")], ids=["flag", "file"]
)
@pytest.mark.skipif(torch.cuda.is_available(), reason="nccl works here")
def test_the_place_is_where_the_value_came_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], from_file: bool, place: str
) -> None:
    path = tmp_path / "config.json"
    path.write_text(PRESETS["dcgan-digits"].replace({"backend": "nccl"} if from_file else {}).to_json())
    assert main(["train", "--config", str(path), *([] if from_file else ["--backend", "nccl"])]) == 2
    assert f"{place}nccl needs CUDA" in capsys.readouterr().err


def test_a_killed_runs_record_is_written_from_its_diary(
    tmp_path: Path, digits_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--kimg", "0.128", "--ngf", "1", "--ndf", "1", "--run-dir", str(tmp_path), "--data", str(digits_dir)]
    assert main(["train", *PRESET, *flags]) == 0
    stats = tmp_path / "stats.jsonl"
    lines = [json.loads(line) for line in stats.read_text().splitlines()]
    old = [{**line, "time": line["time"] - 3600} for line in lines if line.get("event") != "done"]
    stats.write_text("".join(json.dumps(line) + "\n" for line in old))
    (tmp_path / "run.json").unlink()
    assert main(["record", "--run-dir", str(tmp_path)]) == 0
    record = RunRecord.read(tmp_path / "run.json")
    assert (record.status, record.sessions[0].ended_by, record.images) == ("interrupted", "killed", 128)
    output = capsys.readouterr().out
    assert "run.json: interrupted, 128 images" in output
    assert "note: session 0 has no end" in output


def test_what_one_worker_alone_knows_it_says_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")

    def full(*_: object, **__: object) -> int:
        raise LoneError(place="TrainConfig.batch_gpu", problem="worker 1's memory does not hold a step")

    monkeypatch.setattr("gangway.trainer.run.loop.train", full)
    assert main(["train", *PRESET]) == 2
    assert "worker 1's memory does not hold a step" in capsys.readouterr().err


def test_a_worker_that_is_well_says_that_it_lost_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object, **__: object) -> int:
        raise WorkerFailedError(3, "ValueError: x")

    monkeypatch.setattr("gangway.trainer.run.loop.train", fails)
    assert main(["train", *PRESET]) == 76
    assert "worker 3 failed, so all stop: ValueError: x" in capsys.readouterr().err


def _ends_with(error: Exception, monkeypatch: pytest.MonkeyPatch) -> int:
    def fails(*_: object, **__: object) -> int:
        raise error

    def left(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr("gangway.trainer.run.loop.train", fails)
    monkeypatch.setattr("os._exit", left)
    monkeypatch.setattr("gangway.trainer.preemption.notices._follow_launcher", lambda: None)
    monkeypatch.setattr("sys.excepthook", lambda *_: None)
    with pytest.raises(SystemExit) as exited:
        run(["train", *PRESET])
    return int(exited.value.code or 0)


GLOO = "[/gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:32140"


def test_a_workers_exit_code_tells_its_own_failure_from_that_of_its_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    peers = [RuntimeError(GLOO), torch.distributed.DistBackendError("NCCL error: remote process exited")]
    wrapped = ValueError("while telling it")
    wrapped.__cause__ = RuntimeError(GLOO)
    own = [RuntimeError("CUDA error: an illegal memory access"), OSError("gone"), ValueError(GLOO)]
    assert [_ends_with(error, monkeypatch) for error in (*peers, wrapped)] == [1, 1, 1], "alone there are no peers"
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert [_ends_with(error, monkeypatch) for error in (*peers, wrapped)] == [76, 76, 76]
    assert [_ends_with(error, monkeypatch) for error in own] == [1, 1, 1]


@pytest.mark.parametrize(("message", "code"), [(GLOO, 76), ("CUDA error", 1)])
@pytest.mark.timeout(20)
def test_causes_in_a_circle_end(message: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    raised, inner, innermost = ValueError("while cleaning up"), OSError("gone"), RuntimeError(message)
    raised.__cause__, inner.__context__, innermost.__cause__ = inner, innermost, raised
    assert _ends_with(raised, monkeypatch) == code


def test_who_reads_no_further_is_told_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of `... | head`: the code that a shell makes of SIGPIPE, and no traceback."""
    assert _ends_with(BrokenPipeError(), monkeypatch) == 128 + 13
    assert capsys.readouterr().err == ""
