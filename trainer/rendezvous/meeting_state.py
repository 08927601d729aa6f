"""Rendezvous state as strict JSON: with torchrun's pickles, a writer to the store could run code on every node."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

MAX_BYTES = 1 << 20
"""Enough for thousands of nodes."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_YEAR_9999_US = (datetime(9999, 1, 1, tzinfo=UTC) - _EPOCH) // _MICROSECOND

_Count = Annotated[int, Field(ge=0, lt=1 << 53)]
_TimeUs = Annotated[int, Field(ge=0, lt=_YEAR_9999_US)]
_Rank = Annotated[int, Field(ge=0, lt=1 << 16)]
_Node = tuple[Annotated[str, Field(min_length=1, max_length=1024)], _Count, _Count]
"""Address, process and number in it."""


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


def encode(state: Mapping[str, Any]) -> bytes:
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


def decode(content: bytes) -> dict[str, Any]:
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
