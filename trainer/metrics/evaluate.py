"""Metrics of a generator, in training and of checkpoints: one protocol, all random numbers by the run's seed alone."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from gangway.trainer.checkpoint import store
from gangway.trainer.checkpoint.samples import check_samples_latents, to_uint8
from gangway.trainer.config.refusals import prepare_command
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.metric_names import FEWEST_IMAGES, parse
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.data.index import INDEX_FILE
from gangway.trainer.data.shards import ShardedImages, open_on_all
from gangway.trainer.data.verification import Verification
from gangway.trainer.distributed.world import World, start_world
from gangway.trainer.metrics.collect import AbandonedError, Ask, FeatureSet, agree_to_go_on, collect, go_on
from gangway.trainer.metrics.features import FeatureExtractor
from gangway.trainer.metrics.metric_registry import (
    FEATURE_SPACES,
    METRICS_BY_NAME,
    Counts,
    Metric,
    Team,
    Value,
    WeightsPaths,
    check_applies,
)
from gangway.trainer.networks.base import Generator
from gangway.trainer.networks.factory import build
from gangway.trainer.networks.precision import without_tf32
from gangway.trainer.networks.progressive_schedule import phase_at
from gangway.trainer.phases.rng import Purpose, latents
from gangway.trainer.records.digest import check_dataset
from gangway.trainer.records.quality import PROXY_BELOW, QualityProtocol, QualityRecord, value_text
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.stats_log import StatsWriter, read_stats_log, require_run
from gangway.trainer.records.summary import summarise
from gangway.trainer.steps.state import TrainState

_REALS_PER_FAKE = 2  # With few fakes, at most this many times as many reals are read

_LABELS = "of images of the data set, drawn with replacement by the seed"  # `_draw_classes`, in the protocol


class _Reals(NamedTuple):
    all: FeatureSet
    first_half: FeatureSet
    second_half: FeatureSet


class _Scored(NamedTuple):
    trained: list[Value]
    untrained: list[Value]
    halves: list[Value]


class Evaluator:
    """Judges generators by one configuration; all workers make the same calls (TrainerError: a metric cannot be)."""

    @without_tf32()
    def __init__(
        self,
        names: Sequence[str],
        config: TrainConfig,
        data: ShardedImages,
        world: World,
        paths: WeightsPaths,
        ask: Ask = go_on,
    ) -> None:
        self._names, self._config, self._data, self._world, self._ask = names, config, data, world, ask
        self._fakes = config.metrics_samples
        few = min(len(data), _REALS_PER_FAKE * self._fakes)
        self._reals = len(data) if self._fakes >= PROXY_BELOW else few
        self._half = min(self._fakes, self._reals // 2)
        self._counts = Counts(self._fakes, self._half)
        for name in names:
            check_applies(name, config)
            self._check_enough(name)
        space_names = dict.fromkeys(METRICS_BY_NAME[name].space for name in names)
        device = world.own_device
        self._extractors = world.run_on_all(
            lambda: {space: FEATURE_SPACES[space](device, paths) for space in space_names}
        )
        self._reals_by_space: dict[str, _Reals] = {}

    @without_tf32()  # the run may train with it, and convolutions have it unless told otherwise
    def evaluate(self, generator: Generator, images: int, *, compared: bool) -> list[QualityRecord]:
        """Returns a record per value, equal on every worker except for the times (AbandonedError: one requested it)."""
        records = []
        for space, extractor in self._extractors.items():
            agree_to_go_on(self._world, self._ask)
            began = time.monotonic()
            metrics = {name: METRICS_BY_NAME[name] for name in self._names if METRICS_BY_NAME[name].space == space}
            keep = any(one.keeps for one in metrics.values())
            reals = self._known_reals(space, extractor, keep=keep)
            draws = max(one.draws for one in metrics.values())
            fakes = self._get_fakes(generator, extractor, draws, keep=keep)
            untrained = self._untrained(images, extractor, draws, keep=keep) if compared else None
            scored = [(one, self._score(one, extractor, reals, fakes, untrained)) for one in metrics.values()]
            cost = Quantity.measured(
                time.monotonic() - began, "s", "wall clock", note=f"for all of {', '.join(metrics)}"
            )
            for one, values in scored:
                records += self._records(one, extractor, values, images, cost)
        return records

    def _known_reals(self, space: str, extractor: FeatureExtractor, *, keep: bool) -> _Reals:
        if space not in self._reals_by_space:
            rng = np.random.Generator(np.random.PCG64([self._config.seed, Purpose.METRIC]))
            order = rng.permutation(len(self._data))[: self._reals]
            parts = np.split(order, [self._half, 2 * self._half])
            first, second, rest = (self._real_set(extractor, part, keep=keep) for part in parts)
            together = [part for part in (first, second, rest) if part is not None]
            assert first is not None
            assert second is not None
            self._reals_by_space[space] = _Reals(FeatureSet.join(together), first, second)
        return self._reals_by_space[space]

    def _real_set(self, extractor: FeatureExtractor, order: NDArray[np.int64], *, keep: bool) -> FeatureSet | None:
        if not len(order):
            return None
        return self._collect(
            extractor, lambda part: torch.from_numpy(self._data.take(order[part])), len(order), keep=keep
        )

    def _get_fakes(self, generator: Generator, extractor: FeatureExtractor, draws: int, *, keep: bool) -> FeatureSet:
        config, device, num = self._config, self._world.own_device, draws * self._fakes
        rng = latents(num, config, images=0, purpose=Purpose.METRIC)
        classes = _draw_classes(config, self._data, num)

        def make(part: slice) -> Tensor:
            chosen = None if classes is None else classes[part].to(device)
            with torch.no_grad():
                made = to_uint8(generator(rng[part].to(device), chosen), config)
            if made.shape[1:] == config.image_shape:
                return made
            return F.interpolate(made.float(), size=config.image_shape[1:], mode="nearest").to(torch.uint8)

        return self._collect(extractor, make, num, keep=keep)

    def _untrained(self, images: int, extractor: FeatureExtractor, draws: int, *, keep: bool) -> FeatureSet:
        device = self._world.own_device
        generator = build(self._config)[0].to(device).eval().requires_grad_(False)
        generator.enter(phase_at(self._config, images, device))
        return self._get_fakes(generator, extractor, draws, keep=keep)

    def _collect(
        self, extractor: FeatureExtractor, make: Callable[[slice], Tensor], num: int, *, keep: bool
    ) -> FeatureSet:
        return collect(lambda part: extractor(make(part)), num, extractor.dim, self._world, keep=keep, ask=self._ask)

    def _score(
        self, one: Metric, extractor: FeatureExtractor, reals: _Reals, fakes: FeatureSet, untrained: FeatureSet | None
    ) -> _Scored:
        given, team = one.parameters(self._counts), Team(self._world, self._ask)

        def of(reference: FeatureSet, found: FeatureSet) -> list[Value]:
            return one.score(extractor, reference, found, given, team)

        trained = of(reals.all, fakes)
        if untrained is None:
            return _Scored(trained, [], [])
        return _Scored(trained, of(reals.all, untrained), of(reals.first_half, reals.second_half))

    def _records(
        self, one: Metric, extractor: FeatureExtractor, scored: _Scored, images: int, cost: Quantity
    ) -> list[QualityRecord]:
        protocol = QualityProtocol(
            extractor=extractor.network,
            weights_sha256=extractor.weights_sha256,
            dim=extractor.dim,
            resizer=extractor.resizer,
            num_reals=self._reals,
            num_fakes=one.draws * self._fakes,
            num_real_halves=self._half,
            split=self._split(),
            seed=self._config.seed,
            kimg=images / 1000,
            parameters=one.parameters(self._counts),
            proxy=self._fakes < one.published,
            labels=_LABELS if self._config.num_classes else "",
        )
        why = f"a proxy below {one.published:,}; " if protocol.proxy else ""
        fakes = f"{self._fakes}" if one.draws == 1 else f"{one.draws} draws of {self._fakes}"
        against = f"{fakes} fakes against {self._reals} reals: {why}comparable at equal protocol only"
        halves = f"two disjoint halves of {self._half} reals"
        return [
            QualityRecord(
                name=trained.name,
                trained=_quantity(trained, against),
                untrained=_get_comparison(scored.untrained, index, against),
                real_vs_real=_get_comparison(scored.halves, index, halves),
                protocol=protocol,
                better=trained.better,
                cost_sec=cost,
            )
            for index, trained in enumerate(scored.trained)
        ]

    def _split(self) -> str:
        if self._reals == len(self._data):
            return "all images"
        return f"{self._reals} of {len(self._data)} images, drawn by the seed"

    def _check_enough(self, name: str) -> None:
        there, needed = min(self._fakes, self._half), FEWEST_IMAGES[name]
        if there < needed:
            short = "fakes" if self._fakes < needed else "real images in each half of the data set"
            raise TrainerError(
                place="TrainConfig.metrics_samples" if self._fakes < needed else "--data",
                problem=f"{name} needs at least {needed} {short}",
                value=there,
                allowed=f"{needed} or more; 10,000 or more for a value that is no proxy",
                fix="raise --samples" if self._fakes < needed else "prepare a larger data set, or leave the metric out",
            )


def _draw_classes(config: TrainConfig, data: ShardedImages, num: int) -> Tensor | None:
    """Draws classes [num] from the data set: drawn evenly, a perfect generator of uneven classes would score badly."""
    if not config.num_classes:
        return None
    rng = np.random.Generator(np.random.PCG64([config.seed, Purpose.METRIC_LABELS]))
    chosen = rng.integers(len(data), size=num)
    return torch.from_numpy(data.labels(chosen))


def _quantity(value: Value, note: str) -> Quantity:
    spread = "" if value.spread is None else f"standard deviation {value.spread:.4g}; "
    return Quantity.measured(value.value, "", value.name, note=spread + note)


def _get_comparison(values: Sequence[Value], index: int, note: str) -> Quantity:
    if not values:
        return Quantity.absent("", "not computed while training: `python -m gangway.trainer evaluate` does")
    return _quantity(values[index], note)


_DEFAULT, _DEFAULT_FOR_VIDEO = "fd-enl0", "fd-enl0-frames"


class Moment:
    """The metrics of one state; None for `records` where they were abandoned. `cost_sec` is all workers' wait."""

    def __init__(self, records: list[QualityRecord] | None, cost_sec: float, share: float) -> None:
        self._records, self.cost_sec, self._share = records, cost_sec, share

    def values(self) -> list[dict[str, Any]]:
        """Returns the records as in the log; empty where abandoned."""
        return [record.model_dump(mode="json") for record in self._records or ()]

    def write(self, event: Callable[..., None], say: Callable[[str], None], images: int) -> None:
        """Writes an event per value, or that they were abandoned, and prints a line."""
        cost = {"cost_sec": self.cost_sec, "share_of_wall": self._share}
        if self._records is None:
            why = "a worker has to stop; `python -m gangway.trainer evaluate` computes them from a checkpoint"
            event("quality-abandoned", images, why=why, in_training=cost)
            say(f"kimg {images / 1000:8.2f}  metrics abandoned after {self.cost_sec:.1f} s: {why}")
            return
        for record in self._records:
            event("quality", images, quality=record.model_dump(mode="json"), in_training=cost)
        known = [(record.name, record.trained.value) for record in self._records if record.trained.value is not None]
        values = "  ".join(f"{name} {value_text(name, value)}" for name, value in known)
        spent = f"{self.cost_sec:.1f} s; {self._share:.1%} of the time so far went into metrics"
        say(f"kimg {images / 1000:8.2f}  {values}  ({spent})")


