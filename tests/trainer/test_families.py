"""Every family of networks in the real loop: trains, resumes bit by bit, computes the same however it is spread."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.data.shards import ShardedImages
from gangway.trainer.preemption.notices import Interruption
from gangway.trainer.records.run_record import RunContext, RunRecord
from gangway.trainer.run.loop import train
from tests.shard_files import write_shards

Families = dict[str, tuple[TrainConfig, Path]]
Lines = Callable[[Path], list[dict[str, Any]]]
LOSSES = ("loss_g", "loss_d", "r1", "r2", "gp", "loss_cycle", "loss_identity")

every_family = pytest.mark.parametrize(
    "name", ["dcgan", "dcgan-ada", "resnet", "r3gan", "progressive", "video", "cyclegan"]
)


def _train(config: TrainConfig, run_dir: Path, data: Path) -> RunRecord:
    assert train(config, run_dir, data, RunContext(run_id="r"), Interruption()) == 0
    return RunRecord.read(run_dir / "run.json")


def _ticks(lines_of: Lines, run_dir: Path) -> list[dict[str, Any]]:
    return [line for line in lines_of(run_dir) if "event" not in line]


def _close(one: float | None, other: float | None, *, rel: float, absolute: float) -> bool:
    """Whether two values of a line are equal within a tolerance; None is what has not been computed, or is of another
    family.
    """
    if one is None or other is None:
        return one is other
    return one == pytest.approx(other, rel=rel, abs=absolute)


@every_family
def test_it_trains_and_goes_on_bit_by_bit(name: str, families: Families, tmp_path: Path, lines_of: Lines) -> None:
    config, data = families[name]
    whole = _train(config, tmp_path / "whole", data)
    assert whole.images == 72
    _train(config.replace({"kimg": 0.036}), tmp_path / "halves", data)
    halves = _train(config, tmp_path / "halves", data)
    middle = halves.sessions[0].images_to
    assert [(session.images_from, session.images_to) for session in halves.sessions] == [(0, middle), (middle, 72)]
    assert 0 < middle < 72
    assert halves.state_sha256 == whole.state_sha256
    one, two = (_ticks(lines_of, tmp_path / run) for run in ("whole", "halves"))
    for key in (*LOSSES, "images", "augment_p", "resolution", "real_sign"):
        assert [line.get(key) for line in one] == [line.get(key) for line in two], key
    assert [line["order"] for line in one] == [line["order"] for line in two]
    measured = {key for key in LOSSES if one[0].get(key) is not None}
    assert (
        measured - {"loss_g", "loss_d"}
        == {
            "dcgan": {"r1"},
            "dcgan-ada": {"r1"},
            "resnet": {"gp"},
            "r3gan": {"r1", "r2"},
            "progressive": {"gp"},
            "video": {"gp"},
            "cyclegan": {"loss_cycle", "loss_identity"},
        }[name]
    )


@pytest.mark.slow
@every_family
def test_micro_batches_add_up_to_the_step(name: str, families: Families, tmp_path: Path, lines_of: Lines) -> None:
    """In micro-batches of 4 of 12 images: the first step's losses and gradients agree to rounding."""
    config, data = families[name]
    # The discriminator of "resnet" makes two steps, of which the second must not magnify the first one's rounding.
    first = config.replace({"kimg": config.step_images / 1000, "lr_d": 1e-12})
    _train(first, tmp_path / "whole", data)
    _train(first.replace({"batch_gpu": 4}), tmp_path / "pieces", data)
    (one,), (two,) = (_ticks(lines_of, tmp_path / run) for run in ("whole", "pieces"))
    for key in (*LOSSES, "grad_norm_g", "grad_norm_d"):
        assert _close(one.get(key), two.get(key), rel=1e-5, absolute=1e-6), key


@pytest.mark.slow
def test_two_workers_are_as_one(
    some_families: Families, tmp_path: Path, lines_of: Lines, torchrun: Callable[..., Any], train_each: str
) -> None:
    argv = []
    for name, (config, data) in some_families.items():
        _train(config, tmp_path / f"{name}-1", data)
        (tmp_path / f"{name}.json").write_text(config.to_json())
        argv += [str(tmp_path / f"{name}.json"), str(tmp_path / f"{name}-2"), str(data)]
    (tmp_path / "all.py").write_text(train_each)
    code, output = torchrun(str(tmp_path / "all.py"), *argv).finish()
    assert code == 0, output
    assert "Warning" not in output
    for name in some_families:
        one, two = (_ticks(lines_of, tmp_path / f"{name}-{workers}") for workers in (1, 2))
        assert [line["world_size"] for line in two] == [2] * len(one)
        for key in ("images", "augment_p", "order"):
            assert [line[key] for line in one] == [line[key] for line in two], (name, key)
        for key in LOSSES:
            # Float32 sums in another order, magnified by Adam's first steps, which follow the sign of small gradients.
            for mine, theirs in zip(one, two, strict=True):
                assert _close(mine.get(key), theirs.get(key), rel=2e-2, absolute=2e-3), (name, key)


def test_progressive_networks_grow_on_time(families: Families, tmp_path: Path, lines_of: Lines) -> None:
    config, data = families["progressive"]
    _train(config, tmp_path, data)
    assert [line["resolution"] for line in _ticks(lines_of, tmp_path)] == [8, 8, 8, 16, 16, 16], "after each step"


def test_the_augmentation_adapts_in_steps_of_its_speed(families: Families, tmp_path: Path, lines_of: Lines) -> None:
    config, data = families["dcgan-ada"]
    _train(config.replace({"kimg": 0.12}), tmp_path, data)
    shown = [line["augment_p"] for line in _ticks(lines_of, tmp_path)]
    assert shown[:3] == [0, 0, 0]
    assert shown[3] in (0, pytest.approx(0.48)), "4 steps of 12 images by 100"
    assert shown[3:7] == [shown[3]] * 4
    assert any(shown), "or this shows nothing"


def test_labels_that_are_missing_are_named(families: Families, tmp_path: Path) -> None:
    config, data = families["r3gan"]
    images = ShardedImages.open(data)
    write_shards(tmp_path / "data", "folder", images.take(np.arange(len(images))))
    with pytest.raises(TrainerError, match=r"index\.json: .*label"):
        train(config, tmp_path / "run", tmp_path / "data", RunContext(), Interruption())
    assert not (tmp_path / "run" / "stats.jsonl").exists()
