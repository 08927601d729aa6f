"""How a node joins and leaves a rendezvous whose store outlives it: torchrun's c10d rendezvous, with some changes.

torchrun closes a rendezvous for good when an agent ends, which with a store on the head node would bar every later
start of the same job. Here an ending node only leaves, at once, without waiting for missed heartbeats; a node may join
a group that is up, workers may be started anew, and a node up before the store (`trainer.launch.rendezvous`) waits for
it. Where the store is lost, workers that train go on; once one answers again, all nodes meet there.

What nodes tell each other is JSON (`meeting_state`). With the job's key they reach the store, and the one of each
round's workers, through tunnels alone.
"""

import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from trainer.core.console import announce
from trainer.core.torch_private import (
    exchange_states,
    forget_store,
    leave_rendezvous,
    serve_standalone_by,
    serve_workers_by,
    served_store,
)
from trainer.rendezvous import meeting_state
from trainer.rendezvous.lifecycle import Event
from trainer.rendezvous.member_key import MemberKey
from trainer.rendezvous.tunnel import LOOPBACK, NearEnd, why_refused
from trainer.rendezvous.workers_store import WorkersStore, loopback_store

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous import RendezvousInfo, RendezvousParameters
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler

    NextRendezvous = Callable[[DynamicRendezvousHandler], RendezvousInfo]
    Joined = Callable[[DynamicRendezvousHandler, RendezvousInfo], RendezvousInfo]

BACKEND = "gangway"
"""The name for torchrun's `--rdzv-backend`; everything else of c10d stays as it is."""

POLL_SEC = 5.0
_LEAVE_SEC = 5.0
_ANSWER_SEC = 5.0


class StoreAnswersAgainError(Exception):
    """Raised in torchrun's loop once a lost store answers again: its workers are told to leave, and all meet anew."""


class ElasticRendezvous:
    """The rendezvous of this process, so that it can be left. `on` hears of every round and of the store's absence;
    `trains`: whether workers did until now; `key` is the job's, None for a network that is trusted.
    """

    def __init__(self, on: Callable[[Event], None], trains: Callable[[], bool], key: MemberKey | None = None) -> None:
        self._on, self._trains, self._key = on, trains, key
        self._handler: DynamicRendezvousHandler | None = None
        self._before: DynamicRendezvousHandler | None = None
        self._lost_at: float | None = None
        self._to_store: NearEnd | None = None
        self._to_workers_store: NearEnd | None = None

    def register(self) -> None:
        """Makes torchrun know `BACKEND`, open a store of the workers' own in every round and unpickle nothing; once for
        each process.
        """
        from torch.distributed.elastic.rendezvous import rendezvous_handler_registry
        from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler

        rendezvous_handler_registry.register(BACKEND, self._create)
        # Of every dynamic rendezvous, --standalone's too.
        DynamicRendezvousHandler.next_rendezvous = _anew(  # type: ignore[assignment]  # torch has no hook for it
            DynamicRendezvousHandler.next_rendezvous, self._meeting, self._joined
        )
        exchange_states(meeting_state.encode, meeting_state.decode, meeting_state.MeetingStateError)
        serve_workers_by(self._serve_workers)
        serve_standalone_by(loopback_store)

    def _meeting(self) -> None:
        if self._trains():  # a node has come, or left
            self._on(Event.MEETING)

    def _joined(self, handler: "DynamicRendezvousHandler", info: "RendezvousInfo") -> "RendezvousInfo":
        """Returns what this node's workers are told."""
        self._before = None  # by now other nodes' workers have left the store that its process has served
        self._on(Event.JOINED)
        self._close_round()
        served = served_store(handler)
        if isinstance(served, WorkersStore):
            return _at(info, served.inner_port)
        if self._key is None or info.bootstrap_store_info is None:
            return info
        there = info.bootstrap_store_info
        self._to_workers_store = NearEnd(self._key, there.master_addr, there.master_port)
        return _at(info, self._to_workers_store.port)

    def _serve_workers(self, handler: "DynamicRendezvousHandler") -> WorkersStore | None:
        """A round's store where this node serves it; None for torch's own, on all interfaces."""
        if self._key is None and handler.settings.max_nodes > 1:
            return None
        return WorkersStore(None if handler.settings.max_nodes == 1 else self._key)

    def _close_round(self) -> None:
        if self._to_workers_store is not None:
            self._to_workers_store.close()
        self._to_workers_store = None

    def close(self) -> None:
        """Closes this node's ends of the tunnels."""
        self._close_round()
        if self._to_store is not None:
            self._to_store.close()
        self._to_store = None

    def _through_tunnel(self, params: "RendezvousParameters") -> "RendezvousParameters":
        from torch.distributed.elastic.rendezvous import RendezvousParameters

        if self._key is None:
            return params
        if self._to_store is None or not self._to_store.is_alive():
            self._to_store = NearEnd(self._key, *get_address(params.endpoint))
        return RendezvousParameters(
            params.backend,
            f"{LOOPBACK}:{self._to_store.port}",
            params.run_id,
            params.min_nodes,
            params.max_nodes,
            params.local_addr,
            # By the loopback's address torch would take this node for the one that serves.
            **{**params.config, "is_host": False},
        )

    def _create(self, params: "RendezvousParameters") -> "DynamicRendezvousHandler":
        from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend
        from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler

        backend, store = create_backend(self._through_tunnel(params))
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
            if not why_no_answer(endpoint, self._key):
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


