"""torchrun's c10d rendezvous, changed so that nodes can join and leave a store that outlives them.

If the store is lost, workers continue until one answers again, where all nodes meet. Nodes exchange strict JSON: with
torchrun's pickles, a writer to the store could run code on every node.
"""

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gangway.trainer.core import torch_private
from gangway.trainer.core.console import announce
from gangway.trainer.rendezvous.lifecycle import Event
from gangway.trainer.rendezvous.tunnel import (
    KEY_FLAG,
    LOOPBACK,
    MemberKey,
    NearEnd,
    WorkersStore,
    loopback_store,
    why_refused,
)

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous import RendezvousInfo, RendezvousParameters
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler

    NextRendezvous = Callable[[DynamicRendezvousHandler], RendezvousInfo]

BACKEND = "gangway"  # The name for torchrun's `--rdzv-backend`; the rest is c10d's

POLL_SEC = 5.0
_LEAVE_SEC = 5.0
_ANSWER_SEC = 5.0


class StoreAnswersAgainError(Exception):
    """Raised in torchrun's loop once a lost store answers again: its workers end and all nodes meet again."""


class ElasticRendezvous:
    """The rendezvous of this process; `trains` tells whether workers train, `key` None is for a trusted network."""

    def __init__(self, on: Callable[[Event], None], trains: Callable[[], bool], key: MemberKey | None = None) -> None:
        self._on, self._trains, self._key = on, trains, key
        self._handler: DynamicRendezvousHandler | None = None
        self._before: DynamicRendezvousHandler | None = None
        self._lost_at: float | None = None
        self._to_store: NearEnd | None = None
        self._to_workers_store: NearEnd | None = None

    def register(self) -> None:
        """Register `BACKEND` with torchrun, with a workers' store per round and without pickles; once per process."""
        from torch.distributed.elastic.rendezvous import rendezvous_handler_registry
        from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler

        rendezvous_handler_registry.register(BACKEND, self._create)
        # For every dynamic rendezvous, including that of --standalone.
        DynamicRendezvousHandler.next_rendezvous = self._with_new_store(  # type: ignore[assignment]  # torch has no hook
            DynamicRendezvousHandler.next_rendezvous
        )
        torch_private.exchange_states(encode_state, decode_state, MeetingStateError)
        torch_private.serve_workers_by(self._serve_workers)
        torch_private.serve_standalone_by(loopback_store)

    def _with_new_store(self, original: "NextRendezvous") -> "NextRendezvous":
        """A new workers' store in every round: torch 2.15 opens one only for a node that is first for the first time.

        Nodes that join later would wait without effect, and restarted workers would find stale addresses.
        """

        def next_rendezvous(handler: "DynamicRendezvousHandler") -> "RendezvousInfo":
            if self._trains():  # a node has come, or left
                self._on(Event.MEETING)
            before = torch_private.forget_store(handler)
            info = original(handler)
            del before  # not earlier: other nodes' workers may have been writing their last checkpoint
            return self._on_joined(handler, info)

        return next_rendezvous

    def _on_joined(self, handler: "DynamicRendezvousHandler", info: "RendezvousInfo") -> "RendezvousInfo":
        self._before = None  # other nodes' workers no longer use the store that it served
        self._on(Event.JOINED)
        self._close_round()
        served = torch_private.served_store(handler)
        if isinstance(served, WorkersStore):
            return _with_port(info, served.inner_port)
        if self._key is None or info.bootstrap_store_info is None:
            return info
        remote = info.bootstrap_store_info
        self._to_workers_store = NearEnd(self._key, remote.master_addr, remote.master_port)
        return _with_port(info, self._to_workers_store.port)

    def _serve_workers(self, handler: "DynamicRendezvousHandler") -> WorkersStore | None:
        if self._key is None and handler.settings.max_nodes > 1:
            return None
        return WorkersStore(None if handler.settings.max_nodes == 1 else self._key)

    def _close_round(self) -> None:
        if self._to_workers_store is not None:
            self._to_workers_store.close()
        self._to_workers_store = None

    def close(self) -> None:
        """Close this node's ends of the tunnels."""
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
            # torch would conclude from the loopback address that this node serves the store.
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
        handler.num_nodes_waiting = lambda: self._count_waiting(waiting, params.endpoint)  # type: ignore[method-assign]
        self._handler, self._lost_at = handler, None
        return handler

    def _count_waiting(self, count_waiting: Callable[[], int], endpoint: str) -> int:
        from torch.distributed.elastic.rendezvous.api import RendezvousConnectionError, RendezvousStateError

        now = time.monotonic()
        if self._lost_at is None:
            try:
                return count_waiting()
            except (RendezvousConnectionError, RendezvousStateError):
                self._on(Event.STORE_LOST)
                self._lost_at = now - POLL_SEC
        if now - self._lost_at >= POLL_SEC:
            self._lost_at = now
            if not why_no_answer(endpoint, self._key):
                raise StoreAnswersAgainError
        return 0

    def leave(self) -> bool:
        """Remove this node; False if that failed and the others have to miss its heartbeats."""
        if self._handler is None:
            return False
        handler, self._handler = self._handler, None
        self._before = handler
        try:
            torch_private.leave_rendezvous(handler, time.monotonic() + _LEAVE_SEC)
        except Exception as error:  # the store may be gone
            announce(f"left without notifying the others: {error}")
            return False
        return True


def _with_port(info: "RendezvousInfo", port: int) -> "RendezvousInfo":
    from torch.distributed.elastic.rendezvous import RendezvousInfo, RendezvousStoreInfo

    return RendezvousInfo(info.store, info.rank, info.world_size, RendezvousStoreInfo(LOOPBACK, port))