class MetricsInTraining:
    """Computes the configured metrics when due; all workers make the same calls (TrainerError, like Evaluator)."""

    def __init__(self, config: TrainConfig, data: ShardedImages, world: World, ask: Ask = go_on) -> None:
        self._every_kimg, self._world = config.metrics_kimg, world
        names = parse(config.metrics)
        self._evaluator = Evaluator(names, config, data, world, WeightsPaths(), ask) if names else None
        self._began, self._spent_sec = time.monotonic(), 0.0

    def due(self, state: TrainState) -> bool:
        """Whether metrics are due after the last step."""
        return self._evaluator is not None and state.passed(self._every_kimg)

    def moment(self, state: TrainState) -> Moment:
        """Computes the metrics of a state that is saved, since they may take long and may fail."""
        assert self._evaluator is not None, "they are due"
        began = time.monotonic()
        try:
            # Workers judge separate images in separate threads, so each needs the whole generator.
            generator = state.ema_on(self._world.own_device, alone=True)
            records = self._evaluator.evaluate(generator, state.images, compared=False)
        except AbandonedError:
            records = None
        now = time.monotonic()
        self._spent_sec += now - began
        return Moment(records, now - began, self._spent_sec / (now - self._began))


def evaluate_newest(
    run_dir: Path,
    data_dir: Path,
    samples: int | str | None = None,
    metrics: Sequence[str] = (),
    paths: WeightsPaths | None = None,
) -> list[QualityRecord]:
    """Judges the newest valid checkpoint, writes each value to the log and run.json (TrainerError on every rank)."""
    with start_world("auto") as world:
        found, config = world.run_on_all(lambda: _newest(run_dir, samples, world))
        world.run_on_all(lambda: _require_shards(config, found.manifest.identity.dataset_sha256, data_dir))
        data = open_on_all(config, data_dir, world)
        with Verification(data, world) as verification:
            verification.finish()
        world.run_on_all(lambda: check_dataset(found.manifest.identity, data.index.sha256, data_dir))
        names = metrics or parse(config.metrics) or [_DEFAULT if config.frames == 1 else _DEFAULT_FOR_VIDEO]
        evaluator = Evaluator(names, config, data, world, paths or WeightsPaths())
        state = TrainState.create(config, world.own_device)
        state.load_state_dict(found.read())
        records = evaluator.evaluate(state.ema, state.images, compared=True)
        world.run_on_rank0(lambda: _note(run_dir, state.images, records))
        return records


