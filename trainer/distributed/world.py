"""This process's place among the workers, and their collectives; without torchrun it is alone, without a group."""

import contextlib
import dataclasses
import datetime
import importlib.util
import json
import math
import traceback
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast

import torch
from pydantic import TypeAdapter, ValidationError
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gangway.trainer.core.errors import COLLECTIVE_SEC, LoneError, TrainerError, WorkerFailedError
from gangway.trainer.distributed.averages import AsyncAllreduce, FlatAverage
from gangway.trainer.distributed.ranks import Ranks
from gangway.trainer.distributed.sharded_modules import accumulate, is_sharded, watching

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


MAX_BYTES = 1 << 28  # Limit for one worker's message; distances of a large data set take some millions


def encode(value: object, kind: Any = None) -> bytes:
    """Encode a value of type `kind`, None for plain JSON (TypeError or pydantic's error: another type).

    No pickles: they would run code on every worker that reads them.
    """
    plain = value if kind is None else _adapter(kind).dump_python(value, warnings="error")
    return json.dumps(plain).encode()


def decode(content: bytes, kind: Any = None) -> Any:
    """Decode what `encode` wrote; floats are bit-identical. ValueError: not of that type."""
    try:
        return json.loads(content) if kind is None else _adapter(kind).validate_json(content, strict=True)
    except RecursionError:
        raise ValueError("JSON that goes too deep") from None
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        raise ValueError(f"not what was agreed upon: {first['msg']}") from None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    """Cached: creating one takes milliseconds."""
    return TypeAdapter(kind)


T = TypeVar("T")
Shard = Literal["ddp", "fsdp2", "hsdp"]
_TIMEOUT = datetime.timedelta(seconds=COLLECTIVE_SEC)
_SHARED_FAILURE = "All workers know of this error and stop."
"""Ends a traceback and marks an exception that all workers know of."""
REPLICATE, SHARD = "dp_replicate", "dp_shard"
"""Mesh dimensions along which workers see different images, with the same weights or a part of them each."""
STAGES = "pp"  # Mesh dimension along which workers see the same images and each computes a part of a pass


