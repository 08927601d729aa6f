"""What a worker says of its devices; a GPU is played by a fake, because no test machine need have one."""

import os
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from gangway.trainer.core.host import GroupMemory, memory_of_groups
from gangway.trainer.distributed.world import World
from gangway.trainer.power.energy import Gpu
from gangway.trainer.telemetry.devices import device_name, find_gpu, free_host_memory_gib, load


def world_on(device: str) -> World:
    return World(0, 0, 1, 0, 1, torch.device(device), "none", "")


def test_a_cpu_has_no_gpus_figures() -> None:
    found = load(world_on("cpu"))
    assert found.rss_gib > 0.01
    assert (found.gpu_gib, found.gpu_utilisation) == (None, None)
    assert find_gpu(world_on("cpu")) is None
    assert device_name(world_on("cpu")).startswith("cpu, ")


def test_a_nodes_cores_and_memory_are_counted_once() -> None:
    first, second = (load(World(rank, rank, 2, 0, 1, torch.device("cpu"), "gloo", "")) for rank in (0, 1))
    assert first.cores >= 1
    assert first.host_memory_gib > 0.1
    assert (second.cores, second.host_memory_gib) == (0, 0)
    assert 0 < first.cpu_sec <= second.cpu_sec


def get_groups(monkeypatch: pytest.MonkeyPatch, *groups: GroupMemory) -> None:
    monkeypatch.setattr("gangway.trainer.telemetry.devices.memory_of_groups", lambda: iter(groups))


def test_what_the_limits_of_control_groups_leave_bounds_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    get_groups(monkeypatch)
    assert free_host_memory_gib() > 0.1
    get_groups(monkeypatch, GroupMemory(0, 1 << 60))
    assert free_host_memory_gib() > 0.1
    get_groups(monkeypatch, GroupMemory(10 << 20, 60 << 20), GroupMemory(980 << 20, 1000 << 20))
    assert free_host_memory_gib() == 20 / 1024, "the one with the least room"
    get_groups(monkeypatch, GroupMemory(70 << 20, 60 << 20))
    assert free_host_memory_gib() == 0


def test_the_waits_of_all_threads_for_a_core_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangway.trainer.telemetry.devices._TASKS", tmp_path)
    assert load(world_on("cpu")).cpu_wait_sec is None, "this kernel does not count"
    # As the kernel has it: ns on a core, ns ready without one, slices of time.
    for thread, text in {"7": "900000000 1500000000 12\n", "8": "100000000 250000000 3\n"}.items():
        (tmp_path / thread).mkdir()
        (tmp_path / thread / "schedstat").write_text(text)
    (tmp_path / "9" / "schedstat").mkdir(parents=True)  # cannot be read, as of a thread that has just ended
    assert load(world_on("cpu")).cpu_wait_sec == pytest.approx(1.75)


def test_this_kernel_is_understood() -> None:
    found = load(world_on("cpu")).cpu_wait_sec
    assert found is None or 0 <= found < time.monotonic() * 1000


def test_a_gpu_is_named_and_its_use_is_a_share(monkeypatch: pytest.MonkeyPatch) -> None:
    peak = {"bytes": 3 << 30}
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: peak["bytes"])
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: peak.update(bytes=1 << 30))
    monkeypatch.setattr(torch.cuda, "utilization", lambda device: 97)
    properties = SimpleNamespace(name="NVIDIA H100", uuid="0123", total_memory=4 << 30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    world = world_on("cuda:0")
    first, second = load(world), load(world)
    assert (first[1:3], first.gpu_memory_share) == ((3.0, 0.97), 0.75)
    assert (second.gpu_gib, second.gpu_memory_share) == (1.0, 0.25), "what is held now, after less was taken"
    assert find_gpu(world) == Gpu("NVIDIA H100", "GPU-0123", 0)
    assert device_name(world) == "NVIDIA H100"


def test_a_gpu_that_cannot_tell_its_use_leaves_it_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(device: torch.device) -> int:
        raise RuntimeError("Not Supported")

    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 0)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=4 << 30))
    monkeypatch.setattr(torch.cuda, "utilization", unsupported)
    assert load(world_on("cuda:0")).gpu_utilisation is None


def test_a_hosts_busy_time_has_what_was_stolen_and_not_what_was_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = tmp_path / "stat"
    monkeypatch.setattr("gangway.trainer.telemetry.devices._STAT", stat)
    assert load(world_on("cpu")).host_sec is None, "no such file"
    hertz = os.sysconf("SC_CLK_TCK")
    columns = (3, 1, 2, 50, 7, 0, 1, 4, 2, 1)  # the last two are in the first two
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 2})
    busy = " ".join(str(each * hertz) for each in columns)
    stat.write_text(f"cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 {busy}\ncpu1 {busy}\ncpu2 0 0 0 {hertz} 0 0 0 0 0 0\nctxt 5\n")
    assert load(world_on("cpu")).host_sec == (11, 69), "of processor 1 it has nothing"
    assert load(World(1, 1, 2, 0, 1, torch.device("cpu"), "gloo", "")).host_sec is None, "one of a node tells"
    stat.write_text("cpu0 a b c d e\n")
    assert load(world_on("cpu")).host_sec is None


def test_a_quota_bounds_the_cores_that_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangway.trainer.telemetry.devices.usable_cores", lambda: 4)
    assert load(world_on("cpu")).cores == 4


def test_a_node_is_as_full_as_the_fullest_control_group(monkeypatch: pytest.MonkeyPatch) -> None:
    get_groups(monkeypatch)
    machine = load(world_on("cpu")).host_memory_share
    assert machine is not None
    assert 0 < machine < 1
    get_groups(monkeypatch, GroupMemory(1, 1000), GroupMemory(995, 1000), GroupMemory(0, 1 << 60))
    assert load(world_on("cpu")).host_memory_share == pytest.approx(0.995)


def test_a_slurm_jobs_limit_is_seen_where_the_nodes_root_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, job = tmp_path / "cgroup", tmp_path / "mounted/system.slice/slurmstepd.scope/job_7"
    (job / "step_0").mkdir(parents=True)
    own.write_text("0::/system.slice/slurmstepd.scope/job_7/step_0\n")
    for folder, limit in ((job, f"{64 << 20}\n"), (job / "step_0", "max\n")):
        (folder / "memory.max").write_text(limit)
        (folder / "memory.current").write_text(f"{63 << 20}\n")
        (folder / "memory.stat").write_text(f"anon 5\ninactive_file {1 << 20}\n")
    found = partial(memory_of_groups, own, tmp_path / "mounted")
    monkeypatch.setattr("gangway.trainer.telemetry.devices.memory_of_groups", found)
    assert load(world_on("cpu")).host_memory_share == pytest.approx(62 / 64)
    assert free_host_memory_gib() == 2 / 1024


def test_bytes_read_are_known_or_nobodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    io = tmp_path / "io"
    monkeypatch.setattr("gangway.trainer.telemetry.devices._IO", io)
    assert load(world_on("cpu")).read_bytes is None
    io.write_text("rchar: 5\nread_bytes: 4096\nwrite_bytes: 0\n")
    assert load(world_on("cpu")).read_bytes == 4096
