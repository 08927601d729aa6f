"""What goes wrong while a run trains: a killed worker, a signal to one of two, bad numbers, a clock that is set."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gangway.trainer.checkpoint import store
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.distributed.world import is_shared_failure
from gangway.trainer.preemption.notices import Interruption
from gangway.trainer.records.run_record import RunContext, RunRecord
from gangway.trainer.run.loop import train
from gangway.trainer.run.reporter import Reporter
from gangway.trainer.steps.state import TrainState

Lines = Callable[[Path], list[dict[str, Any]]]


def _argv(config: TrainConfig, folder: Path, run_dir: Path, data: Path) -> list[str]:
    path = folder / "config.json"
    path.write_text(config.to_json())
    return ["train", "--config", str(path), "--run-dir", str(run_dir), "--data", str(data)]


def _train(config: TrainConfig, run_dir: Path, data: Path) -> int:
    return train(config, run_dir, data, RunContext(), Interruption())


KILLED_WORKER = """
import os, signal, sys
from gangway.trainer.run import loop
from gangway.trainer.__main__ import run

batch_of = loop.Batch
def mortal(config, world, data, *more):
    batch = batch_of(config, world, data, *more)
    reals = batch.reals
    def at_step_41(images):  # in the first life, as the kernel would do it when memory runs out
        if images == 640 and world.rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            os.kill(os.getpid(), signal.SIGKILL)
        return reals(images)
    batch.reals = at_step_41
    return batch

loop.Batch = mortal
run(sys.argv[1:])
"""


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_the_bits_are_the_same(
    torchrun: Callable[..., Any], uninterrupted: Any, tmp_path: Path, digits_dir: Path
) -> None:
    (tmp_path / "mortal.py").write_text(KILLED_WORKER)
    config = uninterrupted.config.replace({"kimg": 0.96, "checkpoint_kimg": 0.4})
    argv = [str(tmp_path / "mortal.py"), *_argv(config, tmp_path, tmp_path / "run", digits_dir)]
    code, text = torchrun(*argv, launcher=("--max-restarts=1",), PYTHONPATH=str(Path.cwd())).finish()
    assert code == 0, text
    record = RunRecord.read(tmp_path / "run" / "run.json")
    assert [(session.images_from, session.ended_by) for session in record.sessions] == [(0, "killed"), (400, "done")]
    (stop,) = record.interruptions
    assert (stop.cause, stop.images) == ("killed", 400)
    assert stop.save_sec.provenance == stop.stop_sec.provenance == "absent"
    assert stop.lost_sec.value is not None
    assert stop.lost_sec.value > 0
    assert record.state_sha256 == uninterrupted.digests[960]


SIGNALLED_WORKER = """
import os, signal, sys
from gangway.trainer.run import loop
from gangway.trainer.__main__ import run

batch_of = loop.Batch
def signalled(config, world, data, *more):
    batch = batch_of(config, world, data, *more)
    reals = batch.reals
    def to_one(images):  # in the middle of step 11, to the second worker alone
        if images == 160 and world.rank == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return reals(images)
    batch.reals = to_one
    return batch

loop.Batch = signalled
run(sys.argv[1:])
"""


@pytest.mark.slow
def test_a_signal_to_one_worker_stops_both_after_that_very_step(
    torchrun: Callable[..., Any], tiny_config: TrainConfig, tmp_path: Path, digits_dir: Path
) -> None:
    (tmp_path / "signalled.py").write_text(SIGNALLED_WORKER)
    argv = [str(tmp_path / "signalled.py"), *_argv(tiny_config, tmp_path, tmp_path / "run", digits_dir)]
    code, text = torchrun(*argv, PYTHONPATH=str(Path.cwd())).finish()
    assert code == 75, text
    record = RunRecord.read(tmp_path / "run" / "run.json")
    assert (record.images, record.interruptions[0].cause) == (176, "SIGTERM")
    found, _ = store.load_newest_valid(tmp_path / "run" / "checkpoints")
    assert found is not None
    assert found.manifest.images == 176


DRIFTING_WORKER = """
import os, sys, torch
from gangway.trainer.__main__ import run
from gangway.trainer.steps.state import TrainState

update_ema = TrainState.update_ema
def drifting(state):  # the last bit of one number of the second worker, after the tenth step
    update_ema(state)
    if state.step == 10 and os.environ["RANK"] == "1":
        kept = {
            "weight": next(state.discriminator.parameters()),
            "moment": state.roles["generator"].learner.state[list(state.generator.parameters())[1]]["exp_avg_sq"],
            "average": next(state.ema.parameters()),
        }[sys.argv[1]].data
        first = (0,) * kept.dim()
        kept[first] = torch.nextafter(kept[first], torch.tensor(9.0))

TrainState.update_ema = drifting
run(sys.argv[2:])
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "name"),
    [
        # That each of the others is compared and named too, workers/test_agreement.py shows without processes.
        pytest.param("weight", "weight discriminator.layers.0.weight", marks=pytest.mark.slow),
        ("moment", "Adam's exp_avg_sq of generator.layers.0.bias"),
        pytest.param("average", "weight averaged generator.layers.0.weight", marks=pytest.mark.slow),
    ],
)
def test_workers_that_drift_apart_stop_with_the_parameters_name(
    torchrun: Callable[..., Any],
    tiny_config: TrainConfig,
    tmp_path: Path,
    digits_dir: Path,
    lines_of: Lines,
    what: str,
    name: str,
) -> None:
    """Averaged gradients do not tell: an all-reduce makes them equal."""
    (tmp_path / "drifting.py").write_text(DRIFTING_WORKER)
    config = tiny_config.replace({"check_gradients_steps": 10})
    argv = [str(tmp_path / "drifting.py"), what, *_argv(config, tmp_path, tmp_path / "run", digits_dir)]
    code, text = torchrun(*argv, PYTHONPATH=str(Path.cwd())).finish()
    assert code == 2, text
    assert text.count(f"{name}: differs between workers") == 1, text
    assert max(line["images"] for line in lines_of(tmp_path / "run")) <= 160


