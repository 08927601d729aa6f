"""What workers agree on, with two real gloo processes; and a lone process, which agrees with itself."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gangway.trainer.core.errors import TrainerError
from gangway.trainer.distributed.world import World, start_world

TWO_WORKERS = """
import atexit, sys, time
from pathlib import Path
import torch
from gangway.trainer.distributed import messages
from gangway.trainer.distributed.world import start_world
from gangway.trainer.core.errors import TrainerError, WorkerFailedError

def fails_on(rank, world):
    if world.rank == rank:
        raise TrainerError(place=f"rank {rank}", problem="has a problem", value=7)
    return world.rank

with start_world("auto") as world:
    assert (world.world_size, world.num_nodes, world.backend, world.backend_reason) == (2, 1, "gloo", "no CUDA here")
    assert world.slice(8) == slice(world.rank * 4, world.rank * 4 + 4)
    assert world.agree(world.rank == 1) and not world.agree(False)
    assert world.highest(3 + world.rank) == 4
    begun = Path(sys.argv[1])
    while world.rank == 1 and not begun.exists():
        time.sleep(0.01)  # the first worker has gone on by then
    outcome = world.highest_later(3 - world.rank)
    begun.touch()
    assert outcome() == 3
    assert world.total(torch.tensor(3 + world.rank)) == 7
    assert world.gather({"rank": world.rank}) == [{"rank": 0}, {"rank": 1}]
    words = "x" * (100_000 * world.rank)
    assert world.gather(words) == ["", "x" * 100_000], "of any lengths"
    assert world.gather((world.rank, None), tuple[int, str | None]) == [(0, None), (1, None)]
    most, messages.MAX_BYTES = messages.MAX_BYTES, 1000
    try:
        world.gather(words)
    except ValueError as error:
        assert "100002" in str(error)  # on both: who has little to tell knows too
    else:
        raise AssertionError("no error on this rank")
    messages.MAX_BYTES = most
    assert world.run_on_all(lambda: fails_on(None, world)) == world.rank
    for action in (
        lambda: world.run_on_all(lambda: fails_on(1, world)),
        lambda: world.run_on_rank0(lambda: fails_on(0, world)),
    ):
        try:
            action()
        except TrainerError as error:
            assert error.value == 7 and "has a problem" in str(error)
        else:
            raise AssertionError("no error on this rank")

    for broken in (0, 1):  # a bug is raised as it is where it happened, and ends the other worker too
        try:
            world.run_on_all(lambda: [][world.rank] if world.rank == broken else None)
        except (IndexError, WorkerFailedError) as error:
            assert isinstance(error, IndexError) == (world.rank == broken)
            assert isinstance(error, IndexError) or f"worker {broken} failed" in str(error)
            assert isinstance(error, IndexError) or "IndexError: list index out of range" in str(error)
        else:
            raise AssertionError("no error on this rank")

    torch.manual_seed(0)
    network = torch.nn.Linear(3, 2)
    wrapped = world.wrap(network)
    wrapped(torch.full((4, 3), float(world.rank))).sum().backward()
    world.settle(wrapped)
    torch.testing.assert_close(network.weight.grad, torch.full((2, 3), 2.0))  # the mean of 0 and 4
    print("worker is content")
    atexit.register(lambda: print(f"its group is left: {world.control_ref() is None}"))
    raise TrainerError(place="the end", problem="every worker leaves the group")
"""


def _world(rank: int, world_size: int) -> World:
    return World(rank, rank, world_size, 0, 1, torch.device("cpu"), "none", "a test's")


@given(world_size=st.integers(1, 100), more=st.integers(0, 1000))
def test_shares_cover_the_batch_in_order_and_none_is_empty(world_size: int, more: int) -> None:
    batch_size = world_size + more
    shares = [range(batch_size)[_world(rank, world_size).slice(batch_size)] for rank in range(world_size)]
    assert [image for share in shares for image in share] == list(range(batch_size))
    sizes = [len(share) for share in shares]
    assert min(sizes) >= 1
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True), "the first ranks have the larger"


@given(world_size=st.integers(1, 20), more=st.integers(0, 50), group=st.integers(2, 8))
def test_shares_are_of_whole_groups(world_size: int, more: int, group: int) -> None:
    batch_size = group * (world_size + more)
    shares = [range(batch_size)[_world(rank, world_size).slice(batch_size, group)] for rank in range(world_size)]
    assert [image for share in shares for image in share] == list(range(batch_size))
    sizes = [len(share) for share in shares]
    assert all(size % group == 0 for size in sizes)
    assert min(sizes) >= group
    assert max(sizes) - min(sizes) <= group


@given(world_size=st.integers(1, 100), more=st.integers(0, 1000))
def test_weighted_means_average_to_the_mean_of_the_batch(world_size: int, more: int) -> None:
    batch_size = world_size + more
    values = [float(image * image) for image in range(batch_size)]
    worlds = [_world(rank, world_size) for rank in range(world_size)]
    weights = [world.weight(batch_size) for world in worlds]
    shares = [values[world.slice(batch_size)] for world in worlds]
    means = [weight * sum(share) / len(share) for weight, share in zip(weights, shares, strict=True)]
    assert sum(means) / world_size == pytest.approx(sum(values) / batch_size)
    if batch_size % world_size == 0:
        assert weights == [1.0] * world_size, "exactly, so that equal shares give the bits they always gave"


def test_two_workers_agree_share_errors_and_average_gradients(torchrun: Callable[..., Any], tmp_path: Path) -> None:
    script = tmp_path / "two_workers.py"
    script.write_text(TWO_WORKERS)
    _, output = torchrun(str(script), str(tmp_path / "begun")).finish()
    assert output.count("worker is content") == 2, output
    assert output.count("its group is left: True") == 2, output


def test_a_lone_process_agrees_with_itself() -> None:
    with start_world("auto") as world:
        assert (world.world_size, world.backend) == (1, "none")
        assert "no CUDA here" in world.backend_reason or torch.cuda.is_available()
        assert world.agree(True)
        assert not world.agree(False)
        assert world.gather(3) == [3]
        assert world.total(torch.tensor(3)) == 3
        assert world.slice(8) == slice(0, 8)
        network = torch.nn.Linear(1, 1)
        assert world.wrap(network) is network


@pytest.mark.skipif(torch.cuda.is_available(), reason="nccl works here")
def test_nccl_without_cuda_is_a_user_error() -> None:
    with pytest.raises(TrainerError, match=r"nccl needs CUDA[\s\S]*--backend gloo"), start_world("nccl"):
        pass


@pytest.mark.skipif(importlib.util.find_spec("torch_xla") is not None, reason="xla works here")
def test_xla_without_torch_xla_is_a_user_error() -> None:
    with pytest.raises(TrainerError, match=r"xla needs torch_xla[\s\S]*images/locks/xla\.lock"):
        start_world("xla").__enter__()


def test_what_one_xla_worker_computes_alone_it_computes_on_the_cpu() -> None:
    """All XLA workers must run the same programs; every other device is each worker's own."""
    for device, on_xla, own in (("cpu", False, "cpu"), ("cuda:1", False, "cuda:1"), ("xla:0", True, "cpu")):
        world = World(0, 0, 2, 0, 1, torch.device(device), "a test's", "")
        assert (world.on_xla, world.own_device) == (on_xla, torch.device(own))
