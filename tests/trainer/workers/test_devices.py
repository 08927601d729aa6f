"""What a worker says of its devices; a GPU is played by a fake, because no test machine need have one."""

import hashlib
import os
import threading
from types import SimpleNamespace

import pytest
import torch

from trainer.metering.energy import Gpu
from trainer.workers.devices import device_name, gpu_of, load
from trainer.workers.distributed import World


def world_on(device: str) -> World:
    return World(0, 0, 1, 0, 1, torch.device(device), "none", "")


def test_a_cpu_has_no_gpus_figures() -> None:
    found = load(world_on("cpu"))
    assert found.rss_gib > 0.01
    assert (found.gpu_gib, found.gpu_utilisation) == (None, None)
    assert gpu_of(world_on("cpu")) is None
    assert device_name(world_on("cpu")).startswith("cpu, ")


def test_a_nodes_cores_and_memory_are_counted_once() -> None:
    first, second = (load(World(rank, rank, 2, 0, 1, torch.device("cpu"), "gloo", "")) for rank in (0, 1))
    assert first.cores >= 1
    assert first.host_memory_gib > 0.1
    assert (second.cores, second.host_memory_gib) == (0, 0)
    assert 0 < first.cpu_sec <= second.cpu_sec


def test_the_wait_for_a_core_grows_where_threads_outnumber_the_cores() -> None:
    """One core for all, as long as that takes: the kernel then counts a wait of each for the others."""
    allowed = os.sched_getaffinity(0)
    before = load(world_on("cpu"))
    if before.cpu_wait_sec is None:
        pytest.skip("this kernel does not count")
    os.sched_setaffinity(0, {min(allowed)})
    try:
        digests = [threading.Thread(target=hashlib.pbkdf2_hmac, args=("sha256", b"", b"", 500_000)) for _ in range(4)]
        for thread in digests:
            thread.start()
        found = before
        while all(thread.is_alive() for thread in digests):
            found = load(world_on("cpu"))
    finally:
        os.sched_setaffinity(0, allowed)
    for thread in digests:
        thread.join()
    assert found.cpu_wait_sec is not None
    waited_sec, busy_sec = found.cpu_wait_sec - before.cpu_wait_sec, found.cpu_sec - before.cpu_sec
    assert waited_sec > 1.5 * busy_sec, "five threads, of which one at a time is on the core"


def test_a_gpu_is_named_and_its_use_is_a_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 3 << 30)
    monkeypatch.setattr(torch.cuda, "utilization", lambda device: 97)
    properties = SimpleNamespace(name="NVIDIA H100", uuid="0123")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    world = world_on("cuda:0")
    assert load(world)[1:3] == (3.0, 0.97)
    assert gpu_of(world) == Gpu("NVIDIA H100", "GPU-0123", 0)
    assert device_name(world) == "NVIDIA H100"


def test_a_gpu_that_cannot_tell_its_use_leaves_it_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(device: torch.device) -> int:
        raise RuntimeError("Not Supported")

    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 0)
    monkeypatch.setattr(torch.cuda, "utilization", unsupported)
    assert load(world_on("cuda:0")).gpu_utilisation is None
