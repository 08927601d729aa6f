"""A run that changes batch, precision and workers: it equals itself whoever stops it, and wherever."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.preemption.notices import Interruption
from gangway.trainer.records.run_record import RunContext, RunRecord
from gangway.trainer.run.loop import train

Lines = Callable[[Path], list[dict[str, Any]]]
SEGMENTS: list[dict[str, object]] = [
    {"from_image": 80, "batch_size": 32, "batch_gpu": 8, "lr_factor": 2},
    {"from_image": 200, "precision": "bf16", "lr_factor": 1},
    {"from_image": 320, "batch_size": 8, "batch_gpu": 0, "precision": "fp32"},
]


@pytest.fixture
def changing(tiny_config: TrainConfig) -> TrainConfig:
    seldom = {"stats_kimg": 100, "checkpoint_kimg": 100, "sample_kimg": 100}
    return tiny_config.replace({"kimg": 0.36, **seldom, "segments": SEGMENTS, "r1_interval": 3, "augment": "none"})


def _train(config: TrainConfig, run_dir: Path, data: Path) -> RunRecord:
    assert train(config, run_dir, data, RunContext(run_id="r"), Interruption()) == 0
    return RunRecord.read(run_dir / "run.json")


@pytest.mark.slow
def test_it_goes_on_to_the_bit_from_a_stop_in_each_segment_and_between_two(
    changing: TrainConfig, tmp_path: Path, digits_dir: Path, lines_of: Lines
) -> None:
    whole = _train(changing, tmp_path / "whole", digits_dir)
    stops = (0.032, 0.08, 0.14, 0.208, 0.26, 0.33)
    for kimg in stops:
        _train(changing.replace({"kimg": kimg}), tmp_path / "stopped", digits_dir)
    again = _train(changing, tmp_path / "stopped", digits_dir)
    assert [session.images_to for session in again.sessions] == [32, 80, 144, 208, 272, 336, 360]
    assert again.state_sha256 == whole.state_sha256
    ticks = [line for line in lines_of(tmp_path / "whole") if "step" in line and "event" not in line]
    assert [(line["images"], line["step"]) for line in ticks] == [(80, 5), (208, 9), (336, 13), (360, 16)]
    found = [(each.from_image, each.step, each.batch_size, each.batch_gpu, each.precision, each.lr_factor)
             for each in whole.segments]  # fmt: skip
    assert found == [
        (0, 0, 16, 0, "fp32", 1),
        (80, 5, 32, 8, "fp32", 2),
        (208, 9, 32, 8, "bf16", 1),
        (336, 13, 8, 0, "fp32", 1),
    ]
    assert [each.model_copy(update={"begun_at": 0}) for each in again.segments] == [
        each.model_copy(update={"begun_at": 0}) for each in whole.segments
    ]
    choices = [line["choices"]["precision"][:4] for line in lines_of(tmp_path / "whole") if "choices" in line]
    assert choices == ["fp32", "fp32", "bf16", "fp32"]


@pytest.mark.slow
def test_steps_of_several_batches_begin_anew_at_a_boundary(
    families: dict[str, tuple[TrainConfig, Path]], tmp_path: Path
) -> None:
    """Two of the critic's steps for one of the generator's, whose draws go with the first."""
    config, data = families["resnet"]
    config = config.replace({"segments": [{"from_image": 20, "batch_size": 7}], "stats_kimg": 1, "checkpoint_kimg": 1})
    whole = _train(config, tmp_path / "whole", data)
    _train(config.replace({"kimg": 0.03}), tmp_path / "halves", data)
    halves = _train(config, tmp_path / "halves", data)
    assert [session.images_to for session in halves.sessions] == [38, 80]
    assert halves.state_sha256 == whole.state_sha256


def test_a_segment_after_the_end_is_told_when_the_run_begins(
    changing: TrainConfig, tmp_path: Path, digits_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    late = [{"from_image": 16, "lr_factor": 2}, {"from_image": 100_000_000, "batch_size": 64}]
    _train(changing.replace({"kimg": 0.032, "segments": late}), tmp_path, digits_dir)
    (told,) = [line for line in capsys.readouterr().out.splitlines() if "warning" in line]
    assert told == "warning: segments.1 (from_image 100,000,000) has no step: the run ends after 32 images"


def test_a_plan_may_be_given_to_a_run_that_has_begun_but_not_rewritten(
    changing: TrainConfig, tmp_path: Path, digits_dir: Path
) -> None:
    plain = changing.replace({"segments": [], "kimg": 0.064})
    _train(plain, tmp_path, digits_dir)
    later = changing.replace({"segments": [{"from_image": 64, "batch_size": 8}], "kimg": 0.08})
    assert [each.batch_size for each in _train(later, tmp_path, digits_dir).segments] == [8]
    with pytest.raises(TrainerError, match=r"\.segments: the first 80 images were trained in other segments"):
        _train(plain.replace({"kimg": 1}), tmp_path, digits_dir)


def test_another_number_of_workers_is_refused_before_data_is_touched(changing: TrainConfig, tmp_path: Path) -> None:
    config = changing.replace({"segments": [{"from_image": 0, "workers": 2}]})
    with pytest.raises(TrainerError, match=r"TrainConfig\.segments\.0\.workers: .*another number of workers") as caught:
        train(config, tmp_path / "run", tmp_path / "data", RunContext(), Interruption())
    assert caught.value.exit_code == 2
    assert not (tmp_path / "data").exists()


KILLED = """
import os, signal, sys
from gangway.trainer.run import loop
from gangway.trainer.__main__ import run

