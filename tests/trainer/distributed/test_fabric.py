"""The fabric's acceptance test: nccl-tests' definitions, one verdict for all workers, a job that does not start."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gangway.trainer.distributed.fabric import QUALIFIED, bus_gbps, check_fabric, nccl_versions, unqualified
from gangway.trainer.distributed.world import World
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import RunRecord

CPU = torch.device("cpu")


def test_the_bus_bandwidth_is_that_of_nccl_tests() -> None:
    """8 ranks, 128 MiB in 1 ms: 134 GB/s, times 2 x 7 / 8."""
    assert bus_gbps(134217728, 1e-3, 8) == pytest.approx(134.217728 * 8 * 1.75)


@given(st.integers(2, 4096), st.integers(1, 2**40), st.floats(1e-6, 1e3))
def test_the_bus_bandwidth_lies_between_once_and_twice_the_algorithms(workers: int, size: int, sec: float) -> None:
    algorithm = size * 8e-9 / sec
    assert algorithm * (1 - 1e-12) <= bus_gbps(size, sec, workers) <= 2 * algorithm


@pytest.mark.parametrize(
    ("world", "min_gbps", "reason"),
    [
        (World(0, 0, 2, 0, 2, CPU, "gloo", ""), None, "not asked for: no --fabric-min-gbps"),
        (
            World(0, 0, 2, 0, 2, torch.device("xla"), "xla", ""),
            100.0,
            "PyTorch/XLA runs its all-reduces inside its programs: nothing to time alone",
        ),
        (World(0, 0, 1, 0, 1, CPU, "none", ""), 100.0, "one process: nothing to measure"),
    ],
)
def test_what_cannot_be_measured_is_skipped_with_the_reason(world: World, min_gbps: float | None, reason: str) -> None:
    expected = Quantity(value=2400.0, unit="Gbit/s", provenance="assumed", source="test")
    found = check_fabric(world, min_gbps, expected)
    assert found.verdict == "skipped"
    assert reason in found.reason
    assert found.bus_bandwidth == Quantity.absent("Gbit/s", found.reason)
    assert (found.expected, found.threshold.value, found.points) == (expected, min_gbps, ())


MIB = 1 << 20


class Gpu:
    """A world of 16 workers on GPUs whose all-reduces reach `bus_gbps` and whose buffers need no memory. Whether its
    kernel lists RDMA devices does not matter: machines with GPUDirect-TCPX have none.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, free_gib: float, bus_gbps: float) -> None:
        self.rank, self.world_size, self.device, self.backend = 0, 16, torch.device("cuda:0"), "nccl"
        self.on_xla = False
        self.now = 0.0
        self.freed: list[str] = []

        def all_reduce(buffer: torch.Tensor) -> None:
            self.now += buffer.numel() * 4 * 8e-9 / bus_gbps * 2 * 15 / 16

        def zeros(count: int, device: torch.device) -> torch.Tensor:
            assert device == self.device
            return torch.empty(count, device="meta")

        monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (int(free_gib * 1024) * MIB, 0))
        monkeypatch.setattr("torch.cuda.synchronize", lambda device: None)
        monkeypatch.setattr("torch.cuda.empty_cache", lambda: self.freed.append("cache"))
        monkeypatch.setattr("torch.cuda.reset_peak_memory_stats", lambda device: self.freed.append("peak"))
        monkeypatch.setattr("torch.distributed.all_reduce", all_reduce)
        monkeypatch.setattr("torch.zeros", zeros)

    def gather(self, value: Any, kind: Any = None) -> list[Any]:
        return [value]

    def clock(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("free_gib", "bus_gbps", "largest_mib"),
    [
        (75, 2000, 2048),  # an H100 behind 32 EFA interfaces
        (75, 100, 2048),
        (7, 2000, 1024),  # a quarter of the free memory
        (3.9, 2000, 256),
        (0.001, 2000, 1),
        (75, 5, 256),  # so slow that 1 GiB would take too long
    ],
)
def test_the_largest_size_is_what_memory_and_time_allow(
    monkeypatch: pytest.MonkeyPatch, free_gib: float, bus_gbps: float, largest_mib: int
) -> None:
    gpu = Gpu(monkeypatch, free_gib, bus_gbps)
    found = check_fabric(cast("World", gpu), 1.0, None, clock=gpu.clock)
    assert found.points[-1].size_bytes == largest_mib * MIB
    assert found.bus_bandwidth.value == pytest.approx(bus_gbps)
    assert gpu.freed == ["cache", "peak"], "the job gets all the memory, and its record shows its own"


