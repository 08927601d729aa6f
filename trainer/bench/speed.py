"""Speed of a step and of a metric's features, as ratios in one run."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from trainer.bench.measuring import SAME_LOSSES_STEPS, TITLES, Bench, ahead, medians
from trainer.bench.results import Result
from trainer.bench.runs import environment, train_whole
from trainer.config.train_config import TrainConfig
from trainer.distributed.world import World
from trainer.metrics.collect import collect
from trainer.metrics.inception import InceptionFeatures, reference_network
from trainer.metrics.weights import WeightsFile

__all__ = [
    "RANDOM_WEIGHTS",
    "FeatureSpeed",
    "against_textbook",
    "convolution_gflops",
    "feature_speed",
    "narrow",
    "write_random_weights",
]


_BATCH, _CHANNELS, _SIZE, _KERNEL = 32, 256, 32, 3
_ROUNDS = 12


def convolution_gflops(threads: int) -> float:
    """GFLOP/s of an fp32 convolution, the best of some, in a process of its own with so many threads."""
    argv = [sys.executable, "-m", "trainer.bench.speed", str(threads)]
    done = subprocess.run(argv, env=environment(threads), capture_output=True, text=True, check=True)
    found: float = json.loads(done.stdout)["gflops"]
    return found


def _measured(threads: int) -> float:
    import torch

    torch.set_num_threads(threads)
    # Without padding: zeros around the images would be counted and not be computed.
    images = torch.randn(_BATCH, _CHANNELS, *[_SIZE + _KERNEL - 1] * 2).contiguous(memory_format=torch.channels_last)
    kernels = torch.randn(_CHANNELS, _CHANNELS, _KERNEL, _KERNEL).contiguous(memory_format=torch.channels_last)
    times = []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        torch.nn.functional.conv2d(images, kernels)
        times.append(time.perf_counter() - began)
    return 2 * _BATCH * _SIZE**2 * kernels.numel() / min(times) / 1e9


if __name__ == "__main__":
    print(json.dumps({"gflops": _measured(int(sys.argv[1]))}))


_LOSSES = ("loss_g", "loss_d")
_SAME_LOSSES = 1e-2
"""Rounding in another order grows with the steps, as all differences do in a game of two networks."""
_TEXTBOOK, _REUSING = "textbook", "textbook, fakes reused"
_OURS, _CONTIGUOUS, _LOW = "ours", "ours, contiguous", "ours, bf16"


def against_textbook(bench: Bench) -> Iterator[Result]:
    """Ours against the tutorial's loop at P2's size, and which part gave what."""
    rates = _rates(bench, bench.config, (_CONTIGUOUS, _OURS, _TEXTBOOK, _LOW, _REUSING))
    fast, low, reused, large, same = TITLES["textbook"]
    yield from _ahead(bench, rates, fast, low)
    note = "another computation: a pass of the generator less, other fakes, so no losses to compare"
    yield ahead(bench, reused, rates, _OURS, _REUSING, note=note)
    yield _at_a_large_convolutions_speed(bench, large, median(rates[_OURS]), median(rates[_TEXTBOOK]))
    off = _largest_difference(bench)
    yield Result(same, off * 100, "%", f"<= {_SAME_LOSSES:.1%}", off <= _SAME_LOSSES)


def narrow(bench: Bench) -> Iterator[Result]:
    """The same at half the width and half the batch."""
    whole = bench.config
    config = bench.sized(whole.batch_size // 2).replace({"ngf": whole.ngf // 2, "ndf": whole.ndf // 2})
    rates = _rates(bench, config, (_CONTIGUOUS, _OURS, _TEXTBOOK, _LOW))
    yield from _ahead(bench, rates, *TITLES["narrow"])


def _rates(bench: Bench, config: TrainConfig, sides: Sequence[str]) -> dict[str, list[float]]:
    changes: Mapping[str, dict[str, object]] = {
        _CONTIGUOUS: {"channels_last": False},
        _OURS: {},
        _LOW: {"precision": "bf16"},
    }
    return bench.in_turn(
        [
            bench.side(side, config.replace(changes[side]))
            if side in changes
            else bench.textbook(side, config, reuse=side == _REUSING)
            for side in sides
        ]
    )


def _ahead(bench: Bench, rates: Mapping[str, Sequence[float]], fast: str, low: str) -> Iterator[Result]:
    """The two ratios that have a target."""
    yield ahead(bench, fast, rates, _OURS, _TEXTBOOK, 1.4, medians(rates))
    yield ahead(bench, low, rates, _LOW, _TEXTBOOK, 2)


def _at_a_large_convolutions_speed(bench: Bench, name: str, ours: float, textbook: float) -> Result:
    """What the processor's speed in a large convolution leaves to gain, roughly; `ours` and `textbook` are images per
    second.
    """
    from trainer.telemetry.flops import count_step

    bench.tell("a large convolution")
    peak, counted = convolution_gflops(bench.threads), count_step(bench.config).value
    assert counted is not None, "DCGAN's layers are all counted"
    work = counted / 1e9
    parts = {"large convolution GFLOP/s": peak, "a step's GFLOP/image": work, "ours GFLOP/s": ours * work}
    note = "a measure of this machine; counts products with padding's zeros, which kernels may leave out"
    return Result(name, peak / work / textbook, "x", "", None, parts, note)


def _largest_difference(bench: Bench) -> float:
    """Relative difference of any loss of any step: ours from a run that writes a line for each step."""
    import torch

    from trainer.bench import textbook
    from trainer.data.shards import ShardedImages

    bench.tell("losses")
    config = bench.config
    size = config.batch_size / 1000
    changes = {"kimg": SAME_LOSSES_STEPS * size, "stats_kimg": size}
    ours = train_whole(config.replace(changes), bench.work_dir / "losses", bench.data_dir, threads=bench.threads)
    theirs = textbook.steps(config, ShardedImages.open(bench.data_dir), torch.device("cpu"))
    pairs = [(line[name], getattr(step, name)) for line, step in zip(ours, theirs, strict=False) for name in _LOSSES]
    return float(max(abs(found - wanted) / max(abs(wanted), 0.1) for found, wanted in pairs))


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
    """Images per second, each the best of some rounds that take turns.

    Attributes:
        torch_fidelity: its own forward, in its default batches, with all cores of this process.
        ratio: ours over theirs.
        largest_difference: between any two of their features, relative to the largest feature.
    """

    ours: float
    torch_fidelity: float
    ratio: float
    largest_difference: float


def feature_speed(num_images: int = 64, rounds: int = 2, resolution: int = 32) -> FeatureSpeed:
    """Measures both on random images on the CPU or, where there is one, the GPU; a busy machine needs more `rounds`.
    `resolution` is that of the images before resizing, pixels.
    """
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
    torch.set_num_threads(len(os.sched_getaffinity(0)))
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
