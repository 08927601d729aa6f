"""Where a run's lines may go besides stats.jsonl: TensorBoard, MLflow, Weights & Biases, one file for each.

    python -m trainer train --preset dcgan-digits --track tensorboard,mlflow

Rank 0 alone feeds them, with the very dicts that go to stats.jsonl. Each has a thread and a queue of its own: training
never waits for a server, and one that fails is told of once and stops nothing. A resumed session goes on in the same
run. Prometheus, which asks instead of being told, is in trainer.metering.telemetry; what is kept for good is in
trainer.records.diary.
"""

from trainer.tracking.feed import Feed, Feeds
from trainer.tracking.targets import TARGETS, check_targets, open_feeds
from trainer.tracking.tracker import TrackedRun, Tracker, scalars

__all__ = ["TARGETS", "Feed", "Feeds", "TrackedRun", "Tracker", "check_targets", "open_feeds", "scalars"]