@pytest.mark.parametrize("named", [True, False])
def test_where_the_network_is_named_it_is_measured_without_a_demand(
    monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    """Also with an empty device folder, as on A3 Mega."""
    monkeypatch.delenv("NCCL_NET", raising=False)
    if named:
        monkeypatch.setenv("NCCL_NET", "FasTrak")
    gpu = Gpu(monkeypatch, 75, 900)
    found = check_fabric(cast("World", gpu), None, None, clock=gpu.clock)
    if named:
        assert (found.verdict, found.threshold.value) == ("passed", None)
        assert found.reason == "900 Gbit/s measured, nothing demanded, NCCL_NET is set"
        assert found.bus_bandwidth.value == pytest.approx(900)
    else:
        assert (found.verdict, found.reason) == ("skipped", "not asked for: no --fabric-min-gbps")


def test_a_network_that_one_worker_names_alone_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the others would wait for it."""
    monkeypatch.setenv("NCCL_NET", "FasTrak")
    gpu = Gpu(monkeypatch, 75, 900)
    monkeypatch.setattr(gpu, "gather", lambda value: [value, False])
    assert check_fabric(cast("World", gpu), None, None, clock=gpu.clock).verdict == "skipped"


TWO_WORKERS = """
import itertools
from gangway.trainer.distributed.world import start_world
from gangway.trainer.distributed.fabric import check_fabric
from gangway.trainer.records.run_record import FabricRecord

with start_world("gloo") as world:
    real = check_fabric(world, 1e-6, None)
    assert real.verdict == "passed" and real.bus_bandwidth.value > 1e-6, real
    assert real.bus_bandwidth.provenance == "measured" and "2 workers, gloo" in real.bus_bandwidth.source
    assert [point.size_bytes for point in real.points] == [1 << 18, 1 << 20]
    assert max(point.bus_gbps for point in real.points) == real.bus_bandwidth.value

    # A clock on which every all-reduce takes 1 ms on rank 0 and 2 ms on rank 1: the slower one counts.
    ticks = (count * (1 + world.rank) / 1000 for count in itertools.count())
    slow = check_fabric(world, 100.0, None, clock=lambda: next(ticks))
    assert slow.verdict == "below" and "100 demanded" in slow.reason
    assert abs(slow.bus_bandwidth.value - (1 << 20) * 8e-9 / 0.002) < 1e-6, slow
    assert abs(slow.points[0].median_sec - 0.002) < 1e-9

    # Where one size alone takes long, the next, larger one is left out.
    ticks = (float(count) for count in itertools.count())
    assert len(check_fabric(world, 100.0, None, clock=lambda: next(ticks)).points) == 1
    assert world.gather(slow, FabricRecord)[0] == slow
    print("worker is content")
"""


@pytest.mark.slow
def test_two_workers_come_to_one_verdict(torchrun: Callable[..., Any], tmp_path: Path) -> None:
    script = tmp_path / "two_workers.py"
    script.write_text(TWO_WORKERS)
    code, output = torchrun(str(script)).finish()
    assert (code, output.count("worker is content")) == (0, 2), output


@pytest.mark.slow
def test_a_job_does_not_start_on_a_fabric_that_is_too_slow(
    torchrun: Callable[..., Any], digits_dir: Path, tmp_path: Path
) -> None:
    argv = ["-m", "gangway.trainer", "train", "--preset", "dcgan-digits", "--kimg", "1", "--ngf", "4", "--ndf", "4"]
    argv += ["--run-dir", str(tmp_path / "run"), "--data", str(digits_dir), "--fabric-min-gbps", "1e9"]
    code, output = torchrun(*argv).finish()
    assert code == 3, output
    assert output.count("--fabric-min-gbps: the fabric is too slow") == 1
    assert "Traceback" not in output
    record = RunRecord.read(tmp_path / "run" / "run.json")
    assert record.fabric is not None
    assert (record.fabric.verdict, record.fabric.threshold.value) == ("below", 1e9)
    assert record.fabric.bus_bandwidth.provenance == "measured"
    assert (record.status, record.images) == ("interrupted", 0)
    assert [interruption.cause for interruption in record.interruptions] == ["unhealthy-fabric"]


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "fast"])
def test_a_threshold_is_a_number_above_zero(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    from gangway.trainer.__main__ import main

    assert main(["train", "--preset", "dcgan-digits", f"--fabric-min-gbps={value}"]) == 2
    assert "--fabric-min-gbps" in capsys.readouterr().err


NCCL = "int ncclGetVersion(int *v) {{ *v = {code}; return 0; }}"
# What libtorch_cuda.so is to libnccl.so.2.
TORCH = "int ncclGetVersion(int *); int torch_asks(void) { int v = 0; ncclGetVersion(&v); return v; }"
PROGRAM = """
import ctypes, sys
from gangway.trainer.distributed.fabric import loaded_nccl
print(loaded_nccl())
torch = ctypes.CDLL(sys.argv[1])
print(torch.torch_asks(), loaded_nccl())
"""


def compiled(folder: Path, name: str, text: str, *options: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "source.c").write_text(text)
    library = folder / name
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, folder / "source.c", *options], check=True)
    return library


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize(
    ("preloads", "before", "after"), [(True, "2.28.7", "22807 2.28.7"), (False, "None", "23007 2.30.7")]
)
def test_what_answers_is_what_was_preloaded(tmp_path: Path, preloads: bool, before: str, after: str) -> None:
    soname = "-Wl,-soname,libnccl.so.2"
    own = compiled(tmp_path / "own", "libnccl.so.2", NCCL.format(code=23007), soname)
    qualified = compiled(tmp_path / "qualified", "libnccl.so.2", NCCL.format(code=22807), soname)
    rpath = f"-Wl,--disable-new-dtags,-rpath,{own.parent}"
    torch = compiled(tmp_path / "torch", "libtorch_cuda.so", TORCH, rpath, f"-L{own.parent}", "-l:libnccl.so.2")
    env = {**os.environ, "LD_LIBRARY_PATH": str(qualified.parent)}
    if preloads:
        env["LD_PRELOAD"] = str(qualified)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(torch)], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[:2] == [before, after]


def test_what_the_record_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(QUALIFIED, raising=False)
    assert nccl_versions("gloo") == {}
    assert nccl_versions("nccl").keys() == {"nccl"}
    assert unqualified(nccl_versions("nccl")) == ""
    monkeypatch.setenv(QUALIFIED, "2.28.7")
    assert nccl_versions("nccl")["nccl-qualified"] == "2.28.7"
    assert unqualified({"nccl": "2.28.7", "nccl-qualified": "2.28.7"}) == ""
    assert unqualified({"nccl": "2.30.7", "nccl-qualified": "2.28.7"}).startswith("NCCL 2.30.7 is loaded, and")
