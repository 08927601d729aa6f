"""The generator that a run has learnt so far, for those who want images of it: averaged, whole, and verified."""

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
    """A run's averaged generator, in evaluation, without gradients, and its checkpoint's manifest."""

    network: Generator
    manifest: Manifest


def load_generator(run_dir: Path, device: torch.device) -> Trained:
    """The averaged generator of the newest valid checkpoint, on any device; newer, corrupt ones are told of.
    TrainerError: no run or no valid checkpoint.
    """
    require_run(run_dir, ("checkpoints",))
    found = checkpoint.newest_of_run(run_dir)
    config, images = found.manifest.config, found.manifest.images
    network, _ = build(config)
    network.load_state_dict(found.state["ema"])
    network.to(device).eval().requires_grad_(False).enter(phase_at(config, images, device))
    return Trained(network, found.manifest)
