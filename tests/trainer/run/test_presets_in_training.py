"""Presets for clusters, trained a little on this processor: at their size, with fewer channels and images in a step."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainer.config.presets import PRESETS
from trainer.data.shards import write_shards
from trainer.preemption.notices import Interruption
from trainer.records.run_record import RunContext
from trainer.run.loop import train


@pytest.mark.slow
@pytest.mark.parametrize("name", ["r3gan-ffhq256"])
def test_a_presets_wiring_holds_at_its_size(
    name: str, tmp_path: Path, lines_of: Callable[[Path], list[dict[str, Any]]]
) -> None:
    config = PRESETS[name]
    size = (12, config.channels, config.resolution, config.resolution)
    pixels = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
    write_shards(tmp_path / "data", "folder", pixels)
    changes = {"ngf": 64, "ndf": 64, "batch_size": 2, "kimg": 0.004, "stats_kimg": 0.002, "precision": "fp32"}
    # A schedule that a short run is too short for would be refused; the first values stand.
    run = config.replace({**changes, "schedules": {}, "ema_kimg": 0.01, "dataset": "folder", "preset": "small"})
    assert train(run, tmp_path / "run", tmp_path / "data", RunContext(), Interruption()) == 0
    lines = [line for line in lines_of(tmp_path / "run") if "event" not in line]
    assert [line["images"] for line in lines] == [2, 4]
    assert all(np.isfinite(line[key]) for line in lines for key in ("loss_d", "loss_g", "r1", "r2"))