def _require_shards(config: TrainConfig, sha256: str, data_dir: Path) -> None:
    """Raises TrainerError without shards: a run records their hash, not their folder."""
    if not (data_dir / INDEX_FILE).exists():
        raise TrainerError(
            place="--data",
            problem="no data set here; a run trained with --data is judged with it, too",
            value=str(data_dir),
            allowed=f"the folder of the run's own shards, {config.dataset} of sha256 {sha256[:16]}...",
            fix=f"add --data with that folder; if it is gone: {prepare_command(config, data_dir)}",
        )


def _newest(run_dir: Path, samples: int | str | None, world: World) -> tuple[store.Checkpoint, TrainConfig]:
    require_run(run_dir, ("checkpoints",))
    summarise(run_dir)  # so that errors show now, not after minutes of evaluation
    found = store.newest_of_run(run_dir, " to judge", aloud=world.rank == 0)
    check_samples_latents(found.manifest.config, "what metrics judge")
    return found, found.manifest.config.replace({} if samples is None else {"metrics_samples": samples})


def _note(run_dir: Path, images: int, records: Sequence[QualityRecord]) -> None:
    session = read_stats_log(run_dir).beginnings[-1]["session"]
    stats = StatsWriter(run_dir)
    for record in records:
        stats.event("quality", images, session, quality=record.model_dump(mode="json"))
    summarise(run_dir).write(run_dir / "run.json")
