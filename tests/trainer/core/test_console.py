"""A reader who has gone ends nothing: neither a sentence nor a run."""

import contextlib
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.console import Progress, info, warn
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


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _run(out: io.StringIO, seconds: int, per_second: int = 50, done: int = 0) -> str:
    now = [0.0]
    progress = Progress("faces", 10_000, out=out, clock=lambda: now[0])
    progress.go_on(done, ())
    for _ in range(seconds):
        now[0] += 1
        progress.add(per_second)
    progress.close()
    return out.getvalue()


def test_a_log_gets_a_line_every_ten_seconds() -> None:
    lines = _run(io.StringIO(), 25, done=1000).splitlines()
    assert lines == [
        "faces: resuming, 1,000 of 10,000 files are done",
        "faces: 1,500 of 10,000 files (15 %), 50/s, 2 min 50 s left",
        "faces: 2,000 of 10,000 files (20 %), 50/s, 2 min 40 s left",
    ]


def test_a_terminal_gets_its_line_rewritten_every_two_seconds() -> None:
    text = _run(_Terminal(), 5)
    assert text.count("\r\033[K") == 2
    assert text.endswith("\n")
    assert text.count("\n") == 1


def test_nothing_is_said_of_what_is_done_at_once() -> None:
    assert _run(_Terminal(), 1) == _run(io.StringIO(), 9) == ""


def test_slow_and_long_ones_are_told_as_people_would() -> None:
    assert _run(io.StringIO(), 10, per_second=1) == "faces: 10 of 10,000 files (0 %), 1.0/s, 2 h 46 min left\n"
    assert "no estimate yet" in _run(io.StringIO(), 10, per_second=0)
    assert ", 10 s left" in _run(io.StringIO(), 10, per_second=500)


def test_what_is_made_anew_is_said() -> None:
    out = io.StringIO()
    Progress("faces", 10, out=out).go_on(0, ("00001.npy",))
    assert out.getvalue() == "faces: 00001.npy is damaged or missing and is made again\n"
