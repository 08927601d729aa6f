"""Judging a generator: protocol, comparisons and records, with a small extractor; and who is refused."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from gangway.trainer.checkpoint.samples import to_uint8
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.data.packaged_data import load_digits_images
from gangway.trainer.data.shards import ShardedImages, open_matching
from gangway.trainer.distributed.world import World
from gangway.trainer.metrics import evaluate as module
from gangway.trainer.metrics.evaluate import Evaluator
from gangway.trainer.metrics.features import FrameFeatures
from gangway.trainer.metrics.metric_registry import METRICS_BY_NAME, WeightsPaths, check_applies
from gangway.trainer.metrics.scores import inception_score
from gangway.trainer.networks.base import Generator
from gangway.trainer.networks.factory import build
from gangway.trainer.networks.precision import set_tf32
from gangway.trainer.phases.rng import Purpose, latents
from gangway.trainer.records.quality import QualityRecord
from tests.shard_files import write_shards
from tests.trainer.metrics.shrunk import Shrunk


class Memorised(Generator):
    """A perfect generator: it shows real images."""

    def __init__(self, images: NDArray[np.uint8]) -> None:
        super().__init__()
        self._images = torch.from_numpy(images)

    def forward(self, latents: Tensor, labels: Tensor | None = None) -> Tensor:
        chosen = self._images[(latents[:, 0].abs() * 1e6).long() % len(self._images)]
        return chosen.float() / 127.5 - 1


@pytest.fixture
def shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The small extractor in place of every one that images have."""

    spaces = ("enl0", "inception", "digits")
    monkeypatch.setattr(module, "FEATURE_SPACES", dict.fromkeys(spaces, lambda device, paths: Shrunk()))


@pytest.fixture
def data(tiny_config: TrainConfig, digits_dir: Path) -> ShardedImages:
    return open_matching(tiny_config, digits_dir)


def _evaluator(config: TrainConfig, data: ShardedImages, world: World, *names: str) -> Evaluator:
    return Evaluator(names or ("fd-enl0",), config, data, world, WeightsPaths())


def _value(quality: QualityRecord, name: str) -> float:
    value = getattr(quality, name).value
    assert isinstance(value, float)
    return value


@pytest.mark.usefixtures("shrunk")
def test_a_perfect_generator_is_as_close_as_real_images_are(
    tiny_config: TrainConfig, data: ShardedImages, alone: World
) -> None:
    config = tiny_config.replace({"metrics_samples": 1000})
    perfect = Memorised(data.take(np.arange(1797)))
    (quality,) = _evaluator(config, data, alone).evaluate(perfect, 2000, compared=True)
    assert _value(quality, "trained") < 3 * _value(quality, "real_vs_real")
    assert _value(quality, "trained") < _value(quality, "untrained") / 20
    assert quality.protocol.num_reals == 1797
    assert (quality.protocol.num_real_halves, quality.protocol.kimg) == (898, 2)
    assert quality.protocol.split == "all images"
    assert quality.protocol.proxy
    assert "a proxy below 10,000" in quality.trained.note
    assert quality.better == "lower"


@pytest.mark.usefixtures("shrunk")
def test_every_value_has_its_record_and_its_parameters(
    tiny_config: TrainConfig, data: ShardedImages, alone: World
) -> None:
    perfect = Memorised(data.take(np.arange(1797)))
    records = _evaluator(tiny_config, data, alone, "kid", "precision-recall-enl0").evaluate(perfect, 0, compared=True)
    by_name = {record.name: record for record in records}
    manifolds = [f"{name}-Inception" for name in ("Precision", "Recall", "Density", "Coverage")]
    assert list(by_name) == ["KID", *manifolds]
    assert by_name["KID"].protocol.parameters["subset_size"] == 32, "all there is in the smaller set"
    assert "standard deviation" in by_name["KID"].trained.note
    assert by_name["Precision-Inception"].better == "higher"
    assert by_name["Precision-Inception"].protocol.parameters["k"] == 3
    assert by_name["KID"].cost_sec is not None
    assert by_name["KID"].cost_sec.note == "for all of kid"


