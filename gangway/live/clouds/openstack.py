"""OpenStack: servers with the stack's metadata. There is no log service and no login."""

from collections.abc import Mapping
from typing import Any

from gangway.components.core.findings import InputError
from gangway.components.core.tags import ROLE_TAG
from gangway.live.nodes import HEAD, Node
from gangway.runs.run_store import openstack_cloud, sdk_errors_as_oserror
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.openstack.settings import storage_cloud

_TAG = "gangway:stack"
NODES = "nodes"


def list_nodes(config: StackConfig, outputs: Mapping[str, Any]) -> list[Node]:
    """All are one rung: each node is a separate group."""
    try:
        with sdk_errors_as_oserror():
            cloud = openstack_cloud(config.region, storage_cloud(config))
            servers = [each for each in cloud.compute.servers() if (each.metadata or {}).get(_TAG) == config.stack]
    except OSError as error:
        raise InputError(
            f"OpenStack, region {config.region}", f"servers cannot be listed: {error}", fix="check clouds.yaml or OS_*"
        ) from None
    return [
        Node(each.name, each.id, HEAD if each.metadata.get(ROLE_TAG) == HEAD else NODES, str(each.status).lower())
        for each in servers
    ]


def shell_argv(config: StackConfig, outputs: Mapping[str, Any], node: Node) -> list[str]:
    """Always InputError."""
    raise InputError(
        "gangway:provider", "machines on OpenStack have no key pair and no address outside of the stack's network",
        value="openstack", allowed="a shell on aws, azure, gcp and hosts",
        fix=f"read its console: openstack console log show {node.id}",
    )  # fmt: skip
