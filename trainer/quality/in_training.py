"""Quality metrics while a run goes on: when they are due, and what they cost it.

All workers compute them together at multiples of metrics_kimg, on the averaged generator; each value becomes an event
"quality" of stats.jsonl, and no step changes. A worker that has to stop has the others abandon them: a notice leaves
half a minute.
"""

import time
from collections.abc import Callable

from trainer.config import TrainConfig
from trainer.data import ShardedImages
from trainer.quality.collect import AbandonedError, Ask, go_on
from trainer.quality.judge import Judge
from trainer.quality.names import parse
from trainer.quality.record import QualityRecord
from trainer.quality.spaces import WeightsPaths
from trainer.quality.words import value_text
from trainer.state import TrainState
from trainer.workers.distributed import World

__all__ = ["MetricsInTraining", "Moment"]


class Moment:
    """The metrics of one moment.

    Attributes:
        records: a value each; None where they were abandoned.
        cost_sec: that all workers waited for them.
        share: of the session's time so far that went into metrics.
    """

    def __init__(self, records: list[QualityRecord] | None, cost_sec: float, share: float) -> None:
        self._records, self.cost_sec, self._share = records, cost_sec, share

    def tell(self, event: Callable[..., None], say: Callable[[str], None], images: int) -> None:
        """Writes an event for each value, or that there are none, and a line for people."""
        cost = {"cost_sec": self.cost_sec, "share_of_wall": self._share}
        if self._records is None:
            why = "a worker has to stop; `python -m trainer evaluate` computes them from a checkpoint"
            event("quality-abandoned", images, why=why, in_training=cost)
            say(f"kimg {images / 1000:8.2f}  metrics abandoned after {self.cost_sec:.1f} s: {why}")
            return
        for record in self._records:
            event("quality", images, quality=record.model_dump(mode="json"), in_training=cost)
        values = "  ".join(_told(record) for record in self._records)
        spent = f"{self.cost_sec:.1f} s; {self._share:.1%} of the time so far went into metrics"
        say(f"kimg {images / 1000:8.2f}  {values}  ({spent})")


def _told(record: QualityRecord) -> str:
    assert record.trained.value is not None, "it has just been measured"
    return f"{record.name} {value_text(record.name, record.trained.value)}"


class MetricsInTraining:
    """Computes the configured metrics, if any, when they are due; every worker makes the same calls. `ask`: whether
    this worker has to stop. TrainerError as Judge, before the first step.
    """

    def __init__(self, config: TrainConfig, data: ShardedImages, world: World, ask: Ask = go_on) -> None:
        self._every_kimg, self._world = config.metrics_kimg, world
        names = parse(config.metrics)
        self._judge = Judge(names, config, data, world, WeightsPaths(), ask) if names else None
        self._began, self._spent_sec = time.monotonic(), 0.0

    def due(self, state: TrainState) -> bool:
        """Whether the last step reached a moment for metrics."""
        return self._judge is not None and state.passed(self._every_kimg)

    def moment(self, state: TrainState) -> Moment:
        """The metrics of this state, saved before, since they may take long and may fail."""
        assert self._judge is not None, "they are due"
        began = time.monotonic()
        try:
            records = self._judge.judge(state.ema_on(self._world.own_device), state.images, compared=False)
        except AbandonedError:
            records = None
        now = time.monotonic()
        self._spent_sec += now - began
        return Moment(records, now - began, self._spent_sec / (now - self._began))
