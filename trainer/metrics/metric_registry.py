"""Each metric's features and score of fakes against reals; names are in gangway.trainer.config.values.metric_names."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

import torch

from gangway.trainer.config.refusals import misfit
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.metric_names import DIGIT_CLASSES, DIGITS_RECOGNISED
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.distributed.world import World
from gangway.trainer.metrics import scores
from gangway.trainer.metrics.c3d import C3DFeatures
from gangway.trainer.metrics.collect import Ask, FeatureSet, frechet_distance, shared
from gangway.trainer.metrics.features import EfficientNetLite0Features, FeatureExtractor, FrameFeatures
from gangway.trainer.metrics.inception import InceptionFeatures
from gangway.trainer.metrics.scores import CLASSES_WANTED, CONFIDENT, PRESENT, SHARE_WANTED, Recogniser, recognise
from gangway.trainer.records.quality import PROXY_BELOW

Parameters = dict[str, int | float | str]
_SPLITS: Parameters = {"splits": scores.SPLITS, "seed_of_splits": scores.SEED}
VIDEO_DRAWS, VIDEO_CLIPS = 10, 2048  # Of TGAN2's scripts/compute_inception_score.py
_NEIGHBOURS: Parameters = {"k": scores.NEIGHBOURS, "k_density_coverage": scores.COVERAGE_NEIGHBOURS}


class WeightsPaths(NamedTuple):
    """Files from the command line; None for the environment's."""

    inception: Path | None = None
    video: Path | None = None


class Team(NamedTuple):
    """The workers, and whether this one has to stop, which abandons long work (AbandonedError)."""

    world: World
    ask: Ask


class Value(NamedTuple):
    """One number of a metric; `spread` is its standard deviation over splits or subsets, if any."""

    name: str
    value: float
    better: Literal["lower", "higher"]
    spread: float | None = None


class Counts(NamedTuple):
    """Images in a set of fakes, and reals in each half of the data set."""

    fakes: int
    half: int


@dataclass(frozen=True)
class Metric:
    """How a metric is computed."""

    space: str  # name of the features
    # values of (extractor, reals, fakes, parameters, team); every worker calls it
    score: Callable[[FeatureExtractor, FeatureSet, FeatureSet, Parameters, Team], list[Value]]
    keeps: bool  # whether it needs the features themselves, not only their sums
    parameters: Callable[[Counts], Parameters] = lambda _: {}  # of its own, by the counts of images
    draws: int = 1  # sets of fakes that are judged one by one; a set has as many as the configuration says
    published: int = PROXY_BELOW  # fakes a set has in the papers; with fewer the value is a proxy


def _on_rank0(team: Team, compute: Callable[[], list[Value]]) -> list[Value]:
    """Computes on rank 0 alone, as workers of one machine would only wait for each other; returned on all."""
    return shared([compute], *team, kind=list[Value])[0]


def _frechet(
    extractor: FeatureExtractor, reals: FeatureSet, fakes: FeatureSet, _: Parameters, team: Team
) -> list[Value]:
    return _on_rank0(team, lambda: [Value(extractor.name, frechet_distance(reals.moments, fakes.moments), "lower")])


def _kid(
    extractor: FeatureExtractor, reals: FeatureSet, fakes: FeatureSet, given: Parameters, team: Team
) -> list[Value]:
    found = scores.kernel_distance(fakes.kept, reals.kept, int(given["subset_size"]), team.world, ask=team.ask)
    return [Value("KID", found.mean, "lower", found.std)]


def _inception_score(
    extractor: FeatureExtractor, _: FeatureSet, fakes: FeatureSet, __: Parameters, team: Team
) -> list[Value]:
    assert isinstance(extractor, InceptionFeatures)

    def compute() -> list[Value]:
        found = scores.inception_score(extractor.logits(fakes.kept))
        return [Value("IS", found.mean, "higher", found.std)]

    return _on_rank0(team, compute)