batch_of, at = loop.Batch, int(os.environ["KILL_AT"])
def mortal(config, world, data, *more):
    batch = batch_of(config, world, data, *more)
    order = batch.order
    def killed(images):
        if images == at and world.rank == world.world_size - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return order(images)
    batch.order = killed
    return batch

loop.Batch = mortal
run(sys.argv[1:])
"""
WORKERS = {0: 1, 80: 2, 208: 1, 336: 2}  # By the image from which there are so many


@pytest.mark.slow
@pytest.mark.timeout(900)  # twelve sessions
def test_workers_come_and_go_with_the_segments_and_a_kill_in_each_changes_nothing(
    changing: TrainConfig,
    torchrun: Callable[..., Any],
    train_argv: Callable[[TrainConfig, Path, Path], list[str]],
    tmp_path: Path,
    digits_dir: Path,
) -> None:
    plan = [{"from_image": 0, "workers": 1}, *({**each, "workers": 2 - n % 2} for n, each in enumerate(SEGMENTS))]
    config = changing.replace({"segments": plan, "checkpoint_kimg": 0.016})
    (tmp_path / "killed.py").write_text(KILLED)

    def session(run_dir: Path, images: int, kill_at: int) -> int:
        workers = [number for begin, number in WORKERS.items() if begin <= images][-1]
        argv = train_argv(config, run_dir, digits_dir)[2:]
        command = torchrun(str(tmp_path / "killed.py"), *argv, workers=workers, KILL_AT=str(kill_at),
                           PYTHONPATH=str(Path.cwd()))  # fmt: skip
        code: int = command.finish()[0]
        return code

    for images in WORKERS:
        assert session(tmp_path / "whole", images, -1) == (0 if images == 336 else 75)
    whole = RunRecord.read(tmp_path / "whole" / "run.json")
    for images, killed in zip(WORKERS, (48, 176, 272, 352), strict=True):
        assert session(tmp_path / "killed", images, killed) not in (0, 75)
        assert session(tmp_path / "killed", images, -1) == (0 if images == 336 else 75)
    record = RunRecord.read(tmp_path / "killed" / "run.json")
    assert record.state_sha256 == whole.state_sha256
    assert [session.world_size for session in record.sessions] == [1, 1, 2, 2, 1, 1, 2, 2]
    assert {stop.cause for stop in record.interruptions} == {"segment", "killed"}


def test_a_device_that_cannot_compute_a_later_segment_refuses_at_the_start(
    changing: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def choose(name: str, _: object) -> Any:
        if name == "bf16":
            raise TrainerError(place="TrainConfig.precision", problem="this device is older", fix="--precision fp16")
        return None

    monkeypatch.setattr("gangway.trainer.run.session_setup.choose", choose)
    with pytest.raises(TrainerError, match=r"TrainConfig\.segments\.1\.precision: this device is older"):
        train(changing, tmp_path / "run", tmp_path / "data", RunContext(), Interruption())
    assert not (tmp_path / "data").exists()
