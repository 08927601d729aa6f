"""Metrics of a generator, during training and of a checkpoint afterwards: the same protocol."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gangway.trainer.checkpoint import store
from gangway.trainer.checkpoint.samples import check_samples_latents
from gangway.trainer.config.prepare_command import prepare_command
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.config.values.metric_names import parse
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.data.dataset import open_on_all
from gangway.trainer.data.index import INDEX_FILE
from gangway.trainer.data.shards import ShardedImages
from gangway.trainer.data.verification import Verification
from gangway.trainer.distributed.world import World, start_world
from gangway.trainer.metrics.collect import AbandonedError, Ask, go_on
from gangway.trainer.metrics.evaluator import Evaluator
from gangway.trainer.metrics.metric_registry import WeightsPaths
from gangway.trainer.records.digest import check_dataset
from gangway.trainer.records.quality import QualityRecord, value_text
from gangway.trainer.records.run_record import RunRecord
from gangway.trainer.records.stats_log import StatsWriter, read_stats_log, require_run
from gangway.trainer.records.summary import summarise
from gangway.trainer.steps.state import TrainState

_DEFAULT, _DEFAULT_FOR_VIDEO = "fd-enl0", "fd-enl0-frames"


class Moment:
    """The metrics of one state; None for `records` where they were abandoned.

    `cost_sec` is all workers' wait, `share` the metrics' share of the session's time.
    """

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
        values = "  ".join(_value_line(record) for record in self._records)
        spent = f"{self.cost_sec:.1f} s; {self._share:.1%} of the time so far went into metrics"
        say(f"kimg {images / 1000:8.2f}  {values}  ({spent})")


def _value_line(record: QualityRecord) -> str:
    assert record.trained.value is not None, "it has just been measured"
    return f"{record.name} {value_text(record.name, record.trained.value)}"


class MetricsInTraining:
    """Computes the configured metrics when due; every worker makes the same calls.

    `ask`: whether this worker has to stop. Raises TrainerError like Evaluator, before the first step.
    """

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


def evaluate(
    run_dir: Path,
    data_dir: Path,
    samples: int | str | None = None,
    metrics: Sequence[str] = (),
    paths: WeightsPaths | None = None,
) -> RunRecord:
    """Runs `evaluate_newest`, with its errors; returns the run's record with all evaluations."""
    evaluate_newest(run_dir, data_dir, samples, metrics, paths)
    return RunRecord.read(run_dir / "run.json")


def evaluate_newest(
    run_dir: Path,
    data_dir: Path,
    samples: int | str | None = None,
    metrics: Sequence[str] = (),
    paths: WeightsPaths | None = None,
) -> list[QualityRecord]:
    """Judges the newest valid checkpoint, writes each value to stats.jsonl and updates run.json.

    `samples` None takes the configuration's metrics_samples; no `metrics` its metrics, or FD-ENL0; `paths` None the
    environment's. Returns the new values. Raises TrainerError on every rank: no run, checkpoint or data set, another
    than the run's, or a metric that cannot be computed for it.
    """
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
