"""Quality metrics while a run goes on: when they are due, and what they cost it.

All workers compute them together at multiples of metrics_kimg, on the averaged generator; each value becomes a line of
stats.jsonl, event "quality". They change nothing that a step computes. Not here: the metrics (trainer.quality.judge).
"""

import time
from collections.abc import Callable

from trainer.config import TrainConfig
from trainer.data import ShardedImages
from trainer.distributed import World
from trainer.quality.judge import Judge
from trainer.quality.names import parse
from trainer.quality.record import QualityRecord
from trainer.quality.spaces import WeightsPaths
from trainer.state import TrainState

__all__ = ["MetricsInTraining", "Moment"]


class Moment:
    """The metrics of one moment.

    Args:
        records: a value each.
        cost_sec: that all workers waited for them.
        share: of the session's time so far that went into metrics.
    """

    def __init__(self, records: list[QualityRecord], cost_sec: float, share: float) -> None:
        self._records, self._cost_sec, self._share = records, cost_sec, share

    def tell(self, event: Callable[..., None], images: int) -> None:
        """Writes one event for each value, and a line for people.

        Args:
            event: writes an event of the run's diary.
            images: seen.
        """
        cost = {"cost_sec": self._cost_sec, "share_of_wall": self._share}
        for record in self._records:
            event("quality", images, quality=record.model_dump(mode="json"), in_training=cost)
        values = "  ".join(f"{record.name} {record.trained.value:.4g}" for record in self._records)
        spent = f"{self._cost_sec:.1f} s; {self._share:.1%} of the time so far went into metrics"
        print(f"kimg {images / 1000:8.2f}  {values}  ({spent})", flush=True)


class MetricsInTraining:
    """Computes the configured metrics when they are due; with none configured it does nothing.

    Args:
        config: of the run.
        data: the real images.
        world: the workers; every one makes the same calls.

    Raises:
        TrainerError: as Judge, before the first step: weights are missing, or a metric does not fit the data.
    """

    def __init__(self, config: TrainConfig, data: ShardedImages, world: World) -> None:
        self._every_kimg, self._world = config.metrics_kimg, world
        names = parse(config.metrics)
        self._judge = Judge(names, config, data, world, WeightsPaths()) if names else None
        self._began, self._spent_sec = time.monotonic(), 0.0

    def moment(self, state: TrainState) -> Moment | None:
        """The metrics of this state; None when none are due.

        Args:
            state: after a step.
        """
        if self._judge is None or not state.passed(self._every_kimg):
            return None
        began = time.monotonic()
        records = self._judge.judge(state.ema_on(self._world.own_device), state.images, compared=False)
        now = time.monotonic()
        self._spent_sec += now - began
        return Moment(records, now - began, self._spent_sec / (now - self._began))
