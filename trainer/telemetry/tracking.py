"""Sends runs to trackers (TensorBoard, Weights & Biases, MLflow) in threads, so that a slow server delays nothing."""

import contextlib
import importlib.util
import json
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from gangway.trainer.core.errors import TrainerError, nearest

Line = Mapping[str, Any]
_NOT_SHOWN = frozenset({"time", "session"})
"""Of a statistics line: every target has a clock of its own, and the session is the run's."""
FOLDER = "tensorboard"
RUN_ID_TAG = "gangway.run_id"
_STATUS = {"done": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}
_FORBIDDEN = re.compile(r"[/\\#?%:]")
_EXIT_CODES = {"done": 0, "interrupted": 0, "failed": 1}
_QUEUE_LINES = 256
_DONE_SEC = 60.0  # How long the end of a run waits for its trackers together
_CLOSE_SEC = 5.0  # The same where the run is interrupted or has failed: a spot instance has 30 s in all
_FLAG = "--track"


class TrackedRun(NamedTuple):
    """The run that a tracker shows; a resumed session finds the target's run by `run_id`. `session` counts from 0."""

    run_id: str
    session: int
    images: int
    run_dir: Path
    config: Mapping[str, Any]


class Tracker(Protocol):
    """One target, open for one session. Any exception is reported once, and training continues."""

    def show(self, line: Line) -> None:
        """Takes a line of stats.jsonl, of any kind."""
        ...

    def picture(self, path: Path, images: int) -> None:
        """Takes a grid of samples that has been written, made after that many images."""
        ...

    def close(self, status: str) -> None:
        """Ends the session: `done`, `interrupted` or `failed`."""
        ...


def scalars(line: Line) -> dict[str, float]:
    """Returns a line's numbers for curves, by name; empty for events other than a quality metric."""
    if line.get("event") == "quality":
        quality = line["quality"]
        value = quality["trained"]["value"]
        return {} if value is None else {f"quality/{quality['name']}": float(value)}
    if "event" in line:
        return {}
    return {
        name: float(value) for name, value in line.items() if isinstance(value, int | float) and name not in _NOT_SHOWN
    }


class _TensorBoardTracker:
    """Scalars and sample grids over images seen (OSError); hides an earlier session's beyond the resumed images."""

    def __init__(self, run: TrackedRun) -> None:
        from torch.utils.tensorboard import SummaryWriter

        purge = run.images + 1 if run.session else None
        self._writer = SummaryWriter(str(run.run_dir / FOLDER), purge_step=purge)
        if not run.session:
            text = f"```json\n{json.dumps(dict(run.config), indent=2)}\n```"
            self._writer.add_text("config", text, 0)

    def show(self, line: Line) -> None:
        for name, value in scalars(line).items():
            self._writer.add_scalar(name, value, line["images"], walltime=line["time"])

    def picture(self, path: Path, images: int) -> None:
        import numpy as np
        from PIL import Image

        with Image.open(path) as picture:
            pixels = np.asarray(picture.convert("RGB"))
        self._writer.add_image("samples", pixels, images, dataformats="HWC")

    def close(self, status: str) -> None:
        self._writer.close()


class _MlflowTracker:
    """Metrics over images seen, configuration as parameters, grids as artifacts. Raises MlflowException."""

    def __init__(self, run: TrackedRun) -> None:
        os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")  # which may be for JSON alone
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        self._metric = Metric
        self._client = MlflowClient()
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "gangway"
        known = self._client.get_experiment_by_name(name)
        experiment = str(known.experiment_id if known else self._client.create_experiment(name))
        found = self._client.search_runs([experiment], f"tags.`{RUN_ID_TAG}` = '{run.run_id}'", max_results=1)
        if found:
            self._id = found[0].info.run_id
            self._client.set_terminated(self._id, "RUNNING")
        else:
            created = self._client.create_run(experiment, run_name=run.run_id, tags={RUN_ID_TAG: run.run_id})
            self._id = created.info.run_id
            self._client.log_batch(self._id, params=[Param(name, str(value)) for name, value in run.config.items()])
        self._client.set_tag(self._id, "gangway.session", str(run.session))

    def show(self, line: Line) -> None:
        stamp = int(line["time"] * 1000)
        metrics = [self._metric(name, value, stamp, line["images"]) for name, value in scalars(line).items()]
        if metrics:
            self._client.log_batch(self._id, metrics=metrics)

    def picture(self, path: Path, images: int) -> None:
        self._client.log_artifact(self._id, str(path), "samples")

    def close(self, status: str) -> None:
        self._client.set_terminated(self._id, _STATUS[status], int(time.time() * 1000))


