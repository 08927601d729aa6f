"""Weights & Biases: a run in the project $WANDB_PROJECT ["gangway"], whose id is the run's own.

With WANDB_MODE=offline all stays in RUN_DIR/wandb until `wandb sync`. Curves are over images seen: W&B's own steps may
never go back, as a killed run does.
"""

import os
import re
from pathlib import Path

from trainer.tracking.tracker import Line, TrackedRun, scalars

__all__ = ["WandbTracker"]

_FORBIDDEN = re.compile(r"[/\\#?%:]")
_EXIT_CODES = {"done": 0, "interrupted": 0, "failed": 1}


class WandbTracker:
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
        """Logs a line's numbers."""
        if values := scalars(line):
            self._run.log({"images": line["images"], **values})

    def picture(self, path: Path, images: int) -> None:
        """Logs a grid."""
        self._run.log({"images": images, "samples": self._wandb.Image(str(path))})

    def close(self, status: str) -> None:
        """Ends the session."""
        self._run.finish(exit_code=_EXIT_CODES[status])
