"""C3D: the published shapes, the authors' files read without running anything, TGAN's way to prepare clips."""

from pathlib import Path

import numpy as np
import pytest
import torch

from gangway.trainer.core.errors import TrainerError
from gangway.trainer.metrics import c3d
from gangway.trainer.metrics.c3d import C3D, MEAN_FILE, C3DFeatures

CPU = torch.device("cpu")
SHAPES = {
    "conv1a": (64, 3, 3, 3, 3),
    "conv2a": (128, 64, 3, 3, 3),
    "conv3a": (256, 128, 3, 3, 3),
    "conv3b": (256, 256, 3, 3, 3),
    "conv4a": (512, 256, 3, 3, 3),
    "conv4b": (512, 512, 3, 3, 3),
    "conv5a": (512, 512, 3, 3, 3),
    "conv5b": (512, 512, 3, 3, 3),
    "fc6": (4096, 8192),
    "fc7": (4096, 4096),
    "fc8": (101, 4096),
}
"""Of the authors' Caffe model, as published with the paper."""


def test_the_architecture_has_the_published_shapes() -> None:
    with torch.device("meta"):
        network = C3D()
        assert network(torch.empty(2, 3, 16, 112, 112)).shape == (2, 101)
    found = {
        name.removesuffix(".weight"): tuple(v.shape) for name, v in network.state_dict().items() if "weight" in name
    }
    assert found == SHAPES
    assert sum(value.numel() for value in network.state_dict().values()) == pytest.approx(78.4e6, rel=0.01)


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same network with a few channels, so that a test has not 300 MB to write."""
    thin = tuple((name, channels // 64, pooling) for name, channels, pooling in c3d._CONVOLUTIONS)
    monkeypatch.setattr(c3d, "_CONVOLUTIONS", thin)
    monkeypatch.setattr(c3d, "_HIDDEN", 8)


def _write(folder: Path, **arrays: np.ndarray) -> Path:
    """Random values, in the layout of the authors' files as Chainer writes them."""
    torch.manual_seed(0)
    path = folder / "conv3d_deepnetA_ucf.npz"
    state = {
        name.replace(".weight", "/W").replace(".bias", "/b"): value.numpy()
        for name, value in C3D().state_dict().items()
    }
    with path.open("wb") as file:
        np.savez(file, **{**state, **arrays})
    with (folder / MEAN_FILE).open("wb") as file:
        np.savez(file, mean=np.random.default_rng(0).normal(100, 5, (3, 16, 128, 171)))
    return path


@pytest.mark.usefixtures("narrow")
def test_clips_are_prepared_as_tgan_does(tmp_path: Path) -> None:
    extractor = C3DFeatures(CPU, _write(tmp_path))
    clips = torch.randint(0, 256, (2, 3, 16, 128, 128), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    mean = torch.from_numpy(np.load(tmp_path / MEAN_FILE)["mean"]).float()[..., 8:120, 29:141]
    by_hand = clips.float()[:, [2, 1, 0], :, 8:120, 8:120] - mean
    with torch.no_grad():
        expected = extractor._network(by_hand)
    np.testing.assert_allclose(extractor(clips), expected.numpy(), rtol=1e-3, atol=1e-4)
    assert extractor(clips[..., ::4, ::4]).shape == (2, 101), "any size is brought to 128x128"
    assert "mean2.npz sha256" in extractor.resizer


@pytest.mark.usefixtures("narrow")
def test_files_that_do_not_fit_are_named(tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match=r"--video-weights\): .*conv3d_deepnetA_ucf\.npz"):
        C3DFeatures(CPU)
    path = _write(tmp_path, **{"fc8/b": np.zeros(7, np.float32)})
    with pytest.raises(TrainerError, match=r"fc8\.bias: the weights do not fit"):
        C3DFeatures(CPU, path)
    path = _write(tmp_path)
    (tmp_path / MEAN_FILE).unlink()
    with pytest.raises(TrainerError, match="needs its mean clip"):
        C3DFeatures(CPU, path)
    with (tmp_path / MEAN_FILE).open("wb") as file:
        np.savez(file, mean=np.zeros((3, 4)))
    with pytest.raises(TrainerError, match=r"mean2\.npz: mean: is not a mean clip"):
        C3DFeatures(CPU, path)


@pytest.mark.usefixtures("narrow")
def test_nothing_in_a_file_is_run(tmp_path: Path) -> None:
    path = _write(tmp_path, code=np.array([print], dtype=object))
    with pytest.raises(TrainerError, match="cannot be read as arrays"):
        C3DFeatures(CPU, path)
    path.write_bytes(b"nonsense")
    with pytest.raises(TrainerError, match="cannot be read as arrays"):
        C3DFeatures(CPU, path)
