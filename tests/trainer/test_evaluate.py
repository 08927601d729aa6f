"""Judging a run: the three distances with a small extractor, and the record they end in."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainer.config import TrainConfig
from trainer.data import open_matching
from trainer.data.digits import load_digits_images
from trainer.data.shards import write_shards
from trainer.errors import TrainerError
from trainer.evaluate import evaluate, judge
from trainer.interruption import Interruption
from trainer.loop import train
from trainer.networks import build
from trainer.record import QualityRecord, RunContext, RunRecord

CPU = torch.device("cpu")


class Shrunk:
    """A FeatureExtractor that sees a 4x4 picture: enough to tell digits from noise."""

    name = "FD-4x4"
    network = "mean of 8x8 blocks"
    dim = 16
    weights_sha256 = ""
    resizer = "none"

    def __call__(self, images: Tensor) -> NDArray[np.float64]:
        return nn.functional.avg_pool2d(images.double(), 8).flatten(1).numpy()


class Memorised(nn.Module):
    """A perfect generator: it shows real images."""

    def __init__(self, images: NDArray[np.uint8]) -> None:
        super().__init__()
        self._images = torch.from_numpy(images)

    def forward(self, latents: Tensor) -> Tensor:
        chosen = self._images[(latents[:, 0].abs() * 1e6).long() % len(self._images)]
        return chosen.float() / 127.5 - 1


def _value(quality: QualityRecord, name: str) -> float:
    value = getattr(quality, name).value
    assert isinstance(value, float)
    return value


def test_a_perfect_generator_is_as_close_as_real_images_are(tiny_config: TrainConfig, digits_dir: Path) -> None:
    config = tiny_config.replace({"metrics_samples": 1000})
    data = open_matching(config, digits_dir)
    quality = judge(Shrunk(), Memorised(data.take(np.arange(1797))), config, data, CPU, images=2000)
    assert _value(quality, "trained") < 3 * _value(quality, "real_vs_real")
    assert _value(quality, "trained") < _value(quality, "untrained") / 20
    assert quality.protocol.num_reals == 1797
    assert (quality.protocol.num_real_halves, quality.protocol.kimg) == (898, 2)
    assert quality.protocol.split == "all images"


def test_the_untrained_generator_as_trained_has_equal_distances(tiny_config: TrainConfig, digits_dir: Path) -> None:
    data = open_matching(tiny_config, digits_dir)
    generator, _ = build(tiny_config)
    quality = judge(Shrunk(), generator, tiny_config, data, CPU, images=0)
    assert _value(quality, "trained") == _value(quality, "untrained")
    assert quality.protocol.split == "64 of 1797 images, drawn by the seed"


def test_evaluating_a_run_updates_its_record(
    tiny_config: TrainConfig, tmp_path: Path, digits_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tiny_config.replace({"kimg": 0.16}), tmp_path, digits_dir, RunContext(), Interruption())
    monkeypatch.setattr("trainer.evaluate.EfficientNetLite0Features", lambda device: Shrunk())
    evaluate(tmp_path, digits_dir, None)
    record = evaluate(tmp_path, digits_dir, samples=20)
    assert RunRecord.read(tmp_path / "run.json") == record
    (quality,) = record.quality
    assert (quality.name, quality.protocol.num_fakes, quality.protocol.num_reals) == ("FD-4x4", 20, 40)
    assert record.status == "done"
    assert record.sessions[0].ended_by == "done"


def test_a_corrupt_checkpoint_is_passed_over_aloud(
    tiny_config: TrainConfig,
    tmp_path: Path,
    digits_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = tiny_config.replace({"kimg": 0.16, "checkpoint_kimg": 0.08})
    train(config, tmp_path, digits_dir, RunContext(), Interruption())
    (tmp_path / "checkpoints/000000000160.pt").write_bytes(b"nonsense")
    monkeypatch.setattr("trainer.evaluate.EfficientNetLite0Features", lambda device: Shrunk())
    assert evaluate(tmp_path, digits_dir, 16).quality[0].protocol.kimg == 0.08
    assert "passed over" in capsys.readouterr().out


def test_what_cannot_be_judged_is_told_before_the_work(
    tiny_config: TrainConfig, tmp_path: Path, digits_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = tmp_path / "run"
    train(tiny_config.replace({"kimg": 0.16}), run_dir, digits_dir, RunContext(), Interruption())
    monkeypatch.setattr("trainer.evaluate.EfficientNetLite0Features", lambda device: pytest.fail("work was begun"))
    write_shards(tmp_path / "other", "digits", load_digits_images()[::-1])
    with pytest.raises(TrainerError, match="--data: the shards in"):
        evaluate(run_dir, tmp_path / "other", None)
    with pytest.raises(TrainerError, match=r"TrainConfig\.metrics_samples: not an accepted value"):
        evaluate(run_dir, digits_dir, "1")
    (run_dir / "config.json").write_text("{")
    with pytest.raises(TrainerError, match=r"config\.json: is not JSON"):
        evaluate(run_dir, digits_dir, None)
    for path in (run_dir / "checkpoints").iterdir():
        path.unlink()
    (run_dir / "config.json").write_text(tiny_config.to_json())
    with pytest.raises(TrainerError, match="--run-dir: holds no checkpoint to judge yet"):
        evaluate(run_dir, digits_dir, None)
