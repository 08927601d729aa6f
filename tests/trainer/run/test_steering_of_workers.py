"""A controller of several workers: they all turn what one of them decides, at the same step."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.records.run_record import RunRecord

DECIDES = """
import sys
from types import SimpleNamespace
from gangway.trainer.control import controller
from gangway.trainer.control.interval import Decision
from gangway.trainer.__main__ import run

WANTED = {48: ("batch_gpu", 4), 96: ("batch_size", 32), 160: ("loader_threads", 2)}

def decide(history, *_, **__):
    last = history[-1]
    for images, (knob, value) in WANTED.items():
        was = getattr(last.knobs, knob)
        if last.images >= images and was != value:
            return SimpleNamespace(decision=Decision(knob, value, was, "rules", "asked for", 0.1, ""), why="",
                                   warning=False, verdict=None)
    return SimpleNamespace(decision=None, why="", warning=False, verdict=None)

controller.next_decision = decide
run(sys.argv[1:])
"""


@pytest.mark.slow
def test_what_is_decided_is_done_by_all_workers(
    tiny_config: TrainConfig,
    torchrun: Callable[..., Any],
    train_argv: Callable[[TrainConfig, Path, Path], list[str]],
    tmp_path: Path,
    digits_dir: Path,
) -> None:
    config = tiny_config.replace(
        {"kimg": 0.32, "batch_size": 16, "stats_kimg": 0.016, "checkpoint_kimg": 0.064, "augment": "none"}
    )
    (tmp_path / "decides.py").write_text(DECIDES)
    control = '{"interval_sec": 1e-6, "bounds": {"batch_size": [8, 64], "batch_gpu": [2, 32]}}'
    argv = [*train_argv(config, tmp_path / "run", digits_dir)[2:], "--controller", "act", "--control", control]
    code, output = torchrun(str(tmp_path / "decides.py"), *argv, PYTHONPATH=str(Path.cwd())).finish()
    assert code == 0, output
    record = RunRecord.read(tmp_path / "run" / "run.json")
    assert [(each.knob, each.value, each.outcome) for each in record.decisions] == [
        ("batch_gpu", 4, "done"),
        ("batch_size", 32, "done"),
        ("loader_threads", 2, "done"),
    ]
    assert [each.batch_size for each in record.segments] == [16, 16, 32]
    assert record.sessions[0].world_size == 2


@pytest.mark.slow
def test_a_pipeline_keeps_the_batch_that_it_was_built_for(
    tiny_config: TrainConfig,
    torchrun: Callable[..., Any],
    train_argv: Callable[[TrainConfig, Path, Path], list[str]],
    tmp_path: Path,
    digits_dir: Path,
    lines_of: Callable[[Path], list[dict[str, Any]]],
) -> None:
    divided = {"architecture": "r3gan", "ngf": 16, "ndf": 16, "pipeline_stages": 2}
    config = tiny_config.replace({**divided, "kimg": 0.048, "batch_size": 16, "stats_kimg": 0.016})
    control = '{"interval_sec": 1e-6, "bounds": {"batch_size": [8, 64], "batch_gpu": [2, 16], "precision": ["fp32"]}}'
    argv = [*train_argv(config, tmp_path / "run", digits_dir), "--controller", "act", "--control", control]
    code, output = torchrun(*argv).finish()
    assert code == 0, output
    (begun,) = [line for line in lines_of(tmp_path / "run") if line.get("event") == "controller"]
    assert begun["idle_bounds"].keys() == {"batch_size", "batch_gpu", "precision"}
    assert output.count("it cannot be changed in this session") == 3