def _anew(honest: "NextRendezvous", meeting: Callable[[], None], joined: "Joined") -> "NextRendezvous":
    """`next_rendezvous` with a new store for the workers, announced to all nodes, in every round; `meeting` and
    `joined` are told before and after; the latter gives what is returned.

    torch 2.15 opens and announces one only when a node is first of its group for the first time. So a node that joins
    later waits in vain, and the first one with it (seen: 60 s, both end with 1); and workers started anew find
    addresses of those before them (seen: "Connection refused", and the job ends).
    """

    def next_rendezvous(handler: "DynamicRendezvousHandler") -> "RendezvousInfo":
        meeting()
        before = forget_store(handler)
        info = honest(handler)
        del before  # not earlier: other nodes' workers may have been at their last checkpoint until now
        return joined(handler, info)

    return next_rendezvous


def _at(info: "RendezvousInfo", port: int) -> "RendezvousInfo":
    """The same round, the workers' store at a port of the loopback."""
    from torch.distributed.elastic.rendezvous import RendezvousInfo, RendezvousStoreInfo

    return RendezvousInfo(info.store, info.rank, info.world_size, RendezvousStoreInfo(LOOPBACK, port))


def get_address(endpoint: str) -> tuple[str, int]:
    """Host and port of `host:port`.

    >>> get_address("[::1]:29400")
    ('::1', 29400)
    """
    host, _, port = endpoint.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def why_no_answer(endpoint: str, key: MemberKey | None = None) -> str:
    """Why nothing takes a connection at `host:port`, with the job's key where there is one; empty where it does."""
    address = get_address(endpoint)
    if key is not None:
        return why_refused(key, *address)
    try:
        socket.create_connection(address, timeout=_ANSWER_SEC).close()
    except OSError as error:
        return str(error)
    return ""


def wait_for_store(endpoint: str, key: MemberKey | None = None, poll_sec: float = POLL_SEC) -> None:
    """Returns when something listens at `host:port`: a head node may boot later than the workers, and again. Waits for
    as long as nobody ends the job; says so at first, and then ever more seldom.
    """
    began, said = time.monotonic(), 0.0
    while reason := why_no_answer(endpoint, key):
        waited = time.monotonic() - began
        if waited >= 2 * said:
            said = max(waited, poll_sec)
            announce(f"waiting for the rendezvous store at {endpoint}, {waited:.0f} s so far: {reason}")
        time.sleep(poll_sec)
