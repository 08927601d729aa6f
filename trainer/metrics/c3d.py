"""C3D (Tran et al. 2015, arXiv:1412.0767) fine-tuned on UCF101: classes of clips, for the video Inception Score.

Prepared as in TGAN (Saito et al. 2017, arXiv:1611.06624): frames resized to 128x128, blue first, minus the mean clip,
the 112x112 centre. No hash of the authors' files is published, so the record holds what was found.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from gangway.trainer.core.errors import TrainerError
from gangway.trainer.core.files import sha256_of
from gangway.trainer.core.regular_files import open_file
from gangway.trainer.metrics.weights import WeightsFile, bad_weights, check_shapes

C3D_WEIGHTS = WeightsFile(
    file="conv3d_deepnetA_ucf.npz",
    flag="--video-weights",
    variable="GANGWAY_C3D_WEIGHTS",
    published="the C3D authors' c3d_ucf101_finetune_whole_iter_20000, converted by github.com/pfnet-research/tgan2, "
    "with mean2.npz of github.com/pfnet-research/tgan/releases beside it",
    sha256_prefix="",
    what_for="video IS",
    instead="fd-enl0-frames",
)
MEAN_FILE = "mean2.npz"
_CLASSES = 101
_FRAMES, _HEIGHT, _WIDTH = 16, 128, 171
_SIDE = 112
_CONVOLUTIONS = (
    # name, channels, pooling after it (time, height and width)
    ("conv1a", 64, (1, 2, 2)),
    ("conv2a", 128, (2, 2, 2)),
    ("conv3a", 256, None),
    ("conv3b", 256, (2, 2, 2)),
    ("conv4a", 512, None),
    ("conv4b", 512, (2, 2, 2)),
    ("conv5a", 512, None),
    ("conv5b", 512, (2, 2, 2)),
)
_HIDDEN = 4096


class C3D(nn.Module):
    """The network of the paper's section 3.3; names are those of the authors' layers."""

    def __init__(self) -> None:
        super().__init__()
        inputs = 3
        for name, channels, _ in _CONVOLUTIONS:
            self.add_module(name, nn.Conv3d(inputs, channels, 3, padding=1))
            inputs = channels
        self.fc6 = nn.Linear(inputs * 4 * 4, _HIDDEN)
        self.fc7 = nn.Linear(_HIDDEN, _HIDDEN)
        self.fc8 = nn.Linear(_HIDDEN, _CLASSES)

    def forward(self, clips: Tensor) -> Tensor:
        """Logits [N, 101] of prepared clips [N, 3, 16, 112, 112]."""
        features = clips
        for name, _, pooling in _CONVOLUTIONS:
            features = F.relu(self.get_submodule(name)(features))
            if pooling:
                # Seven rows become four as in Caffe, which rounds up.
                features = F.max_pool3d(features, pooling, ceil_mode=True)
        hidden = F.relu(self.fc7(F.relu(self.fc6(features.flatten(1)))))
        logits: Tensor = self.fc8(hidden)
        return logits


class C3DFeatures:
    """FeatureExtractor with logits of UCF101's classes (TrainerError: no weights, or no mean clip beside them)."""

    name = "video IS"
    network = "C3D fine-tuned on UCF101, 101 logits"
    dim = _CLASSES
    resizer = f"bicubic, not antialiased, to 128x128; mean clip subtracted; centre {_SIDE}x{_SIDE}; blue first"

    def __init__(self, device: torch.device, weights: Path | None = None) -> None:
        path = C3D_WEIGHTS.find(weights)
        self.weights_sha256 = C3D_WEIGHTS.verify(path)
        with torch.device("meta"):
            network = C3D()
        state = {_torch_name(name): torch.from_numpy(array) for name, array in _arrays(path).items()}
        check_shapes(path, state, network.state_dict())
        network.load_state_dict(state, assign=True)
        self._network = network.eval().requires_grad_(False).to(device)
        self._device = device
        mean = path.with_name(MEAN_FILE)
        self._mean = _central_mean(mean).to(device)
        self.resizer = f"{C3DFeatures.resizer}; {MEAN_FILE} sha256 {sha256_of(mean)}"

    def __call__(self, images: Tensor) -> NDArray[np.float64]:
        """Logits [N, 101] of uint8 clips [N, 3, 16, H, W]."""
        clips = images.to(self._device).float()
        frames = clips.transpose(1, 2).flatten(0, 1)
        resized = F.interpolate(frames, size=(_HEIGHT, _HEIGHT), mode="bicubic")
        clips = resized.reshape(len(images), _FRAMES, *resized.shape[1:]).transpose(1, 2)
        prepared = _crop(clips.flip(1)) - self._mean
        with torch.no_grad():
            logits: NDArray[np.float64] = self._network(prepared).double().cpu().numpy()
        return logits


def _crop(clips: Tensor) -> Tensor:
    start = (_HEIGHT - _SIDE) // 2
    return clips[..., start : start + _SIDE, start : start + _SIDE]


def _central_mean(path: Path) -> Tensor:
    if not path.is_file():
        raise TrainerError(
            place=str(path),
            problem="C3D needs its mean clip beside its weights",
            allowed=MEAN_FILE,
            fix=f"download it once ({C3D_WEIGHTS.published})",
        )
    mean = _arrays(path).get("mean", np.empty(0))
    if mean.size != 3 * _FRAMES * _HEIGHT * _WIDTH:
        raise TrainerError(
            place=f"{path}: mean",
            problem="is not a mean clip",
            value=f"shape {mean.shape}",
            allowed=f"shape (3, {_FRAMES}, {_HEIGHT}, {_WIDTH})",
            fix="download it anew",
        )
    clip = torch.from_numpy(mean.astype(np.float32)).reshape(3, _FRAMES, _HEIGHT, _WIDTH)
    left = (_WIDTH - _HEIGHT) // 2
    return _crop(clip[..., left : left + _HEIGHT])


def _arrays(path: Path) -> Mapping[str, NDArray[np.float32]]:
    try:
        with open_file(path) as file, np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)
    except (OSError, ValueError, EOFError) as error:
        raise bad_weights(path, f"cannot be read as arrays: {error}", "a file of plain arrays (.npz)") from None


def _torch_name(name: str) -> str:
    layer, _, kind = name.partition("/")
    return f"{layer}.{ {'W': 'weight', 'b': 'bias'}.get(kind, kind) }"
