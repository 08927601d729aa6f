"""A worker that is told to leave while a compiler is at work leaves in time, with 75, and loses nothing."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.records.run_record import RunRecord

SLOW_COMPILER = """
import ctypes, os, sys
from pathlib import Path
import torch
from gangway.trainer.__main__ import run

# Computes as without, but for the first call of its HANGS_AT-th shape: as a compiler in C++, which looks at no signal.
libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
hangs_at = int(os.environ["HANGS_AT"]) if os.environ["RANK"] in os.environ["RANKS"] else 0

def compile(module, **options):
    known = set()
    def compiled(*inputs):
        parts = [part for each in inputs for part in (each if isinstance(each, tuple) else (each,))]
        shape = tuple(part.shape for part in parts if isinstance(part, torch.Tensor))
        if shape not in known:
            known.add(shape)
            if len(known) == hangs_at:
                Path(os.environ["COMPILING"] + os.environ["RANK"]).touch()
                for _ in range(2):  # the second one waits for ever
                    libc.pthread_mutex_lock(mutex)
        return module._call_impl(*inputs)
    module._compiled_call_impl = compiled

torch.nn.Module.compile = compile
run(sys.argv[1:])
"""


@pytest.fixture
def compiling(tiny_config: TrainConfig) -> TrainConfig:
    """Its second segment has another shape."""
    seldom = {"stats_kimg": 100, "checkpoint_kimg": 100, "sample_kimg": 100}
    later = [{"from_image": 80, "batch_size": 32}]
    return tiny_config.replace({**seldom, "kimg": 0.208, "compile": "on", "r1_interval": 2, "segments": later})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workers", "hangs_at", "ranks", "saved"),
    [
        (1, 1, "0", 0),
        pytest.param(1, 2, "0", 80, marks=pytest.mark.slow),
        pytest.param(2, 2, "01", 80, marks=pytest.mark.slow),
        pytest.param(2, 2, "1", 80, marks=pytest.mark.slow),
    ],
    ids=["the trial", "a later shape", "on both workers", "on one, which the other waits for"],
)
def test_a_stop_while_losses_compile_is_an_interruption_and_changes_no_bit(
    compiling: TrainConfig,
    torchrun: Callable[..., Any],
    train_argv: Callable[[TrainConfig, Path, Path], list[str]],
    tmp_path: Path,
    digits_dir: Path,
    workers: int,
    hangs_at: int,
    ranks: str,
    saved: int,
) -> None:
    (tmp_path / "slow.py").write_text(SLOW_COMPILER)
    ready = tmp_path / "compiling-"

    def begin(run_dir: Path, hangs_at: int) -> Any:
        argv = train_argv(compiling, run_dir, digits_dir)[2:]
        env = {"HANGS_AT": str(hangs_at), "RANKS": ranks, "COMPILING": str(ready), "PYTHONPATH": str(Path.cwd())}
        return torchrun("--shutdown-timeout=60", str(tmp_path / "slow.py"), *argv, workers=workers, **env)

    code, text = begin(tmp_path / "whole", 0).finish()
    assert code == 0, text
    command = begin(tmp_path / "stopped", hangs_at)
    command.wait_for(lambda: all(Path(f"{ready}{rank}").exists() for rank in ranks))
    command.process.send_signal(signal.SIGTERM)
    code, text = command.finish()
    assert code == 75, text
    record = RunRecord.read(tmp_path / "stopped" / "run.json")
    (stop,) = record.interruptions
    assert (record.status, record.images, stop.images, stop.cause) == ("interrupted", saved, saved, "SIGTERM")
    assert stop.stop_sec.value is not None

    code, text = begin(tmp_path / "stopped", 0).finish()
    assert code == 0, text
    again, whole = (RunRecord.read(tmp_path / name / "run.json") for name in ("stopped", "whole"))
    assert [session.images_to for session in again.sessions] == [saved, 208]
    assert again.choices["compile"].startswith("on: ")
    assert again.state_sha256 == whole.state_sha256


@pytest.mark.slow
def test_each_shape_is_saved_before_it_is_compiled_and_no_step_more(
    compiling: TrainConfig,
    torchrun: Callable[..., Any],
    train_argv: Callable[[TrainConfig, Path, Path], list[str]],
    lines_of: Callable[[Path], list[dict[str, Any]]],
    tmp_path: Path,
    digits_dir: Path,
) -> None:
    """With penalties and without are two shapes of the compiler's; before a run's first step there is nothing."""
    (tmp_path / "slow.py").write_text(SLOW_COMPILER)
    argv = train_argv(compiling, tmp_path / "run", digits_dir)[2:]
    env = {"HANGS_AT": "0", "RANKS": "0", "COMPILING": "", "PYTHONPATH": str(Path.cwd())}
    code, text = torchrun(str(tmp_path / "slow.py"), *argv, workers=1, **env).finish()
    assert code == 0, text
    saved = [line["images"] for line in lines_of(tmp_path / "run") if line.get("event") == "checkpoint"]
    assert saved == [16, 80, 112, 208]
