"""What passed and what was refused in a virtual network, written to a storage account. A part of TrainingNetwork.

Azure makes a network watcher in each region by itself, in a resource group of its own; the log belongs to it.
"""

import pulumi
from pulumi_azure_native import network

__all__ = ["declare_flow_log"]

WATCHER_GROUP = "NetworkWatcherRG"
KEPT_DAYS = 30


def declare_flow_log(
    name: str,
    network_id: pulumi.Input[str],
    account_id: pulumi.Input[str],
    location: str,
    tags: dict[str, str],
    opts: pulumi.ResourceOptions,
) -> network.FlowLog:
    """Declares the flow log of a whole network."""
    return network.FlowLog(
        f"{name}-flows",
        resource_group_name=WATCHER_GROUP,
        network_watcher_name=f"NetworkWatcher_{location}",
        location=location,
        target_resource_id=network_id,
        storage_id=account_id,
        enabled=True,
        format=network.FlowLogFormatParametersArgs(type="JSON", version=2),
        retention_policy=network.RetentionPolicyParametersArgs(days=KEPT_DAYS, enabled=True),
        tags=tags,
        opts=opts,
    )
