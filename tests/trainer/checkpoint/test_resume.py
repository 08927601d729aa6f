"""The promise: interrupted by SIGTERM and resumed, two workers end with the very bits of an uninterrupted run.

And three may take over from two: the same bits to begin with, the same images in the same order, the same losses.
"""

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gangway.trainer.checkpoint import store as checkpoint
from gangway.trainer.checkpoint.resume import check_same_images, is_done
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.data.loader import Sampler
from gangway.trainer.preemption.notices import Interruption
from gangway.trainer.records.run_record import RunContext, RunRecord
from gangway.trainer.run.loop import train

Torchrun = Callable[..., Any]
Lines = Callable[[Path], list[dict[str, Any]]]


def _argv(config: TrainConfig, folder: Path, run_dir: Path, data: Path) -> list[str]:
    path = folder / "config.json"
    path.write_text(config.to_json())
    return ["-m", "gangway.trainer", "train", "--config", str(path), "--run-dir", str(run_dir), "--data", str(data)]


@pytest.mark.slow
def test_an_interrupted_and_resumed_run_equals_an_uninterrupted_one(
    held: Torchrun, torchrun: Torchrun, uninterrupted: Any, tmp_path: Path, digits_dir: Path, lines_of: Lines
) -> None:
    config: TrainConfig = uninterrupted.config
    stopped_dir = tmp_path / "stopped"
    argv = _argv(config, tmp_path, stopped_dir, digits_dir)
    stopped = held(*argv[2:], holds="2x800:STOP")
    stopped.wait_for(lambda: any(line["images"] >= 800 for line in lines_of(stopped_dir)))
    os.kill(stopped.process.pid, signal.SIGTERM)
    code, output = stopped.finish()
    assert code == 75, output
    assert "Traceback" not in output
    interrupted = RunRecord.read(stopped_dir / "run.json")
    assert interrupted.status == "interrupted"
    assert 800 <= interrupted.images < config.total_images
    assert checkpoint.newest(stopped_dir / "checkpoints") == stopped_dir / f"checkpoints/{interrupted.images:012d}.pt"

    resumed = torchrun(*argv)
    code, output = resumed.finish()
    assert code == 0, output

    expected, found = (RunRecord.read(path / "run.json") for path in (uninterrupted.run_dir, stopped_dir))
    assert [session.world_size for session in found.sessions] == [2, 2]
    assert found.sessions[1].images_from == interrupted.images
    assert set(expected.state_sha256) == {"images", "step", "augment_p", "g", "d", "ema", "opt_g", "opt_d"}
    assert found.state_sha256 == expected.state_sha256 == uninterrupted.digests[config.total_images]
    last = f"checkpoints/{config.total_images:012d}.pt"
    manifests = [checkpoint.load(path / last).manifest for path in (uninterrupted.run_dir, stopped_dir)]
    assert manifests[0].state_sha256 == manifests[1].state_sha256 == expected.state_sha256
    # And the way there: after the resume every loss is the uninterrupted run's.
    ticks = [
        {
            line["images"]: (line["loss_g"], line["loss_d"], line["grad_norm_d"])
            for line in lines_of(path)
            if "step" in line
        }
        for path in (uninterrupted.run_dir, stopped_dir)
    ]
    later = [images for images in ticks[1] if images > interrupted.images]
    assert len(later) > 40
    assert all(ticks[0][images] == ticks[1][images] for images in later)


def _close_to_one_worker(several: dict[str, Any], config: TrainConfig, folder: Path, data: Path) -> None:
    train(config, folder, data, RunContext(), Interruption())
    one, _ = checkpoint.load_newest_valid(folder / "checkpoints")
    assert one is not None
    for part in ("g", "d", "ema"):
        for name, expected in one.state[part].items():
            # The same sums in another order: equal but for rounding, which Adam's first steps magnify.
            torch.testing.assert_close(several[part][name], expected, atol=2e-4, rtol=1e-3)


@pytest.mark.slow
def test_one_worker_computes_what_two_do(uninterrupted: Any, tmp_path: Path, digits_dir: Path) -> None:
    images = uninterrupted.kept["images"]
    assert images == 80
    config = uninterrupted.config.replace({"kimg": images / 1000})
    _close_to_one_worker(uninterrupted.kept, config, tmp_path, digits_dir)


@pytest.mark.slow
def test_one_worker_computes_what_three_do(
    torchrun: Torchrun, tiny_config: TrainConfig, tmp_path: Path, digits_dir: Path
) -> None:
    """They share the batch of 16 unevenly: 6, 5, 5."""
    config = tiny_config.replace({"kimg": 0.08})
    code, output = torchrun(*_argv(config, tmp_path, tmp_path / "several", digits_dir), workers=3).finish()
    assert code == 0, output
    several, _ = checkpoint.load_newest_valid(tmp_path / "several" / "checkpoints")
    assert several is not None
    _close_to_one_worker(several.state, config, tmp_path / "one", digits_dir)


WATCHED_WORKER = """
import json, os, sys
from pathlib import Path
from gangway.trainer.run import loop
from gangway.trainer.run import session_setup
from gangway.trainer.checkpoint.store import state_digests
from gangway.trainer.phases import batch
from gangway.trainer.__main__ import run

seen = Path(os.environ["SEEN"], os.environ["RANK"] + ".jsonl").open("w", buffering=1)
restore, batch_of = session_setup.restore, loop.Batch

def restoring(state, *arguments, **options):
    found = restore(state, *arguments, **options)
    seen.write(json.dumps({"images": state.images, "state": state_digests(state.state_dict())}) + "\\n")
    return found

class Watched:  # the shards, with the numbers of the images that training takes
    def __init__(self, data):
        self.data, self.num_classes, self.labels = data, data.num_classes, data.labels
    def __len__(self):
        return len(self.data)
    def take(self, numbers):
        seen.write(json.dumps([int(number) for number in numbers]) + "\\n")
        return self.data.take(numbers)

session_setup.restore = restoring
loop.Batch = lambda config, world, data, *more: batch_of(config, world, Watched(data), *more)
run(sys.argv[1:])
"""


