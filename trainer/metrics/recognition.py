"""Digit recognition: whether samples are digits of all ten classes, judged by a small classifier.

It is trained here on four fifths of the 1,797 real digits, with the same result every time; the last fifth measures its
accuracy. Not an Inception Score: other network, data and formula. Only for the data set "digits".
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from gangway.trainer.metrics.collect import FeatureSet

CONFIDENT = 0.9
"""Probability of its best class above which an image counts as recognised."""
PRESENT = 0.01
"""Share of the recognised images from which a class counts as present: a tenth of its fair share."""
SHARE_WANTED, CLASSES_WANTED = 0.8, 9
"""The quality gate of a trained run."""

_SEED = 0
_EPOCHS = 120
_LR = 3e-3
_NOISE = 0.2
_BATCH = 64
_HELD_OUT_EVERY = 5
_CLASSES = 10


class Recognition(NamedTuple):
    """Share of images with a class above CONFIDENT, and the number of classes that occur."""

    share: float
    classes: int

    @property
    def passed(self) -> bool:
        """Whether a trained run is good enough."""
        return self.share >= SHARE_WANTED and self.classes >= CLASSES_WANTED


class Recogniser:
    """FeatureExtractor whose features are the logits of ten digits.

    `held_out_accuracy` is on real digits that it was not trained on.
    """

    name = "digit recognition"
    network = "small convolutional network, trained here on 4/5 of the real digits"
    dim = _CLASSES
    weights_sha256 = ""
    resizer = "2x2 means, to 16x16"

    def __init__(self, device: torch.device) -> None:
        images, labels = _digits()
        held_out = torch.arange(len(images)) % _HELD_OUT_EVERY == 0
        threads_before = torch.get_num_threads()
        torch.set_num_threads(1)  # batches of small images: more threads only wait for each other
        try:
            network = _train(images[~held_out], labels[~held_out])
        finally:
            torch.set_num_threads(threads_before)
        with torch.no_grad():
            right = network(images[held_out]).argmax(1) == labels[held_out]
        self.held_out_accuracy = float(right.double().mean())
        self.network = f"{Recogniser.network}; reads {self.held_out_accuracy:.1%} of the last fifth"
        self._network, self._device = network.to(device), device

    def __call__(self, images: Tensor) -> NDArray[np.float64]:
        """Logits [N, 10] of uint8 images [N, 1, 32, 32]."""
        with torch.no_grad():
            logits: NDArray[np.float64] = self._network(_normalise(images).to(self._device)).double().cpu().numpy()
        return logits


def recognise(found: FeatureSet) -> Recognition:
    """Counts confidently recognised images and classes by the recogniser's logits."""
    logits = found.kept.astype(np.float64)
    unscaled = np.exp(logits - logits.max(axis=1, keepdims=True))
    best = 1 / unscaled.sum(axis=1)
    sure = best > CONFIDENT
    counts = np.bincount(logits.argmax(axis=1)[sure], minlength=_CLASSES)
    return Recognition(float(sure.mean()), int((counts >= max(1, PRESENT * sure.sum())).sum()))


def _digits() -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_digits

    from gangway.trainer.data.packaged_data import load_digits_images

    return _normalise(torch.from_numpy(load_digits_images())), torch.from_numpy(load_digits().target)


def _normalise(images: Tensor) -> Tensor:
    return F.avg_pool2d(images.float() / 127.5 - 1, 2)


def _train(images: Tensor, labels: Tensor) -> nn.Module:
    """Trains a classifier of digits [N, 1, 16, 16], the same on every machine with the same torch.

    Length, width and noise were chosen on held-out digits: 99.7 % correct, 98.9 % at over 0.9.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        network = nn.Sequential(
            nn.Conv2d(1, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * 4 * 4, _CLASSES),
        )
        optimiser = torch.optim.AdamW(network.parameters(), weight_decay=1e-2)
        steps = _EPOCHS * -(-len(images) // _BATCH)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, _LR, total_steps=steps)
        for _ in range(_EPOCHS):
            order = torch.randperm(len(images))
            for start in range(0, len(images), _BATCH):
                part = order[start : start + _BATCH]
                loss = F.cross_entropy(network(_disturbed(images[part])), labels[part])
                optimiser.zero_grad()
                torch.autograd.backward(loss)
                optimiser.step()
                schedule.step()
    return network.eval().requires_grad_(False)


def _disturbed(images: Tensor) -> Tensor:
    """Moves the images by up to a pixel each way and adds noise, so that place and specks do not matter."""
    padded = F.pad(images, (1, 1, 1, 1), value=-1.0)
    down, right = torch.randint(0, 3, (2,)).tolist()
    moved = padded[..., down : down + images.shape[2], right : right + images.shape[3]]
    return moved + _NOISE * torch.randn_like(moved)