def _video_score(_: FeatureExtractor, __: FeatureSet, fakes: FeatureSet, given: Parameters, team: Team) -> list[Value]:
    """As in TGAN2's scripts (Saito et al. 2020, arXiv:1811.09245): mean and deviation of draws' undivided scores."""

    def compute() -> list[Value]:
        draws = max(1, len(fakes.kept) // int(given["clips_per_draw"]))
        found = scores.inception_score(fakes.kept.astype("float64"), splits=draws, shuffle=False)
        return [Value("video IS", found.mean, "higher", found.std if draws > 1 else None)]

    return _on_rank0(team, compute)


def _manifolds(
    extractor: FeatureExtractor, reals: FeatureSet, fakes: FeatureSet, _: Parameters, team: Team
) -> list[Value]:
    network = "ENL0" if extractor.name.endswith("ENL0") else "Inception"
    found = scores.compare(reals.kept, fakes.kept, team.world, ask=team.ask)
    return [Value(f"{name.capitalize()}-{network}", share, "higher") for name, share in found._asdict().items()]


def _digits(_: FeatureExtractor, __: FeatureSet, fakes: FeatureSet, ___: Parameters, team: Team) -> list[Value]:
    def compute() -> list[Value]:
        found = recognise(fakes)
        return [Value(DIGITS_RECOGNISED, found.share, "higher"), Value(DIGIT_CLASSES, found.classes, "higher")]

    return _on_rank0(team, compute)


_GATE: Parameters = {
    "confidence": CONFIDENT,
    "class_present_share": PRESENT,
    "wanted_share": SHARE_WANTED,
    "wanted_classes": CLASSES_WANTED,
}


def _subsets(counts: Counts) -> Parameters:
    return {"subsets": scores.KID_SUBSETS, "subset_size": min(1000, *counts), "seed_of_subsets": scores.SEED}


def _clips(counts: Counts) -> Parameters:
    return {"draws": VIDEO_DRAWS, "clips_per_draw": counts.fakes, "splits_per_draw": 1}


METRICS_BY_NAME: Mapping[str, Metric] = MappingProxyType(
    {
        "fid": Metric("inception", _frechet, keeps=False),
        "fid-clean": Metric("inception-clean", _frechet, keeps=False),
        "is": Metric("inception", _inception_score, keeps=True, parameters=lambda _: _SPLITS),
        "kid": Metric("inception", _kid, keeps=True, parameters=_subsets),
        "precision-recall": Metric("inception", _manifolds, keeps=True, parameters=lambda _: _NEIGHBOURS),
        "fd-enl0": Metric("enl0", _frechet, keeps=False),
        "precision-recall-enl0": Metric("enl0", _manifolds, keeps=True, parameters=lambda _: _NEIGHBOURS),
        "fd-enl0-frames": Metric("enl0-frames", _frechet, keeps=False),
        "video-is": Metric(
            "c3d", _video_score, keeps=True, parameters=_clips, draws=VIDEO_DRAWS, published=VIDEO_CLIPS
        ),
        "digits-classes": Metric("digits", _digits, keeps=True, parameters=lambda _: _GATE),
    }
)

FEATURE_SPACES: Mapping[str, Callable[[torch.device, WeightsPaths], FeatureExtractor]] = MappingProxyType(
    {
        "inception": lambda device, paths: InceptionFeatures(device, paths.inception, "legacy"),
        "inception-clean": lambda device, paths: InceptionFeatures(device, paths.inception, "clean"),
        "enl0": lambda device, _: EfficientNetLite0Features(device),
        "enl0-frames": lambda device, _: FrameFeatures(EfficientNetLite0Features(device)),
        "c3d": lambda device, paths: C3DFeatures(device, paths.video),
        "digits": lambda device, _: Recogniser(device),
    }
)
"""How to make each feature network, by the name of its space."""


def check_applies(name: str, config: TrainConfig) -> None:
    """Raises TrainerError for a metric that does not apply to the data, with an alternative."""
    if found := misfit(name, config):
        shape = f"{config.channels}x{config.frames}x{config.resolution}x{config.resolution}"
        raise TrainerError(
            place="--metrics",
            problem=f"{name} {found.why}",
            value=f"{name} for {config.dataset}, {shape}",
            fix=f"ask for {found.instead}",
        )