@dataclass(frozen=True)
class World:
    """This worker's place."""

    # 0..world_size-1 over all nodes; decides who writes and the order of gathered values. `dp_rank` decides about
    # images
    rank: int
    local_rank: int
    world_size: int
    node_rank: int
    num_nodes: int
    device: torch.device
    backend: str  # gloo, nccl, xla, or none for a single process
    backend_reason: str
    # of `control`, weak: a group's thread that outlives the interpreter aborts the process
    control_ref: "weakref.ref[dist.ProcessGroup] | None" = None
    # all workers by REPLICATE and SHARD, one of them, or by REPLICATE and STAGES; None for a single process
    mesh: "DeviceMesh | None" = None
    thread_ref: "weakref.ref[dist.ProcessGroup] | None" = None  # of the group for `for_thread`

    @classmethod
    def alone(cls, device: torch.device) -> Self:
        """The world of a single process."""
        return cls(0, 0, 1, 0, 1, device, "none", "one process, by itself")

    @property
    def control(self) -> dist.ProcessGroup | None:
        """CPU group for flags and messages, which never waits for the GPU; None for a single process."""
        if self.control_ref is None:
            return None
        group = self.control_ref()
        assert group is not None, "a world is not used after its block"
        return group

    def for_thread(self) -> Self:
        """The same world for a background thread, whose messages do not mix with those of `control`."""
        return dataclasses.replace(self, control_ref=self.thread_ref)

    @property
    def dp_size(self) -> int:
        """Number of shares of a batch."""
        if self.mesh is None:
            return self.world_size
        return math.prod(self.mesh.size(number) for number, _ in _data_dimensions(self.mesh))

    @property
    def dp_rank(self) -> int:
        """This worker's share of a batch, 0..dp_size-1."""
        if self.mesh is None:
            return self.rank
        place = 0
        for number, name in _data_dimensions(self.mesh):
            place = place * self.mesh.size(number) + self.mesh.get_local_rank(name)
        return place

    @property
    def is_pipelined(self) -> bool:
        """Whether each worker is one stage of a pipeline."""
        return STAGES in self._dimensions

    @property
    def _dimensions(self) -> tuple[str, ...]:
        return () if self.mesh is None else self.mesh.mesh_dim_names or ()

    @property
    def stage(self) -> int:
        """This worker's stage of a pipeline; 0 without one."""
        return self.mesh.get_local_rank(STAGES) if self.mesh is not None and self.is_pipelined else 0

    @property
    def last_stage(self) -> slice:
        """The ranks that judge: those of a pipeline's last stage, or all."""
        stages = self.mesh.size(1) if self.mesh is not None and self.is_pipelined else 1
        return slice(stages - 1, None, stages)

    @property
    def replicas(self) -> dist.ProcessGroup | None:
        """The group that averages gradients with this worker: the same stage of a pipeline; None for all."""
        return self.mesh.get_group(REPLICATE) if self.mesh is not None and self.is_pipelined else None

    def norm_over_stages(self, own: float) -> float:
        """The norm over all stages of a pipeline, of this stage's `own`; all workers call it together."""
        if not self.is_pipelined:
            return own
        everyone, stages = self.gather(own), self.last_stage.step
        first = self.rank // stages * stages
        return math.hypot(*everyone[first : first + stages])

    @property
    def first_with_part(self) -> list[int]:
        """For each rank the first rank with the same part of a sharded network, or the same stage."""
        names = self._dimensions
        divides = STAGES if STAGES in names else SHARD
        if self.mesh is None or divides not in names:
            return [0] * self.world_size
        parts = self.mesh.mesh.movedim(names.index(divides), -1).reshape(-1, self.mesh.size(names.index(divides)))
        first = {rank: column[0] for column in parts.t().tolist() for rank in column}
        return [first[rank] for rank in range(self.world_size)]

    def slice(self, batch_size: int, group: int = 1) -> slice:
        """Returns this worker's part of a global batch, in whole groups of images; the first ones may be larger."""
        share, larger = divmod(batch_size // group, self.dp_size)
        start = self.dp_rank * share + min(self.dp_rank, larger)
        return slice(start * group, (start + share + (self.dp_rank < larger)) * group)

    def weight(self, batch_size: int) -> float:
        """Returns this worker's images over those of a mean share: averages of means so weighted are global ones."""
        mine = self.slice(batch_size)
        share: int = mine.stop - mine.start
        return share * self.dp_size / batch_size

    def wrap(self, module: nn.Module) -> nn.Module:
        """Returns the module with gradients averaged over all workers, ready after `settle`; on XLA `step` averages.

        `static_graph` stays off: with a penalty in every n-th step it lets workers drift apart silently.
        """
        if self.control is None or self.on_xla or is_sharded(module) or self.dp_size == 1:
            return module
        if next(module.parameters(), None) is None:  # a pipeline's stage without parameters in a phase
            return module
        if self.device.type != "cuda":
            return AsyncAllreduce(module, self.replicas)
        return DistributedDataParallel(
            module, device_ids=[self.device], process_group=self.replicas, gradient_as_bucket_view=True
        )

    @staticmethod
    def flat(wrapped: nn.Module) -> nn.Module:
        """The loss for a recorded step, averaged by `settle` in one message (FlatAverage); others are unchanged."""
        return FlatAverage(wrapped) if isinstance(wrapped, DistributedDataParallel) else wrapped

    @staticmethod
    def is_late(module: nn.Module) -> bool:
        """Whether a backward through `wrap` returns before its averages arrive."""
        return isinstance(module, AsyncAllreduce)

    @staticmethod
    def settle(module: nn.Module) -> None:
        """Wait for the averages of the last backward through `wrap`, or compute them (`flat`)."""
        if isinstance(module, AsyncAllreduce):
            module.wait()
        elif isinstance(module, FlatAverage):
            module.average()

    @staticmethod
    def settled_sec(modules: Iterable[nn.Module]) -> float | None:
        """Seconds that `settle` waited for these modules so far; None if it never waits for them."""
        waits = [module.waited_sec for module in modules if isinstance(module, AsyncAllreduce)]
        return sum(waits) if waits else None

    @contextlib.contextmanager
    def accumulating(self, module: nn.Module, *, last: bool) -> Iterator[None]:
        """Context of one micro-batch's forward and backward through `wrap`: gradients are sent with the last one."""
        accumulate(module, last=last)
        if isinstance(module, DistributedDataParallel):
            with contextlib.nullcontext() if last else module.no_sync():
                yield
        else:
            with watching(module):
                yield

    @property
    def on_xla(self) -> bool:
        """Whether operations are recorded and compiled into one program instead of run at once."""
        return self.device.type == "xla"

    @property
    def own_device(self) -> torch.device:
        """The device for work that only one worker does: XLA's workers must all run the same programs."""
        return torch.device("cpu") if self.on_xla else self.device

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Step the optimiser after a backward through `wrap`; equal on every worker."""
        if self.on_xla:
            from gangway.trainer.distributed import xla

            xla.step(optimizer)
        else:
            optimizer.step()

    def flush(self) -> None:
        """Start what was recorded so far; without effect outside XLA."""
        if self.on_xla:
            from gangway.trainer.distributed import xla

            xla.flush()

    def agree(self, flag: bool) -> bool:
        """True on every worker as soon as it is true on any."""
        return bool(self.highest(flag))

    def highest(self, value: int) -> int:
        """The highest value of any worker, on every worker: one all_reduce of four bytes."""
        return self.highest_later(value)()

    def highest_later(self, value: int) -> Callable[[], int]:
        """Start `highest`; the returned function waits for the result."""
        if self.control is None:
            return lambda: value
        votes = torch.tensor([value], dtype=torch.int32)
        work = dist.all_reduce(votes, op=dist.ReduceOp.MAX, group=self.control, async_op=True)
        assert work is not None, "asynchronous"

        def get_result() -> int:
            work.wait()
            return int(votes.item())

        return get_result

    def total(self, value: torch.Tensor) -> torch.Tensor:
        """The sum of every worker's int64 scalar, on every worker. On CUDA asynchronous; elsewhere on the CPU."""
        on_gpu = value.device.type == "cuda"
        total = value.clone() if on_gpu else value.cpu()
        if self.control is not None:
            dist.all_reduce(total, group=None if on_gpu else self.control)
        return total

    def gather(self, value: T, kind: Any = None) -> list[T]:
        """Every worker's small value by rank, on every worker: JSON or the type `kind` (ValueError on all: invalid)."""
        if self.control is None:
            return [value]
        return [decode(content, kind) for content in self._gather_bytes(encode(value, kind))]

    def _gather_bytes(self, mine: bytes) -> list[bytes]:
        lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(self.world_size)]
        dist.all_gather(lengths, torch.tensor([len(mine)]), group=self.control)
        sizes = [int(length) for length in lengths]
        if not all(0 <= size <= MAX_BYTES for size in sizes):
            raise ValueError(f"workers have {sizes} bytes to tell; up to {MAX_BYTES} are read")
        padded = torch.zeros(max(sizes), dtype=torch.uint8)
        padded[: len(mine)] = torch.frombuffer(bytearray(mine), dtype=torch.uint8)
        tables = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(tables, padded, group=self.control)
        return [bytes(table[:size].numpy()) for table, size in zip(tables, sizes, strict=True)]

    def run_on_all(self, action: Callable[[], T]) -> T:
        """Run the action on every worker; a failure on one ends it on all, so that none waits forever. TrainerError on
        every worker: the first one's. WorkerFailedError: another worker failed; that one raises its own error.
        """
        outcome, failure, own = None, None, None
        try:
            outcome = action()
        except Exception as error:
            failure, text = error, "".join(traceback.format_exception_only(error)).strip()
            own = error.fields() if isinstance(error, TrainerError) else text
        reports = self.gather(own)
        if failure is not None:
            failure.add_note(_SHARED_FAILURE)
            raise failure
        for rank, report in enumerate(reports):
            if report is not None:
                raise TrainerError(**report) if isinstance(report, dict) else WorkerFailedError(rank, report)
        return cast(T, outcome)

    def run_on_rank0(self, action: Callable[[], object]) -> None:
        """Run the action on rank 0 while the others wait; a failure ends it on all."""
        self.run_on_all(lambda: action() if self.rank == 0 else None)


