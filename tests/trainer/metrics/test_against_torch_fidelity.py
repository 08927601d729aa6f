"""FID, IS and KID: our numbers against torch-fidelity's own calculate_metrics, on the same images and weights.

The weights are RANDOM values of the true shapes; the two computations must agree on any.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from gangway.trainer.distributed.world import World
from gangway.trainer.metrics import scores
from gangway.trainer.metrics.collect import FeatureSet, collect, frechet_distance
from gangway.trainer.metrics.inception import InceptionFeatures
from tools.bench.feature_speed import RANDOM_WEIGHTS

NUM = 20


class Images(Dataset[torch.Tensor]):
    """Coloured smooth pictures, of another brightness and colour for each seed."""

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        coarse = torch.from_numpy(random.uniform(0, 200 + 55 * seed, (NUM, 3, 4, 4)))
        fine = torch.nn.functional.interpolate(coarse, size=(32, 32), mode="bilinear")
        self.images = fine.clamp(0, 255).to(torch.uint8)

    def __len__(self) -> int:
        return NUM

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.images[index]


@pytest.fixture(scope="module")
def both(random_weights: Path, alone: World) -> tuple[InceptionFeatures, FeatureSet, FeatureSet]:
    extractor = InceptionFeatures(torch.device("cpu"), random_weights, published=RANDOM_WEIGHTS)

    def found(images: torch.Tensor) -> FeatureSet:
        return collect(lambda part: extractor(images[part]), NUM, extractor.dim, alone, keep=True)

    return extractor, found(Images(0).images), found(Images(1).images)


@pytest.fixture(scope="module")
def theirs(random_weights: Path) -> dict[str, float]:
    from torch_fidelity import calculate_metrics  # type: ignore[import-untyped]  # publishes no types

    with pytest.MonkeyPatch.context() as patch:
        # Its general eigenvalues of a 2048x2048 matrix take minutes here; this one has rank 19.
        patch.setattr("torch_fidelity.metric_fid.np", FewEigenvalues())
        metrics: dict[str, float] = calculate_metrics(
            input1=Images(0),
            input2=Images(1),
            cuda=False,
            fid=True,
            isc=True,
            kid=True,
            kid_subset_size=NUM - 2,
            cache=False,
            verbose=False,
            save_cpu_ram=True,
            feature_extractor_weights_path=str(random_weights),
        )
    return metrics


class FewEigenvalues:
    """NumPy, but for the eigenvalues of a matrix of low rank: those of the matrix within its own range."""

    linalg: "FewEigenvalues"

    def __init__(self) -> None:
        self.linalg = self

    def __getattr__(self, name: str) -> object:
        return getattr(np, name)

    def eigvals(self, product: NDArray[np.float64]) -> NDArray[np.complex128]:
        probes = np.random.default_rng(0).normal(size=(len(product), 2 * NUM))
        basis, _ = np.linalg.qr(product @ probes)
        return np.linalg.eigvals(basis.T @ product @ basis).astype(np.complex128)


@pytest.mark.slow
def test_fid(both: tuple[InceptionFeatures, FeatureSet, FeatureSet], theirs: dict[str, float]) -> None:
    _, first, second = both
    assert frechet_distance(first.moments, second.moments) == pytest.approx(
        theirs["frechet_inception_distance"], rel=1e-4
    )


@pytest.mark.slow
def test_inception_score(both: tuple[InceptionFeatures, FeatureSet, FeatureSet], theirs: dict[str, float]) -> None:
    extractor, first, _ = both
    ours = scores.inception_score(extractor.logits(first.kept))
    assert ours.mean == pytest.approx(theirs["inception_score_mean"], rel=1e-4)
    assert ours.std == pytest.approx(theirs["inception_score_std"], rel=1e-2)
    assert ours.mean > 1.0001, "the test would see nothing at all in a score of 1"


@pytest.mark.slow
def test_kernel_inception_distance(
    both: tuple[InceptionFeatures, FeatureSet, FeatureSet], theirs: dict[str, float], alone: World
) -> None:
    _, first, second = both
    ours = scores.kernel_distance(first.kept, second.kept, NUM - 2, alone)
    assert ours.mean == pytest.approx(theirs["kernel_inception_distance_mean"], rel=1e-4)
    assert ours.std == pytest.approx(theirs["kernel_inception_distance_std"], rel=1e-3)
