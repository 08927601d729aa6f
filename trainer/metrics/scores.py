"""Scores from features or logits: Inception Score and kernel distance, as the papers and torch-fidelity compute
them; precision, recall, density and coverage by nearest neighbours; digits recognised by a small classifier.
"""

import itertools
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from gangway.trainer.distributed.world import World
from gangway.trainer.metrics.collect import Ask, FeatureSet, go_on, shared

SEED = 2020  # torch-fidelity's
SPLITS = 10
KID_SUBSETS = 100
NEIGHBOURS = 3
COVERAGE_NEIGHBOURS = 5
_BLOCK = 2048  # Rows of a block of distances: 2048 of 50,000 in float64 are 0.8 GB


class Spread(NamedTuple):
    """Mean and standard deviation over splits or subsets."""

    mean: float
    std: float


def inception_score(logits: NDArray[np.float64], *, splits: int = SPLITS, shuffle: bool = True) -> Spread:
    """Scores logits [N, classes] by exp of images' mean KL divergence from their split (Salimans et al. 2016)."""
    num = len(logits)
    if shuffle:
        logits = logits[np.random.RandomState(SEED).permutation(num)]
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    scores = []
    for split in range(splits):
        part = log_p[split * num // splits : (split + 1) * num // splits]
        # Through logarithms: a class that no image of the split may be has a mean probability of 0 in float64.
        log_q = np.logaddexp.reduce(part, axis=0) - np.log(len(part))
        divergence = (np.exp(part) * (part - log_q)).sum(axis=1)
        scores.append(np.exp(divergence.mean()))
    return Spread(float(np.mean(scores)), float(np.std(scores)))


def kernel_distance(
    first: NDArray[np.float32],
    second: NDArray[np.float32],
    subset_size: int,
    world: World,
    *,
    subsets: int = KID_SUBSETS,
    ask: Ask = go_on,
) -> Spread:
    """Squared maximum mean discrepancy of two sets, unbiased, kernel (x.y / dim + 1)^3 (Binkowski et al. 2018).
    Features [N, dim] and [M, dim] are the same on every worker, and so is the result; `subset_size` is from 2 to the
    smaller of N and M. AbandonedError on every worker, when one has asked for it, before an estimate.
    """
    random = np.random.RandomState(SEED)
    # All drawn here, so that draws do not depend on which worker makes an estimate.
    draws = [[random.choice(len(x), subset_size, replace=False) for x in (first, second)] for _ in range(subsets)]
    estimates = shared([partial(_discrepancy, first, second, *rows) for rows in draws], world, ask)
    return Spread(float(np.mean(estimates)), float(np.std(estimates)))


def _discrepancy(
    first: NDArray[np.float32], second: NDArray[np.float32], firsts: NDArray[np.int64], seconds: NDArray[np.int64]
) -> float:
    x, y = first[firsts], second[seconds]
    pairs = len(x) * (len(x) - 1)
    within = sum(kernel.sum() - kernel.trace() for kernel in (_cubic(x, x), _cubic(y, y)))
    return float(within / pairs - 2 * _cubic(x, y).mean())


def _cubic(x: NDArray[np.float32], y: NDArray[np.float32]) -> NDArray[np.float64]:
    """Computes the kernel of all pairs, [len(x), len(y)]; products in float32, as the features, the rest in float64."""
    kernel: NDArray[np.float64] = ((x @ y.T).astype(np.float64) / x.shape[1] + 1) ** 3
    return kernel


class Manifolds(NamedTuple):
    """Relation of two sets, each a share in 0..1; density can exceed 1."""

    precision: float
    recall: float
    density: float
    coverage: float


def compare(reals: NDArray[np.float32], fakes: NDArray[np.float32], world: World, *, ask: Ask = go_on) -> Manifolds:
    """Computes all four from features [N, dim] and [M, dim], rows divided over workers; the same on all of them."""
    # In float64 and near the origin: as a difference of squares, the distance of nearly equal images loses digits.
    centre = reals.mean(axis=0, dtype=np.float64)
    real, fake = (torch.from_numpy(features - centre).to(world.own_device) for features in (reals, fakes))
    real_near = _by_rows(real, lambda rows: _nearest(rows, real), world, ask)
    fake_near = _by_rows(fake, lambda rows: _nearest(rows, fake), world, ask)
    real_radius, wide_radius = real_near[:, NEIGHBOURS], real_near[:, COVERAGE_NEIGHBOURS]

    def of_fakes(rows: Tensor) -> Tensor:
        distances = _distances(rows, real)
        inside = distances <= wide_radius
        return torch.stack([(distances <= real_radius).any(1), inside.sum(1)], dim=1).double()

    def of_reals(rows: Tensor) -> Tensor:
        distances = _distances(rows, fake)
        return torch.stack([(distances <= fake_near[:, NEIGHBOURS]).any(1).double(), distances.amin(1)], dim=1)

    by_fake = _by_rows(fake, of_fakes, world, ask)
    by_real = _by_rows(real, of_reals, world, ask)
    return Manifolds(
        precision=float(by_fake[:, 0].mean()),
        recall=float(by_real[:, 0].mean()),
        density=float(by_fake[:, 1].mean()) / COVERAGE_NEIGHBOURS,
        coverage=float((by_real[:, 1] <= wide_radius).double().mean()),
    )


def _nearest(rows: Tensor, among: Tensor) -> Tensor:
    """Returns squared distances of each row to its neighbours from 0 (itself) to COVERAGE_NEIGHBOURS, ascending."""
    return _distances(rows, among).topk(COVERAGE_NEIGHBOURS + 1, dim=1, largest=False).values


def _distances(rows: Tensor, among: Tensor) -> Tensor:
    squares = rows.square().sum(1)[:, None] + among.square().sum(1)
    return torch.addmm(squares, rows, among.T, alpha=-2).clamp_min(0)


def _by_rows(features: Tensor, of: Callable[[Tensor], Tensor], world: World, ask: Ask) -> Tensor:
    def block(start: int) -> list[list[float]]:
        found: list[list[float]] = of(features[start : start + _BLOCK]).tolist()
        return found

    blocks = [partial(block, start) for start in range(0, len(features), _BLOCK)]
    rows = itertools.chain.from_iterable(shared(blocks, world, ask, list[list[float]]))
    return torch.tensor([*rows], dtype=features.dtype).to(features.device)


CONFIDENT = 0.9  # Probability of its best class above which an image counts as recognised
PRESENT = 0.01  # Share of the recognised images from which a class counts as present: a tenth of its fair share
SHARE_WANTED, CLASSES_WANTED = 0.8, 9  # The quality gate of a trained run

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
    """FeatureExtractor of ten digits' logits, trained here on four fifths of the real digits; no Inception Score."""

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
    """Trained on digits [N, 1, 16, 16]; length, width and noise were chosen on held-out ones: 99.7 % correct."""
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
