"""The guard metric reaches a controller's history out of a run's own log: what metrics write is what a watch reads."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.control.watch import get_history
from gangway.trainer.preemption.notices import Interruption
from gangway.trainer.records.run_record import RunContext
from gangway.trainer.run.loop import train


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "metrics", "guards"),
    [("dcgan", "fd-enl0", True), ("video", "fd-enl0-frames", True), ("dcgan", "precision-recall-enl0", False)],
)
def test_a_run_that_computes_it_is_guarded_by_it(
    family: str,
    metrics: str,
    guards: bool,
    families: dict[str, tuple[TrainConfig, Path]],
    tmp_path: Path,
    lines_of: Callable[[Path], list[dict[str, Any]]],
) -> None:
    config, data = families[family]
    often = {"stats_kimg": 0.012, "metrics": metrics, "metrics_kimg": 0.036, "metrics_samples": 8}
    assert train(config.replace(often), tmp_path, data, RunContext(), Interruption()) == 0
    lines = lines_of(tmp_path)
    told = [line["quality"]["trained"]["value"] for line in lines if line.get("event") == "quality"]
    assert told
    found = [each.guard for each in get_history(lines, 1e-6) if each.guard is not None]
    assert found == (told[:1] if guards else []), "no interval follows the last one"
