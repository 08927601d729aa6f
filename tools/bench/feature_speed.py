"""Speed of a metric's features beside torch-fidelity, a ratio in one run: `python -m tools.bench.feature_speed`."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gangway.trainer.core.host import usable_cores
from gangway.trainer.distributed.world import World
from gangway.trainer.metrics.collect import collect
from gangway.trainer.metrics.inception import InceptionFeatures, reference_network
from gangway.trainer.metrics.weights import WeightsFile

RANDOM_WEIGHTS = WeightsFile(
    file="random-inception.pth",
    flag="--weights",
    variable="GANGWAY_RANDOM_INCEPTION_WEIGHTS",
    published="made here, of random values",
    sha256_prefix="",
    what_for="measurements of speed",
    instead="fd-enl0",
)
"""Stands where the published file would: its features mean nothing."""

_FEATURE_BATCH = 64
"""torch-fidelity's default."""


class FeatureSpeed(NamedTuple):
    """Images per second of both, best of the rounds; `largest_difference`: relative to the largest feature."""

    ours: float
    torch_fidelity: float
    ratio: float
    largest_difference: float


def feature_speed(num_images: int = 64, rounds: int = 2, resolution: int = 32) -> FeatureSpeed:
    """Both on random images, on the GPU if there is one; a busy machine needs more `rounds`; `resolution`: pixels."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / RANDOM_WEIGHTS.file
        write_random_weights(path)
        extractor = InceptionFeatures(device, path, published=RANDOM_WEIGHTS)
        theirs = reference_network(path).to(device)
    shape = (num_images, 3, resolution, resolution)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    alone = World(0, 0, 1, 0, 1, device, "none", "one process")

    def run_ours() -> Tensor:
        found = collect(lambda part: extractor(images[part]), num_images, extractor.dim, alone, keep=True)
        return torch.from_numpy(found.kept)

    def run_theirs() -> Tensor:
        with torch.no_grad():
            return torch.cat(
                [
                    theirs(images[s : s + _FEATURE_BATCH].to(device))[0].cpu()
                    for s in range(0, num_images, _FEATURE_BATCH)
                ]
            )

    threads_before = torch.get_num_threads()
    torch.set_num_threads(usable_cores())
    try:
        difference = (run_ours() - run_theirs()).abs().max() / run_theirs().abs().max()
        seconds = np.array([[_seconds(run_ours), _seconds(run_theirs)] for _ in range(rounds)]).min(axis=0)
    finally:
        torch.set_num_threads(threads_before)
    ours, torch_fidelity = (num_images / seconds).tolist()
    return FeatureSpeed(ours, torch_fidelity, ours / torch_fidelity, float(difference))


def write_random_weights(path: Path) -> None:
    """A file of random values under the names and in the shapes of the Inception weights."""
    random = torch.Generator().manual_seed(0)
    state = reference_network().state_dict()
    for name, values in state.items():
        if name.endswith("conv.weight"):
            values.normal_(0, (2 / values[0].numel()) ** 0.5, generator=random)
        elif name.endswith(("bn.running_mean", "bn.bias")):
            values.normal_(0, 0.1, generator=random)
        elif name.endswith("bn.running_var"):
            values.uniform_(0.5, 1.5, generator=random)
        elif name.startswith("fc."):
            values.normal_(0, 0.1, generator=random)
    torch.save(state, path)


def _seconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


if __name__ == "__main__":
    print(feature_speed())
