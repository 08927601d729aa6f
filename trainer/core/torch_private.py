"""Every private name of torch and torch_xla that the trainer touches, where no public one does the same. `CHECKED` has
the versions they were read in; a test fails where another one is installed, or a name means something else.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
