"""How a node joins and leaves a rendezvous whose store outlives it: torchrun's c10d rendezvous, with some changes.

torchrun closes a rendezvous for good when an agent ends, which with a store on the head node would bar every later
start of the same job. Here an ending node only leaves, at once, without waiting for missed heartbeats; a node may join
a group that is up, workers may be started anew, and a node up before the store (`trainer.launch.rendezvous`) waits for
it.
"""

import socket
import time
from typing import TYPE_CHECKING

from trainer.core.console import announce
from trainer.core.errors import TrainerError
from trainer.core.torch_private import forget_store, leave_rendezvous

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.distributed.elastic.rendezvous import RendezvousInfo, RendezvousParameters
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler

    NextRendezvous = Callable[[DynamicRendezvousHandler], RendezvousInfo]

BACKEND = "gangway"
"""The name for torchrun's `--rdzv-backend`; everything else of c10d stays as it is."""

STORE_WAIT_SEC = 900.0
_LEAVE_SEC = 5.0


class ElasticRendezvous:
    """The rendezvous of this process, so that it can be left."""

    def __init__(self) -> None:
        self._handler: DynamicRendezvousHandler | None = None

    def register(self) -> None:
        """Makes torchrun know `BACKEND`, and open a store of the workers' own in every round; once for each process."""
        from torch.distributed.elastic.rendezvous import rendezvous_handler_registry
        from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler

        rendezvous_handler_registry.register(BACKEND, self._create)
        # Of every dynamic rendezvous, --standalone's too.
        DynamicRendezvousHandler.next_rendezvous = _anew(  # type: ignore[assignment]  # torch has no hook for it
            DynamicRendezvousHandler.next_rendezvous
        )

    def _create(self, params: "RendezvousParameters") -> "DynamicRendezvousHandler":
        from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend
        from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler

        backend, store = create_backend(params)
        handler = create_handler(store, backend, params)
        handler.get_backend = lambda: BACKEND  # type: ignore[method-assign]  # torchrun compares it with its argument
        handler.shutdown = self.leave  # type: ignore[method-assign]  # torchrun calls it when an agent ends
        self._handler = handler
        return handler

    def leave(self) -> bool:
        """Takes this node out; False where that was not possible: its heartbeats will be missed."""
        if self._handler is None:
            return False
        handler, self._handler = self._handler, None
        try:
            leave_rendezvous(handler, time.monotonic() + _LEAVE_SEC)
        except Exception as error:  # the store may be gone, and nothing is left to be done about it
            announce(f"left without a word to the others: {error}")
            return False
        return True


def _anew(honest: "NextRendezvous") -> "NextRendezvous":
    """`next_rendezvous` with a new store for the workers, announced to all nodes, in every round.

    torch 2.15 opens and announces one only when a node is first of its group for the first time. So a node that joins
    later waits in vain, and the first one with it (seen: 60 s, both end with 1); and workers started anew find
    addresses of those before them (seen: "Connection refused", and the job ends).
    """

    def next_rendezvous(handler: "DynamicRendezvousHandler") -> "RendezvousInfo":
        before = forget_store(handler)
        info = honest(handler)
        del before  # not earlier: other nodes' workers may have been at their last checkpoint until now
        return info

    return next_rendezvous


def wait_for_store(endpoint: str, wait_sec: float = STORE_WAIT_SEC, poll_sec: float = 5.0) -> None:
    """Returns when something listens at `host:port`; a head node may boot later than the workers. TrainerError: nothing
    does within `wait_sec`.
    """
    host, _, port = endpoint.rpartition(":")
    began = time.monotonic()
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=poll_sec).close()
            return
        except OSError as error:
            reason = str(error)
        if time.monotonic() - began > wait_sec:
            raise TrainerError(
                place="--rdzv-endpoint",
                problem=f"no rendezvous store answers: {reason}",
                value=endpoint,
                allowed="the head node's name and port",
                fix=f"start it there: python -m trainer.launch.rendezvous --port {port}",
            )
        announce(f"waiting for the rendezvous store at {endpoint}: {reason}")
        time.sleep(poll_sec)