@pytest.fixture
def tf32() -> Iterator[Callable[[], list[bool]]]:
    """TF32 allowed, as in training; called, whether it is for products and convolutions."""

    def now() -> list[bool]:
        return [torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32]

    before = now()
    set_tf32(enabled=True)
    yield now
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def test_no_value_is_computed_in_tf32_whatever_the_run_trains_in(
    tiny_config: TrainConfig,
    data: ShardedImages,
    alone: World,
    tf32: Callable[[], list[bool]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: set[bool] = set()

    class Watching(Shrunk):
        def __init__(self, *_: object) -> None:
            seen.update(tf32())

        def __call__(self, images: Tensor) -> NDArray[np.float64]:
            seen.update(tf32())
            return super().__call__(images)

    monkeypatch.setattr(module, "FEATURE_SPACES", {"enl0": Watching})
    (quality,) = _evaluator(tiny_config, data, alone).evaluate(Memorised(data.take(np.arange(100))), 0, compared=False)
    assert seen == {False}
    assert tf32() == [True, True], "the next step trains as before"
    assert "without TF32" in quality.protocol.arithmetic


@pytest.mark.usefixtures("shrunk")
def test_while_training_only_the_trained_generator_is_judged(
    tiny_config: TrainConfig, data: ShardedImages, alone: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluator_ = _evaluator(tiny_config, data, alone)
    generator, _ = build(tiny_config)
    (full,) = evaluator_.evaluate(generator, 0, compared=True)
    assert _value(full, "trained") == _value(full, "untrained"), "it is untrained"
    assert full.protocol.split == "64 of 1797 images, drawn by the seed"
    monkeypatch.setattr(ShardedImages, "take", lambda *_: pytest.fail("the reals are known already"))
    (brief,) = evaluator_.evaluate(generator, 0, compared=False)
    assert brief.trained == full.trained
    assert brief.untrained.provenance == brief.real_vs_real.provenance == "absent"


@pytest.mark.usefixtures("shrunk")
def test_from_10000_fakes_on_it_is_no_proxy_and_takes_all_reals(
    tiny_config: TrainConfig, data: ShardedImages, alone: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PROXY_BELOW", 30)
    published = {name: replace(each, published=30) for name, each in METRICS_BY_NAME.items()}
    monkeypatch.setattr(module, "METRICS_BY_NAME", published)
    (quality,) = _evaluator(tiny_config, data, alone).evaluate(build(tiny_config)[0], 0, compared=False)
    assert not quality.protocol.proxy
    assert quality.protocol.split == "all images"
    assert "proxy" not in quality.trained.note


@pytest.mark.usefixtures("shrunk")
def test_a_network_that_has_not_grown_yet_is_enlarged(
    tiny_config: TrainConfig, data: ShardedImages, alone: World
) -> None:
    class Small(Generator):
        def forward(self, latents: Tensor, labels: Tensor | None = None) -> Tensor:
            return torch.zeros(len(latents), 1, 4, 4)

    class Large(Generator):
        def forward(self, latents: Tensor, labels: Tensor | None = None) -> Tensor:
            return torch.zeros(len(latents), 1, 32, 32)

    evaluator_ = _evaluator(tiny_config, data, alone)
    values = [evaluator_.evaluate(generator, 0, compared=False)[0].trained for generator in (Small(), Large())]
    assert values[0] == values[1]


@pytest.mark.usefixtures("shrunk")
def test_a_network_that_knows_classes_is_asked_for_all_of_them(
    tiny_config: TrainConfig, data: ShardedImages, alone: World
) -> None:
    asked: list[Tensor] = []

    class Conditional(Generator):
        def forward(self, latents: Tensor, labels: Tensor | None = None) -> Tensor:
            assert labels is not None
            asked.append(labels)
            return torch.zeros(len(latents), 1, 32, 32)

    config = tiny_config.replace({"num_classes": 10, "metrics_samples": 200})
    for _ in range(2):
        _evaluator(config, data, alone).evaluate(Conditional(), 0, compared=False)
    classes = torch.cat(sorted(asked, key=lambda part: part.tolist()))
    assert len(classes) == 400
    assert set(classes.tolist()) == set(range(10))


class MemorisedByClass(Generator):
    """A perfect conditional generator: it shows a real image of the class that it is asked for."""

    def __init__(self, images: NDArray[np.uint8], classes: NDArray[np.int64]) -> None:
        super().__init__()
        self._of_class = [torch.from_numpy(images[classes == number]) for number in range(10)]

    def forward(self, latents: Tensor, labels: Tensor | None = None) -> Tensor:
        assert labels is not None
        places = (latents[:, 0].abs() * 1e6).long()
        shown = [
            self._of_class[label][place % len(self._of_class[label])]
            for label, place in zip(labels, places, strict=True)
        ]
        return torch.stack(shown).float() / 127.5 - 1


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> ShardedImages:
    """Real digits of which 55 % are zeros, 320 in all."""
    from sklearn.datasets import load_digits

    classes = load_digits().target.astype(np.int64)
    counts = [176, *[16] * 9]
    chosen = np.concatenate([np.flatnonzero(classes == number)[:count] for number, count in enumerate(counts)])
    folder = tmp_path_factory.mktemp("uneven")
    names = tuple(map(str, range(10)))
    write_shards(folder, "digits", load_digits_images()[chosen], labels=classes[chosen], classes=names)
    return ShardedImages.open(folder)


@pytest.mark.usefixtures("shrunk")
def test_a_perfect_generator_of_uneven_classes_is_as_good_as_one_that_knows_none(
    tiny_config: TrainConfig, uneven: ShardedImages, alone: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = np.arange(len(uneven))
    images, classes = uneven.take(everything), uneven.labels(everything)
    config = tiny_config.replace({"metrics_samples": 2000})
    conditional = config.replace({"num_classes": 10})

    def judged(of: TrainConfig, generator: Generator) -> QualityRecord:
        (quality,) = _evaluator(of, uneven, alone).evaluate(generator, 0, compared=False)
        return quality

    floor, found = judged(config, Memorised(images)), judged(conditional, MemorisedByClass(images, classes))
    assert _value(found, "trained") < 3 * _value(floor, "trained")
    assert judged(conditional, MemorisedByClass(images, classes)).trained == found.trained, "the seed decides"
    assert "drawn with replacement by the seed" in found.protocol.labels
    assert floor.protocol.labels == ""

    evenly = torch.arange(2000) % 10
    monkeypatch.setattr(module, "_draw_classes", lambda *_: evenly)
    wrong = judged(conditional, MemorisedByClass(images, classes))
    assert _value(wrong, "trained") > 10 * _value(found, "trained")


class Clips:
    """Six clips of four frames, as the data set's shards give them."""

    shape = (6, 1, 4, 32, 32)

    def __len__(self) -> int:
        return 6

    def take(self, numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
        return np.random.default_rng(0).integers(0, 256, self.shape, dtype=np.uint8)[numbers]


class OfTen:
    """A FeatureExtractor of clips: ten logits from their first pixels, in place of C3D's 101."""

    name, network, dim, weights_sha256, resizer = "video IS", "ten pixels", 10, "", "none"

    def __call__(self, images: Tensor) -> NDArray[np.float64]:
        return images[:, 0, 0, 0, :10].double().numpy() / 16


def _tgan2_score(logits: NDArray[np.float64], draws: int, clips: int) -> tuple[float, float]:
    """What pfnet-research/tgan2's compute_inception_score.py computes, written out: each draw's exponential of the mean
    divergence from the draw's mean, one split, 1e-20 added to probabilities; then mean and deviation over the draws.
    """
    found = []
    for draw in range(draws):
        odds = np.exp(logits[draw * clips : (draw + 1) * clips])
        part = odds / odds.sum(axis=1, keepdims=True) + 1e-20
        divergence = part * (np.log(part) - np.log(part.mean(axis=0, keepdims=True)))
        found.append(np.exp(divergence.sum(axis=1).mean()))
    return float(np.mean(found)), float(np.std(found))


@pytest.mark.parametrize("compared", [False, True])
def test_the_video_score_is_tgan2s(
    tiny_config: TrainConfig, alone: World, monkeypatch: pytest.MonkeyPatch, *, compared: bool
) -> None:
    class Filming(Generator):
        def forward(self, latents: Tensor, labels: Tensor | None = None) -> Tensor:
            return latents.tanh()[:, None, None, None].expand(-1, 3, 16, 32, 32)

    monkeypatch.setattr(module, "FEATURE_SPACES", {"c3d": lambda *_: OfTen()})
    monkeypatch.setattr(module, "build", lambda _: (Filming(), None))
    monkeypatch.setattr(Filming, "enter", lambda *_: None, raising=False)
    video = {
        "architecture": "progressive",
        "stable_kimg": 1,
        "frames": 16,
        "channels": 3,
        "augment": "none",
        "z_dim": 32,
    }
    config = tiny_config.replace({**video, "metrics_samples": 60})

    class LongClips(Clips):
        shape = (6, 3, 16, 32, 32)

    evaluator_ = Evaluator(["video-is"], config, LongClips(), alone, WeightsPaths())  # type: ignore[arg-type]  # has what is used
    (quality,) = evaluator_.evaluate(Filming(), 0, compared=compared)
    drawn = latents(600, config, images=0, purpose=Purpose.METRIC)
    logits = OfTen()(to_uint8(Filming()(drawn), config))
    mean, deviation = _tgan2_score(logits, 10, 60)
    assert _value(quality, "trained") == pytest.approx(mean, rel=1e-9)
    assert f"standard deviation {deviation:.4g}; 10 draws of 60 fakes" in quality.trained.note
    assert quality.protocol.parameters == {"draws": 10, "clips_per_draw": 60, "splits_per_draw": 1}
    assert quality.protocol.num_fakes == 600
    assert quality.protocol.proxy, "the published number is 2,048 a draw"
    in_tenths = inception_score(logits[:60], splits=10, shuffle=False).mean
    assert in_tenths < 0.9 * mean, "splits too small to hold the classes lower it"
    if compared:
        reals = OfTen()(torch.from_numpy(LongClips().take(np.arange(6))))
        scores = [_tgan2_score(reals[list(half)], 1, 3)[0] for half in itertools.combinations(range(6), 3)]
        assert min(abs(_value(quality, "real_vs_real") - score) for score in scores) < 1e-9
        assert "standard deviation" not in quality.real_vs_real.note, "one draw has none"


def test_2048_clips_a_draw_are_no_proxy() -> None:
    assert (METRICS_BY_NAME["video-is"].published, METRICS_BY_NAME["video-is"].draws) == (2048, 10)
    assert METRICS_BY_NAME["fd-enl0-frames"].published == 10_000


def test_clips_are_judged_frame_by_frame(
    tiny_config: TrainConfig, alone: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Growing(Generator):
        def forward(self, latents: Tensor, labels: Tensor | None = None) -> Tensor:
            return torch.zeros(len(latents), 1, 2, 16, 16)

    monkeypatch.setattr(module, "FEATURE_SPACES", {"enl0-frames": lambda device, paths: FrameFeatures(Shrunk())})
    video = {"architecture": "progressive", "stable_kimg": 1, "frames": 4, "augment": "none", "metrics_samples": 3}
    config = tiny_config.replace(video)
    evaluator_ = Evaluator(["fd-enl0-frames"], config, Clips(), alone, WeightsPaths())  # type: ignore[arg-type]  # has what is used
    (quality,) = evaluator_.evaluate(Growing(), 0, compared=False)
    assert quality.name == "FD-4x4-frames"
    assert (quality.protocol.num_fakes, quality.protocol.num_reals) == (3, 6)
    assert _value(quality, "trained") > 0


@pytest.mark.usefixtures("shrunk")
def test_too_few_images_are_told_before_the_work(tiny_config: TrainConfig, data: ShardedImages, alone: World) -> None:
    few = tiny_config.replace({"metrics_samples": 5})
    with pytest.raises(TrainerError, match="is needs at least 10 fakes") as caught:
        _evaluator(few, data, alone, "is")
    assert caught.value.place == "TrainConfig.metrics_samples"
    with pytest.raises(TrainerError, match="precision-recall-enl0 needs at least 6 fakes"):
        _evaluator(few, data, alone, "precision-recall-enl0")

    class Tiny:
        def __len__(self) -> int:
            return 9

    with pytest.raises(TrainerError, match="needs at least 6 real images in each half") as caught:
        _evaluator(tiny_config, Tiny(), alone, "precision-recall-enl0")  # type: ignore[arg-type]  # asked for its length alone
    assert caught.value.place == "--data"


@pytest.mark.parametrize(
    ("name", "changes", "why"),
    [
        ("is", {"dataset": "celeba", "channels": 3}, "is means nothing for faces"),
        ("digits-classes", {"dataset": "photos"}, "knows the ten digits"),
        ("fd-enl0-frames", {}, "is for video"),
        ("fid", {"architecture": "progressive", "stable_kimg": 1, "frames": 16}, "is for images"),
        ("video-is", {"architecture": "progressive", "stable_kimg": 1, "frames": 16}, "needs colour clips of 16"),
    ],
)
def test_a_metric_that_means_nothing_is_refused(
    tiny_config: TrainConfig, name: str, changes: dict[str, object], why: str
) -> None:
    with pytest.raises(TrainerError, match=why) as caught:
        check_applies(name, tiny_config.replace(changes))
    assert caught.value.place == "--metrics"
    assert caught.value.fix.startswith("ask for ")
