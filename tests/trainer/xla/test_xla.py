"""The trainer on PyTorch/XLA's CPU: the same run as on gloo's, resumed bit by bit, in few programs.

`make test-xla` runs it. All runs share one process, because every program is compiled once a process.
"""

import importlib.util
import json
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gangway.trainer.checkpoint import store
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.distributed.world import start_world
from gangway.trainer.preemption.notices import Interruption
from gangway.trainer.records.run_record import RunContext, RunRecord
from gangway.trainer.run.loop import train
from gangway.trainer.steps.state import TrainState
from tools.drill.cluster import make_key

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch_xla") is None, reason="torch_xla is not installed here: make test-xla"
)

IN_PROCESSES = {"PJRT_DEVICE": "CPU", "XLA_FLAGS": "--xla_backend_optimization_level=0"}
"""Where a process compiles for itself, compiling is most of the test."""
HALF_KIMG, WHOLE_KIMG = 2.4, 4.8
"""150 and 300 steps of 16 images."""
CLOSE, NEAR = 2e-6, 1e-2
"""Largest relative difference of losses: while both sum up in another order, and once the networks amplify that.

Measured: 4e-7 up to step 60, 2e-6 at 70, 2e-5 at 80, below 4e-3 up to 300. A GAN's training is chaotic, and where that
begins is a matter of what was drawn; further on nothing is to be compared.
"""
CLOSE_HALVES = 1e-5
"""The same of two workers' halves, which are summed apart, up to where networks amplify it, as above. Measured: less up
to step 70, 1.5e-5 at 80."""
CLOSE_TICKS = 6
"""Lines, of ten steps, that are close."""
PROGRAMS = 12
"""Discriminator's step with the penalty and without, generator's step, averages; the first of each; two norms."""

Lines = Callable[[Path], list[dict[str, Any]]]


@pytest.fixture(scope="module", autouse=True)
def _on_the_cpu() -> None:
    """A TPU, where there is one, is not for tests. And autograd counts devices once, at its first backward."""
    os.environ["PJRT_DEVICE"] = "CPU"
    import torch_xla  # type: ignore[import-not-found]  # has an environment of its own

    torch_xla.device()


@pytest.fixture(scope="module")
def config(tiny_config: TrainConfig) -> TrainConfig:
    changes = {"lr_g": 2e-4, "lr_d": 2e-4, "kimg": WHOLE_KIMG, "stats_kimg": 0.16, "checkpoint_kimg": HALF_KIMG}
    return tiny_config.replace(changes)


@pytest.fixture(scope="module")
def begin(config: TrainConfig, digits_dir: Path) -> Callable[..., Path]:
    """Trains in this process; returns the run directory."""

    def run(run_dir: Path, backend: str, kimg: float = WHOLE_KIMG) -> Path:
        changed = config.replace({"backend": backend, "kimg": kimg})
        assert train(changed, run_dir, digits_dir, RunContext(run_id="r"), Interruption()) == 0
        return run_dir

    return run


