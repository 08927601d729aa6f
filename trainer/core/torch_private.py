"""Every private name of torch and torch_xla that the trainer touches, where no public one does the same. `CHECKED` has
the versions they were read in; a test fails where another one is installed, or a name means something else.
"""

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
    """What `module.compile` has put in the place of its call; None for a module that is not compiled."""
    return module._compiled_call_impl


def set_compiled_call(module: "nn.Module", call: Compiled | None) -> None:
    """Calls `call` in the module's place; None has it run uncompiled."""
    module._compiled_call_impl = call


def compiler_failures() -> tuple[type[Exception], ...]:
    """What a call raises whose compilation fails, at the first shape or a later one."""
    from torch._dynamo.exc import FailOnRecompileLimitHit, TorchDynamoException

    return TorchDynamoException, FailOnRecompileLimitHit


def compile_gradients_inside(variants: int) -> None:
    """What one graph with a gradient in it needs of the compiler, and room for so many variants of it."""
    import torch._dynamo
    import torch._functorch.config

    # Under data parallelism a graph would be split at the borders of gradient buckets, which this one cannot be: a
    # trial outside of it would not notice, and the first new shape of a larger network would end the run.
    torch._dynamo.config.optimize_ddp = False
    # A backward that does not compile fails in the forward, where the pass can still be made without.
    torch._functorch.config.force_non_lazy_backward_lowering = True
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, variants)


def all_reduce_in_graphs() -> Any:
    """What graphs have in the place of torch.distributed.all_reduce."""
    import torch

    return torch.ops._c10d_functional.all_reduce.default


def order_graphs(order: "Callable[[torch.fx.Graph], None]", version: bytes) -> None:
    """Has the compiler's graphs ordered by `order`, in place, before it makes code of them, which then keeps that order
    instead of one that frees memory sooner; `version` tells its cache one way of ordering from another.
    """
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
    """Has `noted` called after every ATen operation: the operation without its overload (torch.ops.aten.addmm),
    positional and keyword arguments, result.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's has no annotations
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            noted(func._overloadpacket, args, kwargs or {}, result)
            return result

    with Watch():  # type: ignore[no-untyped-call]  # as above
        yield


def leave_rendezvous(handler: "DynamicRendezvousHandler", deadline: float) -> None:
    """Takes this node out of its rendezvous by `deadline` of time.monotonic(), without closing it for the others."""
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import _RendezvousExitOp

    handler._stop_heartbeats()
    handler._op_executor.run(_RendezvousExitOp(), deadline)


def forget_store(handler: "DynamicRendezvousHandler") -> object:
    """Has the next rendezvous open and announce a new store for the workers; the one before, which closes with the last
    reference to it.
    """
    before = handler._shared_tcp_store_server
    handler._bootstrap_store_info = handler._shared_tcp_store_server = None
    return before


def exchange_states(
    encode: Callable[[Mapping[str, Any]], bytes], decode: Callable[[bytes], dict[str, Any]], refused: type[Exception]
) -> None:
    """Has torchrun's nodes exchange the state of their rendezvous by these two instead of as pickles, on any backend.

    Both take and give the state's fields by their names, a node as its address, process and number. What `decode`
    raises, `refused`, torchrun raises as RendezvousStateError.
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
    """Has a round's store of the workers' own made by `serve`, as anything with the `port` that others are told; None
    for torchrun's way, on all interfaces.
    """
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler

    own = DynamicRendezvousHandler._create_tcp_store_server

    def created(self: DynamicRendezvousHandler, master_addr: str, master_port: int) -> Any:
        return serve(self) or own(self, master_addr, master_port)

    DynamicRendezvousHandler._create_tcp_store_server = created  # type: ignore[method-assign]  # there is no hook


def served_store(handler: "DynamicRendezvousHandler") -> Any:
    """What serves the present round's workers from here; None on the nodes that do not."""
    return handler._shared_tcp_store_server


def serve_standalone_by(serve: Callable[[timedelta], Any]) -> None:
    """Has the store of `torchrun --standalone`, which torch opens on all interfaces, made by `serve` with a timeout."""
    from torch.distributed.elastic.rendezvous import c10d_rendezvous_backend

    own = c10d_rendezvous_backend.TCPStore  # type: ignore[attr-defined]  # torch only imports it there

    def created(host: str, port: int, **options: Any) -> Any:
        if (host, port, options.get("is_master")) == ("localhost", 0, True):
            return serve(options["timeout"])
        return own(host, port, **options)

    c10d_rendezvous_backend.TCPStore = created  # type: ignore[attr-defined,assignment]  # there is no hook


def note_ends(ends: dict[int, int | None]) -> None:
    """Has torchrun note how its present workers ended, by process, where it ends them: it tells nobody. Exit codes;
    negative, the signal that ended it; None for one that not even SIGKILL has ended.
    """
    from torch.distributed.elastic.multiprocessing.api import SubprocessContext

    close = SubprocessContext._close

    def noted(self: SubprocessContext, death_sig: signal.Signals, timeout: int = 30) -> None:
        close(self, death_sig, timeout)
        ends.clear()  # of the workers before a restart
        ends.update({worker.proc.pid: worker.proc.poll() for worker in self.subprocess_handlers.values()})

    SubprocessContext._close = noted  # type: ignore[method-assign]  # there is no hook


def last_collectives() -> bytes:
    """PyTorch's flight recorder as JSON: the last collectives of every process group, of NCCL where it is used, else of
    gloo. It records where $TORCH_FR_BUFFER_SIZE is set before the first group.
    """
    import torch
    from torch._C import _distributed_c10d

    of_nccl = b""
    if torch.cuda.is_available():
        of_nccl = _distributed_c10d._dump_nccl_trace_json()  # type: ignore[attr-defined]  # of builds with CUDA alone
    # Without a collective of its own NCCL's has no entries, and a run over gloo on a GPU machine is one of gloo's.
    return of_nccl if b'"entries"' in of_nccl else _distributed_c10d._dump_fr_trace_json()


def xla_internals() -> tuple[Any, Any]:
    """torch_xla's modules that start PJRT in a process of torchrun's, and that ask a TPU host for its metadata."""
    from torch_xla._internal import pjrt, tpu  # type: ignore[import-not-found]  # has an environment of its own

    return pjrt, tpu
