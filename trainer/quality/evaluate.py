"""Judges a run: the metrics of its newest checkpoint, before training, after it, and real from real.

    python -m trainer evaluate --run-dir DIR --metrics fd-enl0,precision-recall-enl0
    python -m trainer.launch --standalone --nproc-per-node 8 -m trainer evaluate --run-dir DIR --metrics fid,is,kid

The values do not depend on the number of workers or the device.
"""

from collections.abc import Sequence
from pathlib import Path

from trainer import checkpoint
from trainer.config import TrainConfig
from trainer.data import open_on_all
from trainer.quality.judge import Judge
from trainer.quality.names import parse
from trainer.quality.record import QualityRecord
from trainer.quality.spaces import WeightsPaths
from trainer.record import RunRecord
from trainer.records.diary import StatsWriter, read_diary, require_run
from trainer.records.identity import check_dataset
from trainer.records.summary import summarise
from trainer.state import TrainState
from trainer.workers import distributed
from trainer.workers.distributed import World

__all__ = ["evaluate", "judge_newest"]

_DEFAULT, _DEFAULT_FOR_VIDEO = "fd-enl0", "fd-enl0-frames"


def evaluate(
    run_dir: Path,
    data_dir: Path,
    samples: int | str | None = None,
    metrics: Sequence[str] = (),
    paths: WeightsPaths | None = None,
) -> RunRecord:
    """`judge_newest`, with its errors, and the run's record with it and with what was judged before."""
    judge_newest(run_dir, data_dir, samples, metrics, paths)
    return RunRecord.read(run_dir / "run.json")


def judge_newest(
    run_dir: Path,
    data_dir: Path,
    samples: int | str | None = None,
    metrics: Sequence[str] = (),
    paths: WeightsPaths | None = None,
) -> list[QualityRecord]:
    """Judges the newest valid checkpoint, notes each value in stats.jsonl and writes run.json anew; returns the new
    values.

    `samples` None takes the configuration's metrics_samples; no `metrics` its metrics, or FD-ENL0; `paths` None the
    environment's. TrainerError on every rank: no run, checkpoint or data set, another than the run's, or a metric that
    cannot be computed for it.
    """
    with distributed.start("auto") as world:
        found, config = world.together(lambda: _newest(run_dir, samples, world))
        data = open_on_all(config, data_dir, world)
        world.together(lambda: check_dataset(found.manifest.identity, data.index.sha256, data_dir))
        names = metrics or parse(config.metrics) or [_DEFAULT if config.frames == 1 else _DEFAULT_FOR_VIDEO]
        judge = Judge(names, config, data, world, paths or WeightsPaths())
        state = TrainState.create(config, world.own_device)
        state.load_state_dict(found.state)
        records = judge.judge(state.ema, state.images, compared=True)
        world.first(lambda: _note(run_dir, state.images, records))
        return records


def _newest(run_dir: Path, samples: int | str | None, world: World) -> tuple[checkpoint.Checkpoint, TrainConfig]:
    """The newest valid checkpoint, with its configuration but for the number of samples."""
    require_run(run_dir, ("checkpoints",))
    summarise(run_dir)  # what cannot be summed up is told now, not after minutes of judging
    found = checkpoint.newest_of_run(run_dir, " to judge", aloud=world.rank == 0)
    return found, found.manifest.config.replace({} if samples is None else {"metrics_samples": samples})


def _note(run_dir: Path, images: int, records: Sequence[QualityRecord]) -> None:
    session = read_diary(run_dir).beginnings[-1]["session"]
    stats = StatsWriter(run_dir)
    for record in records:
        stats.event("quality", images, session, quality=record.model_dump(mode="json"))
    summarise(run_dir).write(run_dir / "run.json")