def _data_dimensions(mesh: "DeviceMesh") -> list[tuple[int, str]]:
    return [(number, name) for number, name in enumerate(mesh.mesh_dim_names or ()) if name in (REPLICATE, SHARD)]


def is_shared_failure(error: BaseException) -> bool:
    """Whether all workers know of the error because it arose in a collective action."""
    return _SHARED_FAILURE in getattr(error, "__notes__", ())


def require_xla() -> None:
    """Raise TrainerError, naming the lock file to use, if PyTorch/XLA is not installed."""
    if importlib.util.find_spec("torch_xla") is None:
        raise TrainerError(
            place="TrainConfig.backend",
            problem="xla needs torch_xla, which this environment does not have",
            value="xla",
            allowed="auto, gloo or nccl here",
            fix="--backend auto, or an environment made from images/locks/xla.lock",
        )


def _place(chosen: str) -> tuple[Ranks, torch.device]:
    if chosen == "xla":
        from gangway.trainer.distributed import xla

        return xla.join()
    ranks = Ranks.from_environment()
    if chosen != "nccl":
        return ranks, torch.device("cpu")
    device = torch.device("cuda", ranks.local_rank)
    torch.cuda.set_device(device)
    return ranks, device


def get_mesh(
    world_size: int, num_nodes: int, device: torch.device, shard: Shard, pipeline_stages: int = 1
) -> "DeviceMesh":
    """The mesh of all workers; all call it together. A pipeline's stages are neighbours, if possible on one node."""
    from torch.distributed.device_mesh import init_device_mesh

    shapes = {
        "ddp": {REPLICATE: world_size},
        "fsdp2": {SHARD: world_size},
        "hsdp": {REPLICATE: num_nodes, SHARD: world_size // num_nodes},
    }
    shape = shapes[shard]
    if pipeline_stages > 1 and world_size % pipeline_stages == 0:  # otherwise all workers refuse it together later
        shape = {REPLICATE: world_size // pipeline_stages, STAGES: pipeline_stages}
    kind = "cuda" if device.type == "cuda" else "cpu"  # XLA's workers have a CPU group
    return init_device_mesh(kind, tuple(shape.values()), mesh_dim_names=tuple(shape))


@contextlib.contextmanager
def start_world(backend: str, shard: Shard = "ddp", pipeline_stages: int = 1) -> Iterator[World]:
    """Joins torchrun's process group within the block (TrainerError: the backend is not here, or does not join all)."""
    cuda = torch.cuda.is_available()
    if backend == "xla":
        require_xla()
    if backend == "nccl" and not cuda:
        raise TrainerError(
            place="TrainConfig.backend",
            problem="nccl needs CUDA, and this machine has none",
            value=backend,
            allowed="auto or gloo here",
            fix="--backend gloo, or start on a GPU machine",
        )
    chosen = backend if backend != "auto" else ("nccl" if cuda else "gloo")
    reason = "asked for" if backend != "auto" else ("CUDA is present" if cuda else "no CUDA here")
    ranks, device = _place(chosen)
    if ranks.world_size == 1:
        yield World(*ranks, device, "none", f"one process; else {chosen}: {reason}")
        return
    # XLA's collectives are part of its programs; the group is then only for `control`.
    dist.init_process_group(
        "gloo" if chosen == "xla" else chosen,
        timeout=_TIMEOUT,
        rank=ranks.rank,
        world_size=ranks.world_size,
        device_id=device if device.type == "cuda" else None,
    )
    control = dist.new_group(backend="gloo", timeout=_TIMEOUT)
    is_divided = shard != "ddp" or pipeline_stages > 1
    thread = dist.new_group(backend="gloo", timeout=_TIMEOUT) if is_divided else control
    assert isinstance(control, dist.ProcessGroup), "every rank is in the control group"
    assert isinstance(thread, dist.ProcessGroup), "likewise"
    try:
        mesh = get_mesh(ranks.world_size, ranks.num_nodes, device, shard, pipeline_stages)
        yield World(*ranks, device, chosen, reason, weakref.ref(control), mesh, weakref.ref(thread))
    except Exception as error:
        # All ranks leave together after a shared error. After any other error peers may be in a collective: leaving
        # nccl would wait for them; gloo does not wait, and aborts a process that does not leave.
        is_ours = isinstance(error, TrainerError | WorkerFailedError) and not isinstance(error, LoneError)
        is_shared = is_ours or is_shared_failure(error)
        if is_shared or chosen != "nccl":
            del control, thread
            dist.destroy_process_group()
        raise
    del control, thread
    dist.destroy_process_group()