@pytest.fixture(scope="module")
def on_cpu(begin: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run on gloo's CPU."""
    return begin(tmp_path_factory.mktemp("cpu"), "gloo")


@pytest.fixture(scope="module")
def counted(begin: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    """A whole run on XLA, and what PyTorch/XLA counted during it."""
    from torch_xla.debug import metrics  # type: ignore[import-not-found]  # has an environment of its own

    def counters() -> dict[str, int]:
        return {name: metrics.counter_value(name) for name in metrics.counter_names()}

    before = counters()
    run_dir = begin(tmp_path_factory.mktemp("xla"), "xla")
    return run_dir, {name: value - before.get(name, 0) for name, value in counters().items()}


def _ticks(run_dir: Path, lines_of: Lines) -> list[dict[str, Any]]:
    return [line for line in lines_of(run_dir) if "event" not in line]


def _agree(ours: list[dict[str, Any]], theirs: list[dict[str, Any]], rel: float) -> None:
    assert [line["step"] for line in ours] == [line["step"] for line in theirs]
    for line, other in zip(ours, theirs, strict=True):
        for key in ("loss_g", "loss_d", "r1"):
            assert line[key] == pytest.approx(other[key], rel=rel), f"{key} at step {line['step']}"


def test_losses_are_those_of_the_cpu(on_cpu: Path, counted: tuple[Path, dict[str, int]], lines_of: Lines) -> None:
    ours, theirs = _ticks(counted[0], lines_of), _ticks(on_cpu, lines_of)
    assert len(ours) == 30
    _agree(ours[:CLOSE_TICKS], theirs[:CLOSE_TICKS], CLOSE)
    _agree(ours[CLOSE_TICKS:], theirs[CLOSE_TICKS:], NEAR)
    assert theirs[-1]["loss_d"] < theirs[0]["loss_d"] / 2, "it learns, so that equal is not merely untouched"


def test_steps_take_few_programs_and_read_nothing_back(counted: tuple[Path, dict[str, int]], lines_of: Lines) -> None:
    run_dir, counters = counted
    assert 4 <= counters["UncachedCompile"] <= PROGRAMS, counters
    assert counters["CachedCompile"] >= 3 * 300 - PROGRAMS, "each step's three programs"
    read_back = {name: value for name, value in counters.items() if name.startswith("aten::")}
    assert set(read_back) <= {"aten::_local_scalar_dense"}, "what XLA cannot do falls back to the CPU"
    assert read_back["aten::_local_scalar_dense"] <= 2 * len(_ticks(run_dir, lines_of)), "two norms a line"


def test_a_resumed_run_ends_in_the_same_bits(
    begin: Callable[..., Path], counted: tuple[Path, dict[str, int]], tmp_path: Path
) -> None:
    begin(tmp_path, "xla", HALF_KIMG)
    begin(tmp_path, "xla")
    resumed, whole = RunRecord.read(tmp_path / "run.json"), RunRecord.read(counted[0] / "run.json")
    assert [(session.images_from, session.images_to) for session in resumed.sessions] == [(0, 2400), (2400, 4800)]
    assert resumed.state_sha256 == whole.state_sha256


@pytest.mark.parametrize("backends", [("gloo", "xla"), ("xla", "gloo")])
def test_a_run_goes_on_where_another_device_left_it(
    begin: Callable[..., Path], on_cpu: Path, tmp_path: Path, lines_of: Lines, backends: tuple[str, str]
) -> None:
    begin(tmp_path, backends[0], HALF_KIMG)
    begin(tmp_path, backends[1])
    _agree(_ticks(tmp_path, lines_of), _ticks(on_cpu, lines_of), NEAR)
    record = RunRecord.read(tmp_path / "run.json")
    assert [session.device.startswith("cpu") for session in record.sessions] == [name == "gloo" for name in backends]


def test_checkpoints_hold_tensors_of_the_cpu(counted: tuple[Path, dict[str, int]]) -> None:
    path = store.newest(counted[0] / "checkpoints")
    assert path is not None
    state = torch.load(path, weights_only=True)  # without map_location: as the file has them
    moments = [tensor for entry in state["opt_d"]["state"].values() for tensor in entry.values()]
    tensors = [*state["g"].values(), *state["ema"].values(), *moments]
    assert {tensor.device.type for tensor in tensors} == {"cpu"}


def test_the_record_names_the_device(counted: tuple[Path, dict[str, int]]) -> None:
    (session,) = RunRecord.read(counted[0] / "run.json").sessions
    assert session.device.startswith("CPU, PyTorch/XLA 2.9")
    assert session.backend == "none (one process; else xla: asked for)"


def test_samples_can_be_drawn_by_one_worker_alone(config: TrainConfig) -> None:
    with start_world("xla") as world:
        state = TrainState.create(config, world.device)
        assert world.own_device == torch.device("cpu")
        copied = state.ema_on(world.own_device)
        for ours, there in zip(copied.parameters(), state.ema.parameters(), strict=True):
            torch.testing.assert_close(ours, there.cpu(), rtol=0, atol=0)


def test_gradients_are_averaged_in_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """PJRT's CPU has one device: an all-reduce over it, which divides by two workers, halves the gradient."""
    with start_world("xla") as world:
        weight = torch.nn.Parameter(torch.zeros(3).to(world.device))
        optimizer = torch.optim.SGD([weight], lr=1.0)
        torch.autograd.backward((weight * 4).sum())
        monkeypatch.setattr("gangway.trainer.distributed.xla.runtime.world_size", lambda: 2)
        world.step(optimizer)
        assert weight.cpu().tolist() == [-2.0] * 3


@pytest.mark.parametrize(
    ("kind", "chips", "hosts", "metadata", "expected"),
    [
        ("CPU", 0, [], {}, ""),
        ("TPU", 1, ["10.0.0.1"], {}, ""),
        ("TPU", 4, ["10.0.0.1"], {}, "--standalone --nproc-per-node=4"),
        (
            "TPU",
            4,
            ["10.0.0.1", "10.0.0.2"],
            {},
            "--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=10.0.0.1:29400 --rdzv-id=gangway --nproc-per-node=4",
        ),
        (
            "TPU",
            4,
            ["10.0.1.1", "10.0.1.2"],
            {"MEGASCALE_NUM_SLICES": "3", "MEGASCALE_COORDINATOR_ADDRESS": "10.0.0.1:8080"},
            "--nnodes=6 --rdzv-backend=c10d --rdzv-endpoint=10.0.0.1:29400 --rdzv-id=gangway --nproc-per-node=4",
        ),
    ],
)
def test_a_tpu_host_starts_a_process_for_each_chip(
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    chips: int,
    hosts: list[str],
    metadata: dict[str, str],
    expected: str,
) -> None:
    from gangway.trainer.distributed import xla

    monkeypatch.setattr("gangway.trainer.distributed.xla.runtime.device_type", lambda: kind)
    monkeypatch.setattr("gangway.trainer.distributed.xla.tpu.num_local_processes", lambda: chips)
    monkeypatch.setattr("gangway.trainer.distributed.xla.tpu.get_worker_ips", lambda: hosts)
    monkeypatch.setattr("gangway.trainer.distributed.xla.tpu.get_tpu_env", lambda: metadata)
    assert " ".join(xla.launcher_argv()) == expected


def test_several_devices_in_one_process_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from gangway.trainer.distributed import xla

    monkeypatch.setattr("gangway.trainer.distributed.xla.runtime.addressable_device_count", lambda: 2)
    with pytest.raises(TrainerError, match=r"one process for each device[\s\S]*2 CPU devices"):
        xla.join()


def test_processes_that_pjrt_does_not_join_are_refused(torchrun: Callable[..., Any], tmp_path: Path) -> None:
    argv = ("train", "--preset", "dcgan-digits", "--backend", "xla", "--run-dir", str(tmp_path / "run"))
    code, output = torchrun("-m", "gangway.trainer", *argv, **IN_PROCESSES).finish()
    assert code == 2, output
    assert output.count("--backend: torchrun has started 2 processes that PJRT does not join") == 1
    assert not (tmp_path / "run").exists()


def test_a_signal_leaves_a_checkpoint(
    start: Callable[..., Any], lines_of: Lines, config: TrainConfig, digits_dir: Path, tmp_path: Path
) -> None:
    file, run_dir = tmp_path / "config.json", tmp_path / "run"
    file.write_text(config.replace({"kimg": 1000, "checkpoint_kimg": 500, "sample_kimg": 500}).to_json())
    argv = ("--config", str(file), "--backend", "xla", "--run-dir", str(run_dir), "--data", str(digits_dir))
    started = start("-m", "gangway.trainer", "train", *argv, **IN_PROCESSES)
    started.wait_for(lambda: len(lines_of(run_dir)) > 1)
    started.process.send_signal(signal.SIGTERM)
    code, output = started.finish()
    assert code == 75, output
    assert "interrupted by SIGTERM" in output
    found, passed_over = store.load_newest_valid(run_dir / "checkpoints")
    assert found is not None
    assert not passed_over
    assert json.loads((run_dir / "config.json").read_text())["backend"] == "xla"


TWO_WORKERS = """
import json, os, sys
from pathlib import Path

import torch
from torch import distributed as dist
from torch_xla.debug import metrics

from gangway.trainer.distributed import xla
from gangway.trainer.config.train_config import TrainConfig
from gangway.trainer.preemption.notices import Interruption
from gangway.trainer.run.loop import train
from gangway.trainer.records.run_record import RunContext

def average(optimizer, **unused):
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            gradient = parameter.grad.cpu()
            dist.all_reduce(gradient, op=dist.ReduceOp.SUM)
            parameter.grad = (gradient / 2).to(parameter.device)

config, run_dir, data = TrainConfig.from_file(Path(sys.argv[1])), Path(sys.argv[2]), Path(sys.argv[3])
# PJRT's CPU joins no processes: torchrun's gloo stands in for the TPU's network, and its ranks for PJRT's.
xla.pjrt.initialize_multiprocess = lambda rank, size: None
xla.runtime.world_size = lambda: 2
xla.runtime.global_ordinal = lambda: int(os.environ["RANK"])
xla.xla_model.reduce_gradients = average
assert train(config, run_dir, data, RunContext(run_id="r"), Interruption()) == 0
counted = [metrics.counter_value(f"{kind}Compile") for kind in ("Uncached", "Cached")]
# In a file of its own: what two processes print at once comes in pieces.
Path(sys.argv[4], os.environ["RANK"]).write_text(json.dumps(counted))
"""


@pytest.mark.timeout(600)  # two workers compile every program, beside whatever else is on the machine
def test_two_workers_run_the_same_programs_and_train_as_two_on_the_cpu(
    torchrun: Callable[..., Any], lines_of: Lines, config: TrainConfig, digits_dir: Path, tmp_path: Path
) -> None:
    """All is real but the network between the two: shares, samples, checkpoint, the comparison of gradients."""
    script = tmp_path / "two_workers.py"
    script.write_text(TWO_WORKERS)
    for backend in ("xla", "gloo"):
        file = tmp_path / f"{backend}.json"
        file.write_text(config.replace({"kimg": 1.6, "sample_kimg": 0.8, "backend": backend}).to_json())
    counted = tmp_path / "programs"
    counted.mkdir()
    argv = (str(tmp_path / "xla.json"), str(tmp_path / "xla"), str(digits_dir), str(counted))
    code, output = torchrun(str(script), *argv, **IN_PROCESSES).finish(400)
    assert code == 0, output
    first, second = (json.loads((counted / rank).read_text()) for rank in ("0", "1"))
    assert min(first) > 0, "XLA compiled and ran programs"
    assert first == second, "workers that run different programs hang on a TPU"
    flags = ("--config", str(tmp_path / "gloo.json"), "--run-dir", str(tmp_path / "gloo"), "--data", str(digits_dir))
    code, output = torchrun("-m", "gangway.trainer", "train", *flags).finish()
    assert code == 0, output
    ours, theirs = _ticks(tmp_path / "xla", lines_of), _ticks(tmp_path / "gloo", lines_of)
    _agree(ours[:CLOSE_TICKS], theirs[:CLOSE_TICKS], CLOSE_HALVES)
    _agree(ours, theirs, NEAR)
    assert len(list((tmp_path / "xla" / "samples").iterdir())) == 2


MEET = """
import os
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
once = os.environ["ONCE"]
if dist.get_rank() == 1 and not os.path.exists(once):
    open(once, "w").close()
    raise SystemExit(3)
dist.barrier()
print(f"{int(total.item())} have met", flush=True)
dist.destroy_process_group()
"""


def test_this_torchrun_takes_what_the_script_of_a_tpu_host_gives_it(
    start: Callable[..., Any], gce: Any, tmp_path: Path
) -> None:
    """run-tpu.sh of two hosts, which tests/images runs with a docker that starts nothing: they meet by the job's key,
    and again when a worker has failed.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    key = tmp_path / "job.pem"
    make_key(key)
    (tmp_path / "meet.py").write_text(MEET)
    own = ("--member-key", str(key))
    hosts = [
        start(
            *(
                "-m",
                "gangway.trainer.launch",
                "--watch",
                str(tmp_path / "held"),
                *own,
                "--nnodes=2",
                "--rdzv-backend=gangway",
            ),
            *(f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=demo", "--rdzv-conf=is_host=0,join_timeout=3600"),
            *("--nproc-per-node=1", "--max-restarts=3", str(tmp_path / "meet.py")),
            ONCE=str(tmp_path / "failed-once"),
        )
        for _ in range(2)
    ]
    start("-m", "gangway.trainer.launch.rendezvous", "--port", str(port), *own)
    for host in hosts:
        code, text = host.finish()
        assert code == 0, text
        assert "2 have met" in text
        assert "warning: without --member-key" not in text
    assert (tmp_path / "failed-once").exists()
