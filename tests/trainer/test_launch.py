"""The launcher: torchrun's workers, with exit codes that mean something; notices of clouds are in test_clouds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainer.launch import main


def test_an_unknown_cloud_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["--watch", "awss"], ["--watch=awss", "--standalone"]):
        assert main(argv) == 2
        assert "did you mean 'aws'?" in capsys.readouterr().err
    assert main(["--watch"]) == 2


def test_a_deadline_that_is_no_time_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GANGWAY_STOP_AT", "tomorrow")
    assert main([]) == 2
    assert "$GANGWAY_STOP_AT: no point in time" in capsys.readouterr().err


def test_past_its_deadline_a_job_does_not_start(start: Callable[..., Any], tmp_path: Path) -> None:
    argv = ("--rdzv-backend=gangway", "--rdzv-endpoint=127.0.0.1:9", "--nnodes=1", "-m", "trainer", "presets")
    code, text = start("-m", "trainer.launch", *argv, GANGWAY_STOP_AT="1").finish()
    assert code == 75, text
    assert "gangway: max-hours: saving and leaving" in text


@pytest.mark.parametrize(("argv", "expected"), [(("presets",), 0), (("train", "--preset", "nothing"), 2)])
def test_a_workers_exit_code_comes_through(start: Callable[..., Any], argv: tuple[str, ...], expected: int) -> None:
    code, text = start("-m", "trainer.launch", "--standalone", "--nproc-per-node=1", "-m", "trainer", *argv).finish()
    assert code == expected, text