class _WandbTracker:
    """Numbers and sample grids over images seen (wandb.Error: no login, or the server refuses)."""

    def __init__(self, run: TrackedRun) -> None:
        import wandb

        self._wandb = wandb
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or "gangway",
            id=_FORBIDDEN.sub("-", run.run_id),
            name=run.run_id,
            resume="allow",
            dir=str(run.run_dir),
            config=dict(run.config),
            # What the trainer prints is its own; with a changed kimg the resumed run's configuration may differ.
            settings=wandb.Settings(console="off", silent=True),
            allow_val_change=True,
        )
        self._run.define_metric("*", step_metric="images")

    def show(self, line: Line) -> None:
        if values := scalars(line):
            self._run.log({"images": line["images"], **values})

    def picture(self, path: Path, images: int) -> None:
        self._run.log({"images": images, "samples": self._wandb.Image(str(path))})

    def close(self, status: str) -> None:
        self._run.finish(exit_code=_EXIT_CODES[status])


Task = Callable[[Tracker], None]


class Feed:
    """One tracker with its thread, where `make` opens it, as that may take seconds; `warn` gets the first failure."""

    def __init__(self, name: str, make: Callable[[], Tracker], warn: Callable[[str], None]) -> None:
        self._name, self._make, self._warn = name, make, warn
        self._tasks: queue.Queue[Task | None] = queue.Queue(_QUEUE_LINES)
        self._tracker: Tracker | None = None
        self._warned: set[str] = set()
        # A daemon: a server that never answers must not keep the process from ending.
        self._thread = threading.Thread(target=self._work, name=f"tracker-{name}", daemon=True)
        self._thread.start()

    def show(self, line: Line) -> None:
        """Queues a line."""
        self._put(lambda tracker: tracker.show(line))

    def picture(self, path: Path, images: int) -> None:
        """Queues a picture."""
        self._put(lambda tracker: tracker.picture(path, images))

    def close(self, status: str, deadline: float) -> None:
        """Lets the tracker finish the queue and end its session, until `deadline` on time.monotonic's clock."""
        self._put(lambda tracker: tracker.close(status))
        with contextlib.suppress(queue.Full):  # reported below
            self._tasks.put(None, timeout=max(0.0, deadline - time.monotonic()))
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            self._warn_once("slow", "has not taken all lines in time; the rest is in stats.jsonl alone")

    def _put(self, task: Task) -> None:
        try:
            self._tasks.put_nowait(task)
        except queue.Full:
            self._warn_once("full", f"is {_QUEUE_LINES} lines behind; what does not fit is in stats.jsonl alone")

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                self._tracker = self._tracker or self._make()
                task(self._tracker)
            except Exception as error:  # client libraries and servers raise anything
                first_line = next(iter(str(error).splitlines()), "")
                self._warn_once("failed", f"failed ({type(error).__name__}: {first_line}); training goes on")

    def _warn_once(self, kind: str, what: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            self._warn(f"tracker {self._name} {what}")


class Feeds:
    """All feeds of a session, possibly none."""

    def __init__(self, feeds: Sequence[Feed] = ()) -> None:
        self._feeds = feeds

    def show(self, line: Line) -> None:
        """Queues a line of stats.jsonl for every tracker."""
        for feed in self._feeds:
            feed.show(line)

    def picture(self, path: Path, images: int) -> None:
        """Queues a grid of samples for every tracker."""
        for feed in self._feeds:
            feed.picture(path, images)

    def close(self, status: str) -> None:
        """Ends every tracker's session; waits for all of them together up to a limit."""
        deadline = time.monotonic() + (_DONE_SEC if status == "done" else _CLOSE_SEC)
        for feed in self._feeds:
            feed.close(status, deadline)


class _Target(NamedTuple):
    package: str
    install: str
    make: Callable[[TrackedRun], Tracker]


TARGETS: Mapping[str, _Target] = MappingProxyType(
    {
        "tensorboard": _Target("tensorboard", "pip install tensorboard", _TensorBoardTracker),
        "mlflow": _Target("mlflow", "in Gangway's checkout, pip install '.[tracking]'", _MlflowTracker),
        "wandb": _Target("wandb", "in Gangway's checkout, pip install '.[tracking]'", _WandbTracker),
    }
)
"""What `--track` may name."""


def check_targets(names: Sequence[str]) -> None:
    """Raises TrainerError: an unknown or repeated name, a missing package, or MLflow without a server."""
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
    """Starts a feed for each name that passed `check_targets`; each thread opens its target, and warns once."""
    return Feeds([Feed(name, partial(TARGETS[name].make, run), warn) for name in names])
