"""What workers agree on, with two real gloo processes; and a lone process, which agrees with itself."""

import importlib.util
import math
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gangway.trainer.core.errors import TrainerError
from gangway.trainer.data.verification import Verified
from gangway.trainer.distributed.world import World, decode, encode, start_world
from gangway.trainer.metrics.metric_registry import Value
from gangway.trainer.power.energy import EnergyReading, Gpu
from gangway.trainer.power.limits import Report
from gangway.trainer.preemption.notices import Notice
from gangway.trainer.steps.noise_scale import Looks
from gangway.trainer.telemetry.devices import Load
from gangway.trainer.telemetry.statistics_line import Stalls, _Own
from tests.hostile import Attack

TWO_WORKERS = """
import atexit, sys, time
from pathlib import Path
import torch
from gangway.trainer.distributed import world as module
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
    most, module.MAX_BYTES = module.MAX_BYTES, 1000
    try:
        world.gather(words)
    except ValueError as error:
        assert "100002" in str(error)  # on both: who has little to tell knows too
    else:
        raise AssertionError("no error on this rank")
    module.MAX_BYTES = most
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


@given(world_size=st.integers(1, 100), more=st.integers(0, 1000), group=st.integers(1, 8))
def test_shares_of_whole_groups_cover_the_batch_in_order(world_size: int, more: int, group: int) -> None:
    batch_size = group * (world_size + more)
    shares = [range(batch_size)[_world(rank, world_size).slice(batch_size, group)] for rank in range(world_size)]
    assert [image for share in shares for image in share] == list(range(batch_size))
    sizes = [len(share) for share in shares]
    assert all(size % group == 0 for size in sizes)
    assert min(sizes) >= group
    assert max(sizes) - min(sizes) <= group
    assert sizes == sorted(sizes, reverse=True), "the first ranks have the larger"


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


pytestmark = pytest.mark.attack("a network neighbour", "hostile bytes as a worker's word")

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(PLAIN)
def test_plain_data_arrives_as_it_was_sent(value: object) -> None:
    arrived = decode(encode(value))
    assert (arrived, repr(arrived)) == (value, repr(value)), "an int is no float, nor -0.0 a 0.0"


@given(st.lists(st.floats(), max_size=8))
def test_floats_are_the_same_bits(values: list[float]) -> None:
    arrived = decode(encode(values, list[float]), list[float])
    for sent, got in zip(values, arrived, strict=True):
        assert struct.pack("d", sent) == struct.pack("d", got) or (math.isnan(sent) and math.isnan(got))


READING = EnergyReading(1.5, "estimated", "model")
LOAD = Load(
    rss_gib=1.0,
    gpu_gib=None,
    gpu_utilisation=0.5,
    cpu_sec=2.0,
    cores=4,
    host_memory_gib=8.0,
    cpu_wait_sec=None,
    node=1,
    host_sec=(10.0, 40.0),
    host_memory_share=0.25,
    read_bytes=4096,
)
LOOKS = Looks(0.25, 8.5, 2, 0.5)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ((1.0, LOAD), tuple[float, Load]),
        ((0, None), tuple[int, Gpu | None]),
        ((0, Gpu("H100", "GPU-1", 3)), tuple[int, Gpu | None]),
        (Report({"GPU-1": 400.0, "GPU-2": None}, 0.5, "trouble"), Report),
        (Notice("rebalance", 1e9), Notice | None),
        (None, Notice | None),
        ((True, 1, None), tuple[bool, int, Verified | None]),
        ((True, 1, Verified(key="k", at=1.5, host="h", sec=2.0)), tuple[bool, int, Verified | None]),
        ([[Value("fid", math.inf, "lower", None)]], list[list[Value]]),
    ],
)
def test_what_workers_tell_each_other_comes_back_as_what_it_was(value: Any, kind: Any) -> None:
    arrived = decode(encode(value, kind), kind)
    assert arrived == value
    assert repr(arrived) == repr(value), "of the same types"


def test_a_loss_that_is_no_number_arrives() -> None:
    own = _Own(
        1.0, [math.nan, -math.inf], 2**63 + 1, {"cpu": READING}, LOAD, Stalls(1.0, 2.0, 3.0), {"d": 0.5}, LOOKS, None
    )
    arrived = decode(encode(own, _Own), _Own)
    assert repr(arrived) == repr(own)
    assert isinstance(arrived.stalls, Stalls)


class Pair(NamedTuple):
    name: str
    number: int


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", None),
        (b"{", None),
        (b"\xff", None),
        (b"[" * 100_000, None),
        (b"[" * 100_000, Pair),
        (b'["a"]', Pair),
        (b'["a", "1"]', Pair),
        (b'["a", true]', Pair),
        (b'["a", 1, 2]', Pair),
        (b'["a", 1.5]', Pair),
        (b'{"name": "a", "number": 1, "more": 2}', Pair),
    ],
)
def test_what_was_not_agreed_upon_is_refused(content: bytes, kind: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(content, kind)


@pytest.mark.parametrize("kind", [None, Pair, list[float]])
def test_a_pickle_runs_nothing(kind: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(pickle.dumps(Attack(tmp_path / "run")), kind)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("value", "kind"), [({1, 2}, None), (Path("x"), None), (("a", 1.5), Pair), ("a", list[float])])
def test_what_was_not_agreed_upon_is_not_sent(value: Any, kind: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        encode(value, kind)
