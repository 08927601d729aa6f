"""Judges a run: how far its images are from the real ones, before training, after it, and real from real.

`python -m trainer evaluate --run-dir DIR`. One process, on whatever device there is. The metric's mathematics is in
trainer.metrics; new metrics enter as another FeatureExtractor.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainer import checkpoint
from trainer.config import TrainConfig
from trainer.data import ShardedImages, open_matching
from trainer.diary import StatsWriter, read_diary, require_run
from trainer.draws import Purpose, latents
from trainer.errors import TrainerError
from trainer.features import EfficientNetLite0Features, FeatureExtractor
from trainer.identity import check_dataset
from trainer.metrics import FeatureStats, Moments, frechet_distance
from trainer.networks import build
from trainer.record import Figure, QualityProtocol, QualityRecord, RunRecord
from trainer.samples import to_uint8
from trainer.state import TrainState
from trainer.summary import summarise

__all__ = ["evaluate", "judge"]

_BATCH = 16
"""Small: on a CPU the features of 16 images stay in cache, which is more than twice as fast as 64 at once."""
_REALS_PER_FAKE = 2
"""A quick look with few fakes reads no more reals than this many times as many."""


def evaluate(run_dir: Path, data_dir: Path, samples: int | str | None) -> RunRecord:
    """Judges the newest valid checkpoint, notes the result in stats.jsonl and writes run.json anew.

    Args:
        run_dir: of the run.
        data_dir: its shards.
        samples: fakes to draw; None for the configuration's metrics_samples.

    Raises:
        TrainerError: there is no run, no checkpoint or no data set, or it is another than the run's.
    """
    require_run(run_dir, ("checkpoints",))
    summarise(run_dir)  # what cannot be summed up is told now, not after minutes of judging
    found, passed_over = checkpoint.load_newest_valid(run_dir / "checkpoints")
    for sentence in passed_over:
        print(f"passed over a checkpoint: {sentence}", flush=True)
    if found is None:
        raise TrainerError(
            place="--run-dir",
            problem="holds no checkpoint to judge yet",
            value=str(run_dir),
            allowed="a run with at least one checkpoint",
            fix="train on until its first checkpoint, or name another --run-dir",
        )
    config = found.manifest.config.replace({} if samples is None else {"metrics_samples": samples})
    data = open_matching(config, data_dir)
    check_dataset(found.manifest.identity, data.index.sha256, data_dir)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    state = TrainState.create(config, device)
    state.load_state_dict(found.state)
    quality = judge(EfficientNetLite0Features(device), state.ema, config, data, device, state.images)
    session = read_diary(run_dir).beginnings[-1]["session"]
    StatsWriter(run_dir).event("quality", state.images, session, quality=quality.model_dump(mode="json"))
    record = summarise(run_dir)
    record.write(run_dir / "run.json")
    return record


def judge(
    extractor: FeatureExtractor,
    generator: nn.Module,
    config: TrainConfig,
    data: ShardedImages,
    device: torch.device,
    images: int,
) -> QualityRecord:
    """Three Fréchet distances: untrained to real, trained to real, real to real.

    Args:
        extractor: the feature network.
        generator: the averaged generator.
        config: of the run; its seed draws latents and halves, its metrics_samples says how many.
        data: the real images.
        device: to generate on.
        images: the generator was trained for.
    """
    num_fakes = config.metrics_samples
    num_reals = min(len(data), _REALS_PER_FAKE * num_fakes)
    half = min(num_fakes, num_reals // 2)
    order = np.random.Generator(np.random.PCG64([config.seed, Purpose.METRIC])).permutation(len(data))[:num_reals]
    real_features = _real_features(extractor, data, order)
    reference = _moments(real_features)
    untrained, _ = build(config)
    distances = {
        name: frechet_distance(reference, _fake_moments(extractor, network.to(device).eval(), config, device))
        for name, network in (("untrained", untrained), ("trained", generator))
    }
    halves = frechet_distance(_moments(real_features[:half]), _moments(real_features[half : 2 * half]))
    protocol = QualityProtocol(
        extractor=extractor.network,
        weights_sha256=extractor.weights_sha256,
        dim=extractor.dim,
        resizer=extractor.resizer,
        num_reals=num_reals,
        num_fakes=num_fakes,
        num_real_halves=half,
        split="all images" if num_reals == len(data) else f"{num_reals} of {len(data)} images, drawn by the seed",
        seed=config.seed,
        kimg=images / 1000,
    )
    few = f"{num_fakes} fakes against {num_reals} reals: a proxy below 10,000; comparable at equal protocol only"
    return QualityRecord(
        name=extractor.name,
        untrained=Figure.measured(distances["untrained"], "", extractor.name, note=few),
        trained=Figure.measured(distances["trained"], "", extractor.name, note=few),
        real_vs_real=Figure.measured(halves, "", extractor.name, note=f"two disjoint halves of {half} reals"),
        protocol=protocol,
    )


def _real_features(extractor: FeatureExtractor, data: ShardedImages, order: NDArray[np.int64]) -> NDArray[np.float64]:
    """Features [len(order), dim] of the images of these numbers."""
    return _features(lambda part: extractor(torch.from_numpy(data.take(order[part]))), len(order))


def _fake_moments(
    extractor: FeatureExtractor, generator: nn.Module, config: TrainConfig, device: torch.device
) -> Moments:
    drawn = latents(config.metrics_samples, config.z_dim, seed=config.seed, images=0, purpose=Purpose.METRIC)
    return _moments(_features(lambda part: extractor(_generate(generator, drawn[part].to(device))), len(drawn)))


def _features(of: Callable[[slice], NDArray[np.float64]], num: int) -> NDArray[np.float64]:
    """Features [num, dim], batch by batch in as many threads as there are cores.

    Each thread computes alone: on a busy machine threads that share one batch mostly wait for each other.
    """
    parts = [slice(start, min(start + _BATCH, num)) for start in range(0, num, _BATCH)]
    threads_before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            return np.concatenate(list(pool.map(of, parts)))
    finally:
        torch.set_num_threads(threads_before)


@torch.no_grad()
def _generate(generator: nn.Module, part: Tensor) -> Tensor:
    """uint8 images of latents."""
    return to_uint8(generator(part))


def _moments(features: NDArray[np.float64]) -> Moments:
    stats = FeatureStats(features.shape[1])
    stats.add(features)
    return stats.moments()
