"""The launcher: torchrun's workers, with exit codes that mean something and an eye on the cloud's notices."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainer.config import TrainConfig
from trainer.launch import main
from trainer.summary import summarise

SPOT = '{"action": "terminate", "time": "2026-11-21T08:22:00Z"}'
REBALANCE = '{"noticeTime": "2026-11-21T08:00:00Z"}'


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


def test_a_rebalance_saves_once_and_an_interruption_stops_with_its_cause(
    torchrun: Callable[..., Any],
    lines_of: Callable[[Path], list[dict[str, Any]]],
    tiny_config: TrainConfig,
    digits_dir: Path,
    imds: Any,
    tmp_path: Path,
) -> None:
    run_dir = tmp_path / "run"
    config = tmp_path / "config.json"
    config.write_text(tiny_config.replace({"kimg": 1000, "checkpoint_kimg": 500, "sample_kimg": 500}).to_json())
    argv = ["-m", "trainer", "train", "--config", str(config), "--run-dir", str(run_dir), "--data", str(digits_dir)]
    env = {"GANGWAY_IMDS_URL": imds.url, "GANGWAY_POLL_SEC": "0.1"}
    started = torchrun(*argv, launcher=("--watch", "aws"), **env)
    started.wait_for(lambda: len(lines_of(run_dir)) > 3)
    imds.items["events/recommendations/rebalance"] = REBALANCE

    def saved() -> list[dict[str, Any]]:
        return [line for line in lines_of(run_dir) if line.get("event") == "checkpoint"]

    started.wait_for(lambda: len(saved()) == 1)
    at = len(lines_of(run_dir))
    started.wait_for(lambda: len(lines_of(run_dir)) > at + 3)
    assert [line["why"] for line in saved()] == ["rebalance"], "once, and the run goes on"
    imds.items["spot/instance-action"] = SPOT
    code, text = started.finish()
    assert code == 75, text
    (interruption,) = summarise(run_dir).interruptions
    assert interruption.cause == "spot-interruption"
    assert interruption.images == lines_of(run_dir)[-1]["images"]
