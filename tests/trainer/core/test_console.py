"""A reader who has gone ends nothing: neither a sentence nor a run."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.console import info, warn
from gangway.trainer.preemption.notices import Interruption
from gangway.trainer.records.run_record import RunContext, RunRecord
from gangway.trainer.run.loop import train
from gangway.trainer.run.session_setup import RunOptions


@contextlib.contextmanager
def _nobody() -> Iterator[None]:
    """Both streams lead to a pipe that nobody reads any more, as behind `| head` and after Ctrl-C of `| tee`."""
    reading, writing = os.pipe()
    os.close(reading)
    pipe = os.fdopen(writing, "w")
    with contextlib.redirect_stdout(pipe), contextlib.redirect_stderr(pipe):
        yield
    with pytest.raises(BrokenPipeError):
        pipe.close()


def test_sentences_to_nobody_are_lost_without_an_error() -> None:
    with _nobody():
        info("a")
        warn("b")
        with pytest.raises(BrokenPipeError):
            print("c", flush=True)


@pytest.mark.parametrize("log_json", [False, True])
def test_a_run_that_nobody_listens_to_comes_to_its_end(
    log_json: bool, tiny_config: TrainConfig, tmp_path: Path, digits_dir: Path
) -> None:
    config = tiny_config.replace({"kimg": 0.32})
    options = RunOptions(log_json=log_json)
    with _nobody():
        assert train(config, tmp_path, digits_dir, RunContext(), Interruption(), options) == 0
    assert RunRecord.read(tmp_path / "run.json").status == "done"
    lines = [json.loads(line) for line in (tmp_path / "stats.jsonl").read_text().splitlines()]
    assert [line["images"] for line in lines if "event" not in line] == [160, 320]
