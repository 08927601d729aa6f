"""The targets by name: what each needs, checked before a run begins, and how it is opened, in its own thread."""

import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from trainer.errors import TrainerError, nearest
from trainer.tracking.feed import Feed, Feeds
from trainer.tracking.tracker import TrackedRun, Tracker

__all__ = ["TARGETS", "check_targets", "open_feeds"]

_FLAG = "--track"


def _tensorboard(run: TrackedRun) -> Tracker:
    from trainer.tracking.tensorboard import TensorBoardTracker

    return TensorBoardTracker(run)


def _mlflow(run: TrackedRun) -> Tracker:
    from trainer.tracking.mlflow import MlflowTracker

    return MlflowTracker(run)


def _wandb(run: TrackedRun) -> Tracker:
    from trainer.tracking.wandb import WandbTracker

    return WandbTracker(run)


class _Target(NamedTuple):
    package: str
    install: str
    make: Callable[[TrackedRun], Tracker]


TARGETS: Mapping[str, _Target] = MappingProxyType(
    {
        "tensorboard": _Target("tensorboard", "pip install tensorboard", _tensorboard),
        "mlflow": _Target("mlflow", "pip install 'gangway[tracking]'", _mlflow),
        "wandb": _Target("wandb", "pip install 'gangway[tracking]'", _wandb),
    }
)
"""What `--track` may name."""


def check_targets(names: Sequence[str]) -> None:
    """TrainerError, before the run: an unknown or repeated name, a missing package, or MLflow without a server."""
    for number, name in enumerate(names):
        if name not in TARGETS or name in names[:number]:
            near = nearest(name, TARGETS)
            raise TrainerError(
                place=_FLAG,
                problem="named twice" if name in TARGETS else "no such target",
                value=name,
                allowed=f"comma-separated, each once: {', '.join(TARGETS)}",
                fix=f"{_FLAG} {near or 'tensorboard'}",
            )
        target = TARGETS[name]
        if importlib.util.find_spec(target.package) is None:
            raise TrainerError(
                place=_FLAG,
                problem=f"{name} needs the package {target.package}, which is not installed here",
                value=name,
                fix=f"{target.install}, or leave {name} out",
            )
        if name == "mlflow" and not os.environ.get("MLFLOW_TRACKING_URI"):
            raise TrainerError(
                place="$MLFLOW_TRACKING_URI",
                problem="is not set, and nothing else says where MLflow's server is",
                allowed="the address of a server",
                fix="MLFLOW_TRACKING_URI=http://host:5000, or leave mlflow out of --track",
            )


def open_feeds(names: Sequence[str], run: TrackedRun, warn: Callable[[str], None]) -> Feeds:
    """Starts a feed for each name that `check_targets` has passed; each thread opens its target, and warns once."""
    return Feeds([Feed(name, _maker(name, run), warn) for name in names])


def _maker(name: str, run: TrackedRun) -> Callable[[], Tracker]:
    return lambda: TARGETS[name].make(run)
