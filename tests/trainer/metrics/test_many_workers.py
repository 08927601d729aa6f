"""Metrics over two workers are those of one: the same draws and features, sums that differ in their last digits."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.distributed.world import World
from gangway.trainer.metrics.collect import collect
from gangway.trainer.metrics.scores import compare, kernel_distance
from gangway.trainer.preemption.notices import Interruption
from gangway.trainer.records.run_record import RunContext, RunRecord
from gangway.trainer.run.loop import train

FEATURES = """
import numpy as np

NUM, DIM = 75, 4

def features(part):
    # Rows as float32 networks give them, two for each image.
    table = np.random.default_rng(0).normal(3, 1, (NUM, 2, DIM)).astype(np.float32)
    return table[part].reshape(-1, DIM).astype(np.float64)
"""

TWO_WORKERS = f"""
import sys
from gangway.trainer.distributed.world import start_world
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.metrics.collect import AbandonedError, collect
from gangway.trainer.metrics.scores import compare
from gangway.trainer.metrics.scores import kernel_distance
{FEATURES}
def broken(part):
    # On the second worker alone, which has the parts from 16 on.
    if part.start >= 16:
        raise TrainerError(place="part", problem="is broken")
    return features(part)

with start_world("gloo") as world:
    found = collect(features, NUM, DIM, world, keep=True)
    shares = compare(found.kept[:70], found.kept[70:], world)
    kernel = kernel_distance(found.kept[:70], found.kept[70:], 40, world, subsets=5)
    few = collect(features, 3, DIM, world, keep=True)
    for of, ask, expected in (
        (features, lambda: world.rank == 1, AbandonedError),
        (broken, lambda: False, TrainerError),
        (broken, lambda: world.rank == 0, TrainerError),
    ):
        try:
            collect(of, 32, DIM, world, keep=False, ask=ask)
        except expected:
            pass
        else:
            raise AssertionError("it went on")
    try:
        kernel_distance(found.kept[:70], found.kept[70:], 40, world, ask=lambda: world.rank == 1)
    except AbandonedError:
        pass
    else:
        raise AssertionError("it went on")
    name = f"{{sys.argv[1]}}/{{world.rank}}.npz"
    np.savez(name, rows=found.kept, covariance=found.moments.covariance, shares=shares, kernel=kernel, few=few.kept)
"""


@pytest.mark.slow
def test_two_workers_bring_together_what_one_has(
    alone: World, tmp_path: Path, torchrun: Callable[..., Any], repo: Path
) -> None:
    names: dict[str, Any] = {}
    exec(FEATURES, names)
    features, num, dim = names["features"], names["NUM"], names["DIM"]
    script = tmp_path / "two_workers.py"
    script.write_text(TWO_WORKERS)
    code, output = torchrun(str(script), str(tmp_path), PYTHONPATH=str(repo)).finish()
    assert code == 0, output
    one = collect(features, num, dim, alone, keep=True)
    for rank in range(2):
        two = np.load(tmp_path / f"{rank}.npz")
        np.testing.assert_array_equal(two["rows"], one.kept)
        np.testing.assert_allclose(two["covariance"], one.moments.covariance, rtol=1e-9)
        np.testing.assert_array_equal(two["shares"], compare(one.kept[:70], one.kept[70:], alone))
        kernel = kernel_distance(one.kept[:70], one.kept[70:], 40, alone, subsets=5)
        np.testing.assert_allclose(two["kernel"], kernel, rtol=1e-6)
        np.testing.assert_array_equal(two["few"], features(slice(0, 3)), "one part for two workers")


@pytest.mark.slow
def test_evaluate_under_torchrun_finds_the_values_of_one_process(
    tiny_config: TrainConfig,
    tmp_path: Path,
    digits_dir: Path,
    start: Callable[..., Any],
    torchrun: Callable[..., Any],
) -> None:
    config = tiny_config.replace({"kimg": 0.16, "metrics_samples": 40})
    train(config, tmp_path, digits_dir, RunContext(), Interruption())
    command = ("-m", "gangway.trainer", "evaluate", "--run-dir", str(tmp_path), "--data", str(digits_dir))
    metrics = ("--metrics", "fd-enl0,precision-recall-enl0")
    records = []
    for begin in (start, torchrun):  # one after the other: both write the same run's record
        code, output = begin(*command, *metrics).finish()
        assert code == 0, output
        assert len(re.findall("^FD-ENL0  untrained", output, re.MULTILINE)) == 1, "rank 0 alone speaks"
        records.append(RunRecord.read(tmp_path / "run.json"))
    one, two = ({quality.name: quality for quality in record.quality} for record in records)
    assert list(one) == list(two)
    assert len(one) == 5
    for name in one:
        for kind in ("untrained", "trained", "real_vs_real"):
            # The root of a covariance of 40 images in 1280 dimensions has fewer digits than the covariance.
            assert getattr(two[name], kind).value == pytest.approx(getattr(one[name], kind).value, rel=1e-7)
    assert two["FD-ENL0"].protocol == one["FD-ENL0"].protocol