def get_address(endpoint: str) -> tuple[str, int]:
    """Split `host:port`.

    >>> get_address("[::1]:29400")
    ('::1', 29400)
    """
    host, _, port = endpoint.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def why_no_answer(endpoint: str, key: MemberKey | None = None) -> str:
    """Why nothing accepts a connection at `host:port`, with the job's key if given; empty if something does."""
    address = get_address(endpoint)
    if key is not None:
        return why_refused(key, *address)
    try:
        socket.create_connection(address, timeout=_ANSWER_SEC).close()
    except OSError as error:
        return str(error)
    return ""


def wait_for_store(endpoint: str, key: MemberKey | None = None, poll_sec: float = POLL_SEC) -> None:
    """Wait until the rendezvous store answers, since the head node may boot later; report at doubling intervals."""
    began, reported_sec = time.monotonic(), 0.0
    while reason := why_no_answer(endpoint, key):
        waited = time.monotonic() - began
        if waited >= 2 * reported_sec:
            reported_sec = max(waited, poll_sec)
            announce(f"waiting for the rendezvous store at {endpoint}, {waited:.0f} s so far: {reason}")
        time.sleep(poll_sec)


MAX_BYTES = 1 << 20  # Enough for thousands of nodes
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_YEAR_9999_US = (datetime(9999, 1, 1, tzinfo=UTC) - _EPOCH) // _MICROSECOND

_Count = Annotated[int, Field(ge=0, lt=1 << 53)]
_TimeUs = Annotated[int, Field(ge=0, lt=_YEAR_9999_US)]
_Rank = Annotated[int, Field(ge=0, lt=1 << 16)]
_Node = tuple[Annotated[str, Field(min_length=1, max_length=1024)], _Count, _Count]  # Address, process and number in it


class MeetingStateError(ValueError):
    """The content is not a rendezvous state."""


class _Meeting(BaseModel):
    """torchrun's _RendezvousState, times in microseconds since 1970."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    round: _Count
    complete: bool
    deadline: _TimeUs | None
    closed: bool
    participants: tuple[tuple[_Node, _Rank], ...]
    wait_list: tuple[_Node, ...]
    redundancy_list: tuple[_Node, ...]
    last_heartbeats: tuple[tuple[_Node, _TimeUs], ...]

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        """Every node occurs once and has a heartbeat: torchrun relies on both when it removes one."""
        nodes = [*(node for node, _ in self.participants), *self.wait_list, *self.redundancy_list]
        beating = [node for node, _ in self.last_heartbeats]
        if len({*nodes}) < len(nodes) or len({*beating}) < len(beating):
            raise ValueError("duplicate node")
        if not {*nodes} <= {*beating}:
            raise ValueError("a node has no heartbeat")
        return self


def encode_state(state: Mapping[str, Any]) -> bytes:
    """Encode torchrun's state, nodes as tuples; equal states give equal bytes, since torchrun compares them."""
    deadline = state["deadline"]
    return (
        _Meeting(
            round=state["round"],
            complete=state["complete"],
            deadline=None if deadline is None else _to_us(deadline),
            closed=state["closed"],
            participants=tuple(sorted(state["participants"].items())),
            wait_list=tuple(sorted(state["wait_list"])),
            redundancy_list=tuple(sorted(state["redundancy_list"])),
            last_heartbeats=tuple(sorted((node, _to_us(at)) for node, at in state["last_heartbeats"].items())),
        )
        .model_dump_json()
        .encode()
    )


def decode_state(content: bytes) -> dict[str, Any]:
    """Decode what `encode` wrote (MeetingStateError: other content)."""
    if len(content) > MAX_BYTES:
        raise MeetingStateError(f"{len(content)} bytes; up to {MAX_BYTES} are read")
    try:
        read = _Meeting.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        raise MeetingStateError(f"no state of a meeting: {first['msg']}") from None
    return {
        "round": read.round,
        "complete": read.complete,
        "deadline": None if read.deadline is None else _to_datetime(read.deadline),
        "closed": read.closed,
        "participants": dict(read.participants),
        "wait_list": set(read.wait_list),
        "redundancy_list": set(read.redundancy_list),
        "last_heartbeats": {node: _to_datetime(us) for node, us in read.last_heartbeats},
    }


def _to_us(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND


def _to_datetime(us: int) -> datetime:
    return _EPOCH + us * _MICROSECOND


KEY_VARIABLE = "GANGWAY_MEMBER_KEY"
"""Path of the job's key for a run that is started by hand, without the launcher's flags."""
_PORT = 29400  # Port of the rendezvous: the default of torchrun and gangway.trainer.launch.rendezvous


def meeting_argv(
    chips: int, hosts: Sequence[str], num_slices: int = 1, coordinator: str = "", key: str | None = None
) -> list[str]:
    """Returns launcher arguments for a process per chip of this host; empty for a single device.

    With a `key` file the first host must already serve the store; without one torchrun serves it there, to anyone.
    """
    if len(hosts) * num_slices == 1:
        return ["--standalone", f"--nproc-per-node={chips}"] if chips > 1 else []
    # The coordinator's address may carry the port of Megascale's own.
    first = coordinator.partition(":")[0] or hosts[0]
    return [
        *([KEY_FLAG, key] if key else []),
        f"--nnodes={len(hosts) * num_slices}",
        f"--rdzv-backend={BACKEND if key else 'c10d'}",
        f"--rdzv-endpoint={first}:{_PORT}",
        "--rdzv-id=gangway",
        f"--nproc-per-node={chips}",
    ]
