"""How a node joins and leaves a rendezvous whose store outlives it: torchrun's c10d rendezvous, with some changes.

torchrun closes a rendezvous for good when an agent ends, which with a store on the head node would bar every later
start of the same job. Here an ending node only leaves, at once, without waiting for missed heartbeats; a node may join
a group that is up, workers may be started anew, and a node up before the store (`trainer.launch.rendezvous`) waits for
it. Where the store is lost, workers that train go on; once one answers again, all nodes meet there.
"""

import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from trainer.core.console import announce
from trainer.core.torch_private import forget_store, leave_rendezvous
from trainer.launch.lifecycle import Event

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous import RendezvousInfo, RendezvousParameters
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler

    NextRendezvous = Callable[[DynamicRendezvousHandler], RendezvousInfo]

BACKEND = "gangway"
"""The name for torchrun's `--rdzv-backend`; everything else of c10d stays as it is."""

POLL_SEC = 5.0
_LEAVE_SEC = 5.0
_ANSWER_SEC = 5.0


class StoreAnswersAgainError(Exception):
    """Raised in torchrun's loop once a lost store answers again: its workers are told to leave, and all meet anew."""


class ElasticRendezvous:
    """The rendezvous of this process, so that it can be left. `on` hears of every round and of the store's absence;
    `trains`: whether workers did until now.
    """

    def __init__(self, on: Callable[[Event], None], trains: Callable[[], bool]) -> None:
        self._on, self._trains = on, trains
        self._handler: DynamicRendezvousHandler | None = None
        self._before: DynamicRendezvousHandler | None = None
        self._lost_at: float | None = None

    def register(self) -> None:
        """Makes torchrun know `BACKEND`, and open a store of the workers' own in every round; once for each process."""
        from torch.distributed.elastic.rendezvous import rendezvous_handler_registry
        from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler

        rendezvous_handler_registry.register(BACKEND, self._create)
        # Of every dynamic rendezvous, --standalone's too.
        DynamicRendezvousHandler.next_rendezvous = _anew(  # type: ignore[assignment]  # torch has no hook for it
            DynamicRendezvousHandler.next_rendezvous, self._meeting, self._joined
        )

    def _meeting(self) -> None:
        if self._trains():  # a node has come, or left
            self._on(Event.MEETING)

    def _joined(self) -> None:
        self._before = None  # by now other nodes' workers have left the store that its process has served
        self._on(Event.JOINED)

    def _create(self, params: "RendezvousParameters") -> "DynamicRendezvousHandler":
        from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend
        from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler

        backend, store = create_backend(params)
        handler = create_handler(store, backend, params)
        handler.get_backend = lambda: BACKEND  # type: ignore[method-assign]  # torchrun compares it with its argument
        handler.shutdown = self.leave  # type: ignore[method-assign]  # torchrun calls it when an agent ends
        waiting = handler.num_nodes_waiting
        handler.num_nodes_waiting = lambda: self._waiting(waiting, params.endpoint)  # type: ignore[method-assign]
        self._handler, self._lost_at = handler, None
        return handler

    def _waiting(self, ask: Callable[[], int], endpoint: str) -> int:
        """How many nodes wait to be taken in: torchrun asks some times a second while its workers train. None as long
        as the store is gone. StoreAnswersAgainError: it is there again, and empty where it has been started anew.
        """
        from torch.distributed.elastic.rendezvous.api import RendezvousConnectionError, RendezvousStateError

        now = time.monotonic()
        if self._lost_at is None:
            try:
                return ask()
            except (RendezvousConnectionError, RendezvousStateError):
                self._on(Event.STORE_LOST)
                self._lost_at = now - POLL_SEC
        if now - self._lost_at >= POLL_SEC:
            self._lost_at = now
            if not why_no_answer(endpoint):
                raise StoreAnswersAgainError
        return 0

    def leave(self) -> bool:
        """Takes this node out; False where that was not possible: its heartbeats will be missed."""
        if self._handler is None:
            return False
        handler, self._handler = self._handler, None
        self._before = handler
        try:
            leave_rendezvous(handler, time.monotonic() + _LEAVE_SEC)
        except Exception as error:  # the store may be gone, and nothing is left to be done about it
            announce(f"left without a word to the others: {error}")
            return False
        return True


def _anew(honest: "NextRendezvous", meeting: Callable[[], None], joined: Callable[[], None]) -> "NextRendezvous":
    """`next_rendezvous` with a new store for the workers, announced to all nodes, in every round; `meeting` and
    `joined` are told before and after.

    torch 2.15 opens and announces one only when a node is first of its group for the first time. So a node that joins
    later waits in vain, and the first one with it (seen: 60 s, both end with 1); and workers started anew find
    addresses of those before them (seen: "Connection refused", and the job ends).
    """

    def next_rendezvous(handler: "DynamicRendezvousHandler") -> "RendezvousInfo":
        meeting()
        before = forget_store(handler)
        info = honest(handler)
        del before  # not earlier: other nodes' workers may have been at their last checkpoint until now
        joined()
        return info

    return next_rendezvous


def why_no_answer(endpoint: str) -> str:
    """Why nothing takes a connection at `host:port`; empty where something does."""
    host, _, port = endpoint.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_ANSWER_SEC).close()
    except OSError as error:
        return str(error)
    return ""


def wait_for_store(endpoint: str, poll_sec: float = POLL_SEC) -> None:
    """Returns when something listens at `host:port`: a head node may boot later than the workers, and again. Waits for
    as long as nobody ends the job; says so at first, and then ever more seldom.
    """
    began, said = time.monotonic(), 0.0
    while reason := why_no_answer(endpoint):
        waited = time.monotonic() - began
        if waited >= 2 * said:
            said = max(waited, poll_sec)
            announce(f"waiting for the rendezvous store at {endpoint}, {waited:.0f} s so far: {reason}")
        time.sleep(poll_sec)