@pytest.mark.slow
def test_a_run_of_two_workers_goes_on_with_three(
    held: Torchrun, torchrun: Torchrun, tiny_config: TrainConfig, tmp_path: Path, digits_dir: Path, lines_of: Lines
) -> None:
    run_dir = tmp_path / "run"
    stopped = held(*_argv(tiny_config, tmp_path, run_dir, digits_dir)[2:], holds="2x320:STOP")
    stopped.wait_for(lambda: any(line["images"] >= 320 for line in lines_of(run_dir)))
    os.kill(stopped.process.pid, signal.SIGTERM)
    code, output = stopped.finish()
    assert code == 75, output
    at = RunRecord.read(run_dir / "run.json").images
    saved = checkpoint.load(run_dir / f"checkpoints/{at:012d}.pt")
    shutil.copytree(run_dir, tmp_path / "one")

    config = tiny_config.replace({"kimg": (at + 20 * 16) / 1000, "stats_kimg": 0.016})
    script = tmp_path / "watched.py"
    script.write_text(WATCHED_WORKER)
    argv = _argv(config, tmp_path, run_dir, digits_dir)[2:]
    code, output = torchrun(str(script), *argv, workers=3, PYTHONPATH=str(Path.cwd()), SEEN=str(tmp_path)).finish()
    assert code == 0, output
    record = RunRecord.read(run_dir / "run.json")
    assert [(session.world_size, session.images_from) for session in record.sessions] == [(2, 0), (3, at)]

    # Each of the three began with the very bits that the two had saved, and they went on in the same order.
    seen = [[json.loads(line) for line in (tmp_path / f"{rank}.jsonl").read_text().splitlines()] for rank in range(3)]
    assert [worker[0] for worker in seen] == [{"images": at, "state": saved.manifest.state_sha256}] * 3
    # What was read ahead, and not needed any more, comes after the 20 steps.
    assert [[len(share) for share in worker[1:21]] for worker in seen] == [[6] * 20, [5] * 20, [5] * 20]
    order = [number for step in range(1, 21) for worker in seen for number in worker[step]]
    assert order == Sampler(1797, config.seed).indices(at, 20 * 16).tolist()

    # And the losses go on as one worker's would from the same checkpoint, but for rounding.
    train(config, tmp_path / "one", digits_dir, RunContext(), Interruption())
    ticks = [
        {line["images"]: (line["loss_g"], line["loss_d"]) for line in lines_of(path) if "step" in line}
        for path in (tmp_path / "one", run_dir)
    ]
    later = [images for images in ticks[1] if images > at]
    assert later == list(range(at + 16, at + 21 * 16, 16))
    for images in later:
        assert ticks[1][images] == pytest.approx(ticks[0][images], rel=1e-3), images


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1])
def test_a_mistake_is_reported_once_by_two_workers(
    torchrun: Torchrun, tiny_config: TrainConfig, tmp_path: Path, digits_dir: Path, batch_size: int
) -> None:
    config = tiny_config.replace({"batch_size": batch_size})
    code, output = torchrun(*_argv(config, tmp_path, tmp_path / "run", digits_dir)).finish()
    assert code == 2, output
    assert output.count("config.json: batch_size: fewer images in a step than workers, of which there are 2") == 1
    assert "start at most 1 processes" in output
    assert "Traceback" not in output
    assert not (tmp_path / "run").exists()


FAILING_WORKER = """
import os, sys
from gangway.trainer.run import session_setup
from gangway.trainer.__main__ import run

restore = session_setup.restore
def failing(*arguments, **options):
    if os.environ["RANK"] == "{rank}":
        raise ZeroDivisionError("a bug of worker {rank}")
    return restore(*arguments, **options)

session_setup.restore = failing
run(sys.argv[1:])
"""


@pytest.mark.slow
@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_a_bug_on_one_worker_ends_both_with_one_traceback(
    torchrun: Torchrun, tiny_config: TrainConfig, tmp_path: Path, digits_dir: Path, rank: int
) -> None:
    script = tmp_path / "failing.py"
    script.write_text(FAILING_WORKER.replace("{rank}", str(rank)))
    argv = _argv(tiny_config, tmp_path, tmp_path / "run", digits_dir)
    code, output = torchrun(str(script), *argv[2:], PYTHONPATH=str(Path.cwd())).finish()
    assert code == 1, output
    assert output.count("Traceback (most recent call last)") == 1, output
    assert output.count(f"[rank{rank}]: ZeroDivisionError: a bug of worker {rank}") == 1, output
    assert output.count("worker 1 failed, so all stop: ZeroDivisionError: a bug of worker 1") == rank, output


def test_workers_with_different_checkpoints_stop(tmp_path: Path) -> None:
    check_same_images([16, 16], tmp_path)
    with pytest.raises(TrainerError, match=r"by rank: \[16, 32\]"):
        check_same_images([16, 32], tmp_path)


def test_a_record_that_cannot_be_read_is_not_done(tmp_path: Path) -> None:
    assert not is_done(tmp_path / "run.json")
    (tmp_path / "run.json").write_text("{")
    assert not is_done(tmp_path / "run.json")
