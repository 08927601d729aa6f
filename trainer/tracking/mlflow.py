"""MLflow: a run on the server that $MLFLOW_TRACKING_URI names, in the experiment $MLFLOW_EXPERIMENT_NAME ["gangway"].

Found by its tag `gangway.run_id`, so that a resumed session goes on in it, on any machine. Uses MlflowClient alone: the
fluent functions keep state for the whole process.
"""

import os
import time
from pathlib import Path

from trainer.tracking.tracker import Line, TrackedRun, scalars

__all__ = ["RUN_ID_TAG", "MlflowTracker"]

RUN_ID_TAG = "gangway.run_id"
_STATUS = {"done": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}


class MlflowTracker:
    """Metrics, with images seen as their step, the configuration as parameters and sample grids as artifacts.
    MlflowException: the server cannot be reached, or refuses.
    """

    def __init__(self, run: TrackedRun) -> None:
        os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")  # which may be for JSON alone
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        self._metric = Metric
        self._client = MlflowClient()
        experiment = _experiment(self._client, os.environ.get("MLFLOW_EXPERIMENT_NAME") or "gangway")
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
        """Logs a line's numbers in one request."""
        stamp = int(line["time"] * 1000)
        metrics = [self._metric(name, value, stamp, line["images"]) for name, value in scalars(line).items()]
        if metrics:
            self._client.log_batch(self._id, metrics=metrics)

    def picture(self, path: Path, images: int) -> None:
        """Stores a grid."""
        self._client.log_artifact(self._id, str(path), "samples")

    def close(self, status: str) -> None:
        """Ends the run; a later session opens it again."""
        self._client.set_terminated(self._id, _STATUS[status], int(time.time() * 1000))


def _experiment(client: object, name: str) -> str:
    found = client.get_experiment_by_name(name)  # type: ignore[attr-defined]
    return str(found.experiment_id if found else client.create_experiment(name))  # type: ignore[attr-defined]
