"""Your own machines, by the stack file: their states are unknown, and SSH reaches them directly."""

from collections.abc import Mapping
from typing import Any

from gangway.live.nodes import Node
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.hosts.settings import HostsConfig


def list_nodes(config: StackConfig, outputs: Mapping[str, Any]) -> list[Node]:
    """The machines of the stack file, whether or not they run."""
    return [Node(each.label, each.address, "hosts", "declared") for each in config.section(HostsConfig).machines]


def shell_argv(config: StackConfig, outputs: Mapping[str, Any], node: Node) -> list[str]:
    """Plain SSH: the caller's known_hosts has the machine's key."""
    own = config.section(HostsConfig)
    machine = next(each for each in own.machines if each.address == node.id)
    return ["ssh", "-p", str(machine.port), "-l", machine.user or own.user, "--", machine.address]
