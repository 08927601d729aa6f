"""ResourceGroup: the one group that holds everything a stack owns.

The budget and the identities' rights are on this group: nothing of anybody else's belongs in it. Azure deletes a group
with all that is in it, and a bucket of runs is in it, which has to outlive the nodes. So `destroy` takes each resource
away by itself, and leaves the group with the runs' storage account; `az group delete` removes both for good.
"""

from typing import TypedDict

import pulumi
from pulumi_azure_native import resources

__all__ = ["ResourceGroup", "ResourceGroupArgs"]


class ResourceGroupArgs(TypedDict):
    """Inputs of ResourceGroup. It is called after the stack, with digits of Pulumi's."""

    location: str
    tags: dict[str, str]


class ResourceGroup(pulumi.ComponentResource):
    """A resource group. Outputs: its name, and its id (`/subscriptions/S/resourceGroups/G`)."""

    resource_group_name: pulumi.Output[str]
    resource_group_id: pulumi.Output[str]

    def __init__(self, name: str, args: ResourceGroupArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:azure:ResourceGroup", name, None, opts)
        group = resources.ResourceGroup(
            f"{name}-gangway",
            location=args["location"],
            tags=args["tags"],
            opts=pulumi.ResourceOptions(parent=self, retain_on_delete=True),
        )
        self.resource_group_name = group.name
        self.resource_group_id = group.id
        self.register_outputs(
            {"resource_group_name": self.resource_group_name, "resource_group_id": self.resource_group_id}
        )
