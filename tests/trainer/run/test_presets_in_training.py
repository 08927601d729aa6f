"""Presets for clusters, trained a little on this processor: at their size, with fewer channels and images in a step."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gangway.trainer.config.presets import PRESETS
from gangway.trainer.data.shards import write_shards
from gangway.trainer.preemption.notices import Interruption
from gangway.trainer.records.run_record import RunContext
from gangway.trainer.run.loop import train


@pytest.mark.slow
@pytest.mark.parametrize("name", ["r3gan-ffhq256", "r3gan-imagenet64", "progan-celebahq512"])
def test_a_presets_wiring_holds_at_its_size(
    name: str, tmp_path: Path, lines_of: Callable[[Path], list[dict[str, Any]]]
) -> None:
    config = PRESETS[name]
    size = (12, config.channels, config.resolution, config.resolution)
    pixels = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
    classes = ("cat", "dog", "eel") if config.num_classes else ()
    labels = np.arange(12) % len(classes) if classes else None
    write_shards(tmp_path / "data", "folder", pixels, labels=labels, classes=classes)
    width = 64 if config.architecture == "r3gan" else 4
    small = {"ngf": width, "ndf": width, "batch_size": 2, "kimg": 0.004, "stats_kimg": 0.002, "precision": "fp32"}
    # Schedules and segments of millions of images are refused in a run of four; growing networks are at their size.
    short = {"schedules": {}, "segments": (), "ema_kimg": 0.01, "minibatch_std": 2 if config.minibatch_std else 0}
    short |= {"num_classes": len(classes), "batch_gpu": min(config.batch_gpu, 1)}
    grown = {"stable_kimg": 1e-6, "fade_kimg": 1e-6} if config.architecture == "progressive" else {}
    run = config.replace({**small, **short, **grown, "preset": "small"})
    assert train(run, tmp_path / "run", tmp_path / "data", RunContext(), Interruption()) == 0
    lines = [line for line in lines_of(tmp_path / "run") if "event" not in line]
    assert [line["images"] for line in lines] == [2, 4]
    assert [line["resolution"] for line in lines] == [config.resolution] * 2
    penalties = ("r1", "r2") if config.r1_gamma else ("gp",)
    assert all(np.isfinite(line[key]) for line in lines for key in ("loss_d", "loss_g", *penalties))
