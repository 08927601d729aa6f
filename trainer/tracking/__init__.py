"""Where a run's lines may go besides stats.jsonl: TensorBoard, MLflow, Weights & Biases, one file for each.

    python -m trainer train --preset dcgan-digits --track tensorboard,mlflow

Rank 0 alone feeds them, each by a thread and queue of its own: training never waits for a server, and one that fails is
told of once and stops nothing. A resumed session goes on in the same run.
"""

from trainer.tracking.feed import Feed, Feeds
from trainer.tracking.targets import TARGETS, check_targets, open_feeds
from trainer.tracking.tracker import TrackedRun, Tracker, scalars

__all__ = ["TARGETS", "Feed", "Feeds", "TrackedRun", "Tracker", "check_targets", "open_feeds", "scalars"]
