"""Loading a run's averaged generator: the right weights, from the newest checkpoint that is whole."""

from pathlib import Path

import pytest
import torch

from gangway.trainer.checkpoint import store
from gangway.trainer.checkpoint.samples import load_generator
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.records.digest import RunIdentity
from gangway.trainer.steps.state import TrainState

IDENTITY = RunIdentity(run_id="r", session=0, dataset_sha256="ab")
CPU = torch.device("cpu")


def _save(run_dir: Path, config: TrainConfig, images: int) -> TrainState:
    state = TrainState.create(config.replace({"seed": images}), CPU)
    state.images = images
    with torch.no_grad():
        for parameter in state.ema.parameters():
            parameter.add_(0.5)
    store.save(run_dir / "checkpoints", state.state_dict(), config, images, IDENTITY)
    return state


def test_it_is_the_averaged_one_of_the_newest_whole_checkpoint(
    tmp_path: Path, tiny_config: TrainConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    older = _save(tmp_path, tiny_config, 160)
    _save(tmp_path, tiny_config, 320)
    (tmp_path / "checkpoints/000000000320.pt").write_bytes(b"cut short")
    trained = load_generator(tmp_path, CPU)
    assert trained.manifest.images == 160
    assert "passed over a checkpoint" in capsys.readouterr().out
    assert not trained.network.training
    assert not any(parameter.requires_grad for parameter in trained.network.parameters())
    latents = torch.randn(2, tiny_config.z_dim)
    assert torch.equal(trained.network(latents), older.ema(latents))
    assert not torch.equal(trained.network(latents), older.generator(latents))


def test_a_run_without_a_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match="--run-dir: holds no run"):
        load_generator(tmp_path, CPU)
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(TrainerError, match="--run-dir: holds no checkpoint yet"):
        load_generator(tmp_path, CPU)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_run_of_a_cpu_makes_the_same_images_on_a_gpu(tmp_path: Path, tiny_config: TrainConfig) -> None:
    _save(tmp_path, tiny_config, 160)
    latents = torch.randn(2, tiny_config.z_dim)
    here, there = (load_generator(tmp_path, device).network for device in (CPU, torch.device("cuda")))
    assert torch.allclose(here(latents), there(latents.cuda()).cpu(), atol=1e-3)
