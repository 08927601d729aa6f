"""The generator that a run has learnt so far, for those who want images of it: averaged, whole, and verified.

Not here: going on with training (trainer.resume).
"""

from pathlib import Path
from typing import NamedTuple

import torch

from trainer import checkpoint
from trainer.checkpoint import Manifest
from trainer.networks import Generator, build
from trainer.records.diary import require_run
from trainer.steps.phases import phase_at

__all__ = ["Trained", "load_generator"]


class Trained(NamedTuple):
    """A run's averaged generator.

    Attributes:
        network: in evaluation, without gradients.
        manifest: of the checkpoint it is from.
    """

    network: Generator
    manifest: Manifest


def load_generator(run_dir: Path, device: torch.device) -> Trained:
    """Loads the averaged generator of the newest valid checkpoint; newer ones that are corrupt are told of.

    Args:
        run_dir: of the run.
        device: to load it on, whatever device it was trained on.

    Raises:
        TrainerError: there is no run or no valid checkpoint.
    """
    require_run(run_dir, ("checkpoints",))
    found = checkpoint.newest_of_run(run_dir)
    config, images = found.manifest.config, found.manifest.images
    network, _ = build(config)
    network.load_state_dict(found.state["ema"])
    network.to(device).eval().requires_grad_(False).enter(phase_at(config, images, device))
    return Trained(network, found.manifest)
