"""TensorBoard: event files in RUN_DIR/tensorboard, for `tensorboard --logdir RUN_DIR`."""

import json
from pathlib import Path

from trainer.tracking.tracker import Line, TrackedRun, scalars

__all__ = ["FOLDER", "TensorBoardTracker"]

FOLDER = "tensorboard"


class TensorBoardTracker:
    """Scalars and sample grids over images seen (OSError: not writable). What an earlier session wrote beyond the
    images it resumes from is hidden, since it is done again.
    """

    def __init__(self, run: TrackedRun) -> None:
        from torch.utils.tensorboard import SummaryWriter

        purge = run.images + 1 if run.session else None
        self._writer = SummaryWriter(str(run.run_dir / FOLDER), purge_step=purge)
        if not run.session:
            text = f"```json\n{json.dumps(dict(run.config), indent=2)}\n```"
            self._writer.add_text("config", text, 0)

    def show(self, line: Line) -> None:
        """Adds a line's numbers."""
        for name, value in scalars(line).items():
            self._writer.add_scalar(name, value, line["images"], walltime=line["time"])

    def picture(self, path: Path, images: int) -> None:
        """Adds a grid."""
        import numpy as np
        from PIL import Image

        with Image.open(path) as picture:
            pixels = np.asarray(picture.convert("RGB"))
        self._writer.add_image("samples", pixels, images, dataformats="HWC")

    def close(self, status: str) -> None:
        """Flushes and closes the event file; a status is nothing TensorBoard knows."""
        self._writer.close()
