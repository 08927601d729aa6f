"""The nodes of a stack, their log and a shell on them, with the caller's permissions; each provider's in `clouds`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, cast

from gangway.components.core.findings import InputError
from gangway.components.core.safe_text import OneLineTexts
from gangway.stacks.base.registry import load_adapter, providers_with_adapter
from gangway.stacks.config.stack_config import StackConfig

HEAD = "head"
"""The rung of a head node."""


@dataclass(frozen=True)
class Node(OneLineTexts):
    """A machine. `rung`: its group or HEAD; `state`: in the provider's words; `place`: its zone, if that is needed."""

    name: str
    id: str
    rung: str
    state: str
    place: str = ""


@dataclass(frozen=True)
class LogLine:
    """A line of a node's log. `key`: identifies it among lines of the same log."""

    at: datetime
    node: str
    text: str
    key: str


def payload_text(payload: Any) -> str:
    """The text of an entry that `gangway.images.node.log_shipper` made of a journal's line."""
    if isinstance(payload, str):
        try:
            payload = json.loads(payload)
        except (ValueError, RecursionError):
            return str(payload)
    if isinstance(payload, dict) and isinstance(payload.get("message"), str) and len(payload) == 1:
        return str(payload["message"])
    printed = payload.get("printed") if isinstance(payload, dict) else None
    return json.dumps(payload if printed is None else printed)


class Cloud(Protocol):
    """A provider's module."""

    def list_nodes(self, config: StackConfig, outputs: Mapping[str, Any]) -> Sequence[Node]:
        """All nodes that exist. InputError: they cannot be read."""

    def read_log(self, config: StackConfig, outputs: Mapping[str, Any], since: datetime) -> Sequence[LogLine]:
        """Lines of all nodes since then, in any order. Only for stacks with the output `log_group`. InputError."""

    def shell_argv(self, config: StackConfig, outputs: Mapping[str, Any], node: Node) -> list[str]:
        """The command that opens a shell. InputError: the stack's configuration does not allow one."""


def get_cloud(provider: str) -> Cloud:
    """The provider's module. InputError: it has none."""
    known = providers_with_adapter("live")
    if provider not in known:
        raise InputError(
            "gangway:provider", "the nodes of this provider cannot be listed", value=provider,
            allowed=", ".join(known), fix="use the provider's own tool",
        )  # fmt: skip
    return cast("Cloud", load_adapter(provider, "live"))


def sorted_nodes(nodes: Sequence[Node], outputs: Mapping[str, Any]) -> list[Node]:
    """In the order of their numbers: the head, then each rung's by name."""
    order = {str(name): index for index, name in enumerate(outputs.get("group_names") or ())}
    return sorted(nodes, key=lambda node: (node.rung != HEAD, order.get(node.rung, len(order)), node.name, node.id))


def find_node(nodes: Sequence[Node], asked: str) -> Node:
    """By number (from 1), name or id. InputError, with the known ones: there is none, or several have the name."""
    found = [node for node in nodes if asked in (node.name, node.id)]
    if not found and asked.isascii() and asked.isdigit() and 1 <= int(asked) <= len(nodes):
        return nodes[int(asked) - 1]
    if len(found) == 1:
        return found[0]
    listed = "; ".join(f"{number}: {node.name} ({node.id}, {node.state})" for number, node in enumerate(nodes, 1))
    problem = f"{len(found)} nodes have this name" if found else "no such node"
    raise InputError(
        "NODE", problem, value=asked, allowed=listed or "none: the stack has no nodes now",
        fix="use a number or an id of the list" if nodes else "wait until a node is up",
    )  # fmt: skip
