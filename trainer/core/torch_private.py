"""Every private name of torch and torch_xla that the trainer uses; a test fails for versions other than `CHECKED`."""

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler

CHECKED = MappingProxyType({"torch": "2.15", "torch_xla": "2.9"})
"""Major and minor version, by package."""

Compiled = Callable[..., Any]
OnOperation = Callable[[Any, tuple[Any, ...], dict[str, Any], Any], None]


def compiled_call(module: "nn.Module") -> Compiled | None:
    """The compiled call of a module; None for one that is not compiled."""
    return module._compiled_call_impl


def set_compiled_call(module: "nn.Module", call: Compiled | None) -> None:
    """Replace the compiled call of a module; None runs it uncompiled."""
    module._compiled_call_impl = call


def compiler_failures() -> tuple[type[Exception], ...]:
    """Exceptions of a failed compilation, at the first shape or a later one."""
    from torch._dynamo.exc import FailOnRecompileLimitHit, TorchDynamoException

    return TorchDynamoException, FailOnRecompileLimitHit


def compile_gradients_inside(variants: int) -> None:
    """Configure the compiler for a graph that contains a gradient, and up to `variants` of it."""
    import torch._dynamo
    import torch._functorch.config

    # Data parallelism would split the graph at gradient buckets, which is impossible here: a trial without it would
    # not notice, and the first new shape of a larger network would end the run.
    torch._dynamo.config.optimize_ddp = False
    # A backward that does not compile then fails in the forward, where the pass can still run uncompiled.
    torch._functorch.config.force_non_lazy_backward_lowering = True
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, variants)


def all_reduce_in_graphs() -> Any:
    """The operation that graphs have for torch.distributed.all_reduce."""
    import torch

    return torch.ops._c10d_functional.all_reduce.default


def order_graphs(order: "Callable[[torch.fx.Graph], None]", version: bytes) -> None:
    """Have `order` order the compiler's graphs in place, whatever the memory; `version` is part of its cache key."""
    import torch._inductor.config
    from torch._inductor.custom_graph_pass import CustomGraphPass

    class Ordered(CustomGraphPass):
        def __call__(self, graph: "torch.fx.Graph") -> None:
            order(graph)

        def uuid(self) -> bytes:
            return version

    torch._inductor.config.post_grad_custom_post_pass = Ordered()
    torch._inductor.config.reorder_for_peak_memory = False


@contextmanager
def each_operation(noted: OnOperation) -> Iterator[None]:
    """Call `noted` after every ATen operation (torch.ops.aten.addmm, no overload) with its arguments and result."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's has no annotations
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            noted(func._overloadpacket, args, kwargs or {}, result)
            return result

    with Watch():  # type: ignore[no-untyped-call]  # as above
        yield


def leave_rendezvous(handler: "DynamicRendezvousHandler", deadline: float) -> None:
    """Remove this node from its rendezvous by `deadline` (time.monotonic()) without closing it for the others."""
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import _RendezvousExitOp

    handler._stop_heartbeats()
    handler._op_executor.run(_RendezvousExitOp(), deadline)


def forget_store(handler: "DynamicRendezvousHandler") -> object:
    """Make the next rendezvous announce a new workers' store; the returned old one closes with its last reference."""
    before = handler._shared_tcp_store_server
    handler._bootstrap_store_info = handler._shared_tcp_store_server = None
    return before