@pytest.fixture
def short(tiny_config: TrainConfig) -> TrainConfig:
    return tiny_config.replace({"kimg": 0.48, "checkpoint_kimg": 0.16, "sample_kimg": 100, "stats_kimg": 0.08})


@pytest.mark.slow
def test_a_run_whose_numbers_go_bad_names_the_step_and_keeps_its_last_checkpoint(
    short: TrainConfig, tmp_path: Path, digits_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = TrainState.update_ema

    def poisoned(state: TrainState) -> None:
        honest(state)
        if state.images == 208:
            torch.nn.init.constant_(next(state.discriminator.parameters()), float("nan"))

    with monkeypatch.context() as patched:
        patched.setattr(TrainState, "update_ema", poisoned)
        with pytest.raises(TrainerError, match=r"loss_g at step 15, 240 images: is no longer a finite number"):
            _train(short, tmp_path / "run", digits_dir)
    found, passed_over = store.load_newest_valid(tmp_path / "run" / "checkpoints")
    assert found is not None
    assert (found.manifest.images, passed_over) == (160, [])
    # Nothing of the trouble is left: the run goes on from there, to the bits of one that never had it.
    assert _train(short, tmp_path / "run", digits_dir) == _train(short, tmp_path / "through", digits_dir) == 0
    ends = [RunRecord.read(tmp_path / name / "run.json") for name in ("run", "through")]
    assert ends[0].state_sha256 == ends[1].state_sha256
    assert [session.ended_by for session in ends[0].sessions] == ["failed", "done"]


def test_a_step_size_of_a_million_stops_at_once_with_nothing_saved(
    short: TrainConfig, tmp_path: Path, digits_dir: Path
) -> None:
    with pytest.raises(TrainerError, match=r"at step \d+, \d+ images[\s\S]*smaller --lr-g"):
        _train(short.replace({"lr_g": 1e6, "lr_d": 1e6, "kimg": 8}), tmp_path, digits_dir)
    found, _ = store.load_newest_valid(tmp_path / "checkpoints")
    assert found is None or all(torch.isfinite(value).all() for value in found.state["g"].values())


@pytest.mark.slow
@pytest.mark.parametrize(("batch_gpu", "smaller"), [(0, 8), (8, 4), (1, None)])
def test_too_little_memory_names_the_micro_batch_which_a_run_may_change(
    short: TrainConfig,
    tmp_path: Path,
    digits_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    batch_gpu: int,
    smaller: int | None,
) -> None:
    def full(state: TrainState) -> None:
        if state.images > 160:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 80 GiB")

    config = short.replace({"batch_gpu": batch_gpu})
    with monkeypatch.context() as patched:
        patched.setattr(TrainState, "update_ema", full)
        with pytest.raises(TrainerError, match=r"on \d+ image\(s\) at once \(CUDA out of memory\)") as caught:
            _train(config, tmp_path, digits_dir)
    assert caught.value.place == "TrainConfig.batch_gpu"
    assert (f"--batch-gpu {smaller}:" in caught.value.fix) == (smaller is not None)
    if smaller is not None:
        assert _train(config.replace({"batch_gpu": smaller}), tmp_path, digits_dir) == 0
        record = RunRecord.read(tmp_path / "run.json")
        assert [session.images_from for session in record.sessions] == [0, 160]


def test_too_little_memory_for_samples_is_no_matter_of_the_micro_batch(
    short: TrainConfig, tmp_path: Path, digits_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(reporter: Reporter, grid: Callable[[], Tensor], state: TrainState, path: Path) -> None:
        if state.images:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(Reporter, "_write_samples", full)
    with pytest.raises(torch.OutOfMemoryError) as caught:
        _train(short, tmp_path, digits_dir)
    assert is_shared_failure(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("jump", [-86_400.0, 86_400.0])
def test_a_clock_that_is_set_leaves_rates_and_record_as_they_are(
    short: TrainConfig,
    tmp_path: Path,
    digits_dir: Path,
    lines_of: Lines,
    monkeypatch: pytest.MonkeyPatch,
    jump: float,
) -> None:
    honest, update_ema, since = time.time, TrainState.update_ema, [0.0]

    def sets_the_clock(state: TrainState) -> None:
        update_ema(state)
        since[0] = jump if state.images >= 240 else 0.0

    monkeypatch.setattr(time, "time", lambda: honest() + since[0])
    monkeypatch.setattr(TrainState, "update_ema", sets_the_clock)
    began = time.monotonic()
    assert _train(short, tmp_path, digits_dir) == 0
    wall_sec = time.monotonic() - began
    lines = lines_of(tmp_path)
    times = [line["time"] for line in lines]
    assert times == sorted(times)
    assert all(line["images_per_sec"] > 0 for line in lines if "step" in line)
    record = RunRecord.read(tmp_path / "run.json")
    assert record.wall_sec.value is not None
    assert 0 < record.wall_sec.value <= wall_sec
    assert record.images_per_sec.value is not None
    assert record.images_per_sec.value > 0

    # The next session begins with the clock as it is now: a day before the first one ended, or a day after.
    assert _train(short.replace({"kimg": 0.64}), tmp_path, digits_dir) == 0
    again = RunRecord.read(tmp_path / "run.json")
    assert again.wall_sec.value is not None
    assert record.wall_sec.value < again.wall_sec.value <= time.monotonic() - began
    assert any("the clock of session 1 is behind" in note for note in again.notes) == (jump < 0)
