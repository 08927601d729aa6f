"""Phases: a pure function of images seen that grows in order, and real images that follow it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from gangway.trainer.config.network_size import size_at
from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.networks.progressive_schedule import ProgressiveStage, enlarge, fade_at, phase_at, pool, shrink

CPU = torch.device("cpu")
PROGRESSIVE = PRESETS["progan-celeba128"]


def _config(stable: float = 1.0, fade: float = 1.0, resolution: int = 32) -> TrainConfig:
    return PROGRESSIVE.replace({"stable_kimg": stable, "fade_kimg": fade, "resolution": resolution})


def test_each_resolution_fades_in_and_lasts() -> None:
    config = _config(stable=2.0, fade=1.0, resolution=16)
    schedule = [fade_at(config, images) for images in (0, 1999, 2000, 2500, 3000, 4999, 5000, 5250, 6000, 10**9)]
    assert schedule == [(4, 1), (4, 1), (8, 0), (8, 0.5), (8, 1), (8, 1), (16, 0), (16, 0.25), (16, 1), (16, 1)]


def test_without_a_fade_the_next_resolution_is_there_at_once() -> None:
    assert [fade_at(_config(fade=0.0), images) for images in (999, 1000, 2000, 3000)] == [
        (4, 1),
        (8, 1),
        (16, 1),
        (32, 1),
    ]


@given(
    stable=st.floats(0.01, 100),
    fade=st.floats(0, 100),
    resolution=st.sampled_from([16, 32, 64, 128, 256]),
    images=st.integers(0, 10**6),
    further=st.integers(0, 10**5),
)
def test_a_run_only_ever_grows(stable: float, fade: float, resolution: int, images: int, further: int) -> None:
    config = _config(stable, fade, resolution)
    early, late = fade_at(config, images), fade_at(config, images + further)
    assert early <= late, "first by resolution, then by fade"
    assert 4 <= early[0] <= resolution
    assert 0 <= early[1] <= 1
    assert early == fade_at(config, images)
    whole = round(1000 * (stable + (stable + fade) * 10)) + 1
    assert fade_at(config, whole) == (resolution, 1)


def test_other_networks_have_one_phase() -> None:
    for name in ("dcgan-digits", "r3gan-cifar10"):
        assert phase_at(PRESETS[name], 5000, CPU) == ProgressiveStage(32)


def test_a_fade_is_a_tensor_and_its_end_is_none() -> None:
    config = _config()
    phase = phase_at(config, 1500, CPU)
    assert phase.resolution == 8
    assert phase.fade is not None
    assert phase.fade == torch.tensor(0.5)
    assert phase_at(config, 2000, CPU) == ProgressiveStage(8)


def test_clips_grow_in_time_until_they_are_whole() -> None:
    assert [size_at(resolution, 16) for resolution in (4, 8, 16, 32)] == [
        (4, 4, 4),
        (8, 8, 8),
        (16, 16, 16),
        (16, 32, 32),
    ]
    assert size_at(8, 1) == (8, 8)


@pytest.mark.parametrize("shape", [(2, 3, 16, 16), (2, 3, 8, 16, 16)], ids=["images", "clips"])
def test_real_images_are_averaged_down_and_faded(shape: tuple[int, ...]) -> None:
    images = torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    frames = shape[2] if len(shape) == 5 else 1
    whole = shrink(images, ProgressiveStage(16))
    assert whole is images, "nothing to do at full size"
    small = shrink(images, ProgressiveStage(8))
    assert tuple(small.shape[2:]) == size_at(8, frames)
    torch.testing.assert_close(small.mean(), images.mean())
    torch.testing.assert_close(
        small[0, 0].flatten()[0], images[0, 0][..., :2, :2].mean() if frames == 1 else small[0, 0].flatten()[0]
    )
    coarse = enlarge(shrink(images, ProgressiveStage(4)), size_at(8, frames))
    torch.testing.assert_close(shrink(images, ProgressiveStage(8, torch.tensor(0.0))), coarse)
    torch.testing.assert_close(shrink(images, ProgressiveStage(8, torch.tensor(1.0))), small)
    torch.testing.assert_close(shrink(images, ProgressiveStage(8, torch.tensor(0.25))), 0.75 * coarse + 0.25 * small)


@pytest.mark.parametrize("size", [(4, 4, 4), (8, 4, 4), (2, 8, 2)])
def test_pooling_clips_is_torchs_own(size: tuple[int, ...]) -> None:
    clips = torch.rand(2, 3, 8, 8, 8, dtype=torch.float64, requires_grad=True)
    expected = F.avg_pool3d(clips, tuple(8 // each for each in size))
    torch.testing.assert_close(pool(clips, size), expected)
    ((found,), (wanted,)) = (torch.autograd.grad(made.square().sum(), clips) for made in (pool(clips, size), expected))
    torch.testing.assert_close(found, wanted)


def test_pooling_undoes_repeating() -> None:
    clips = torch.rand(1, 2, 4, 4, 4)
    torch.testing.assert_close(pool(enlarge(clips, (8, 16, 16)), (4, 4, 4)), clips)