def exchange_states(
    encode: Callable[[Mapping[str, Any]], bytes], decode: Callable[[bytes], dict[str, Any]], refused: type[Exception]
) -> None:
    """Replace torchrun's pickles of the rendezvous state by `encode` and `decode`, on any backend: the state's fields
    by name, a node as (address, process, number). torchrun raises `refused` as RendezvousStateError.
    """
    from torch.distributed.elastic.rendezvous import dynamic_rendezvous
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import _NodeDesc, _RendezvousState

    def plain(node: _NodeDesc) -> tuple[str, int, int]:
        return node.addr, node.pid, node.local_id

    def dumps(state: _RendezvousState) -> bytes:
        fields = {**vars(state)}
        for name in ("participants", "last_heartbeats"):
            fields[name] = {plain(node): value for node, value in fields[name].items()}
        for name in ("wait_list", "redundancy_list"):
            fields[name] = {plain(node) for node in fields[name]}
        return encode(fields)

    def loads(content: bytes) -> _RendezvousState:
        state, fields = _RendezvousState(), decode(content)
        for name in ("participants", "last_heartbeats"):
            fields[name] = {_NodeDesc(*node): value for node, value in fields[name].items()}
        for name in ("wait_list", "redundancy_list"):
            fields[name] = {_NodeDesc(*node) for node in fields[name]}
        vars(state).update(fields)
        return state

    codec = SimpleNamespace(dumps=dumps, loads=loads, PickleError=refused)
    dynamic_rendezvous.pickle = codec  # type: ignore[attr-defined,assignment]  # there is no hook


def serve_workers_by(serve: "Callable[[DynamicRendezvousHandler], Any]") -> None:
    """Have `serve` create a round's workers' store: anything with a `port`, or None for torch's, on all interfaces."""
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler

    own = DynamicRendezvousHandler._create_tcp_store_server

    def create_store(self: DynamicRendezvousHandler, master_addr: str, master_port: int) -> Any:
        return serve(self) or own(self, master_addr, master_port)

    DynamicRendezvousHandler._create_tcp_store_server = create_store  # type: ignore[method-assign]  # there is no hook


def served_store(handler: "DynamicRendezvousHandler") -> Any:
    """The store that this node serves to the present round's workers; None on other nodes."""
    return handler._shared_tcp_store_server


def serve_standalone_by(serve: Callable[[timedelta], Any]) -> None:
    """Have `serve` create the store of `torchrun --standalone` from a timeout; torch's listens on all interfaces."""
    from torch.distributed.elastic.rendezvous import c10d_rendezvous_backend

    own = c10d_rendezvous_backend.TCPStore  # type: ignore[attr-defined]  # torch only imports it there

    def create_store(host: str, port: int, **options: Any) -> Any:
        if (host, port, options.get("is_master")) == ("localhost", 0, True):
            return serve(options["timeout"])
        return own(host, port, **options)

    c10d_rendezvous_backend.TCPStore = create_store  # type: ignore[attr-defined,assignment]  # there is no hook


def note_ends(ends: dict[int, int | None]) -> None:
    """Store exit codes (negative: signals, None: survived SIGKILL) of workers that torchrun ends, by process."""
    from torch.distributed.elastic.multiprocessing.api import SubprocessContext

    close = SubprocessContext._close

    def noted(self: SubprocessContext, death_sig: signal.Signals, timeout: int = 30) -> None:
        close(self, death_sig, timeout)
        ends.clear()  # of the workers before a restart
        ends.update({worker.proc.pid: worker.proc.poll() for worker in self.subprocess_handlers.values()})

    SubprocessContext._close = noted  # type: ignore[method-assign]  # there is no hook


def last_collectives() -> bytes:
    """PyTorch's flight recorder (of NCCL, else of gloo) as JSON; needs $TORCH_FR_BUFFER_SIZE before the first group."""
    import torch
    from torch._C import _distributed_c10d

    nccl_trace = b""
    if torch.cuda.is_available():
        nccl_trace = _distributed_c10d._dump_nccl_trace_json()  # type: ignore[attr-defined]  # of builds with CUDA alone
    # NCCL's has no entries if the run uses gloo on a GPU machine.
    return nccl_trace if b'"entries"' in nccl_trace else _distributed_c10d._dump_fr_trace_json()


def xla_internals() -> tuple[Any, Any]:
    """torch_xla's modules that start PJRT in a torchrun process and that read a TPU host's metadata."""
    from torch_xla._internal import pjrt, tpu  # type: ignore[import-not-found]  # has an environment of its own

    return pjrt, tpu
