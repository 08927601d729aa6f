"""ImageRegistry: the Azure Container Registry of the trainer's image. `premium` adds private endpoints, more concurrent
reads, and deletion of untagged images after OLD_DAYS. Encrypted with Azure's keys: images hold no secret, and a
registry cannot pass the vault's firewall. Tags may move: the build cache's, and content tags after an `up` interrupted
between push and state; nodes and run records use digests. The images are deleted with the stack, as each can be rebuilt
from a run record's commit and lock.
"""

from typing import NotRequired, TypedDict

import pulumi
from pulumi_azure_native import containerregistry

from gangway.components.azure.immutable import replacing
from gangway.components.azure.names import letters

__all__ = ["LOGIN_USER", "ImageRegistry", "ImageRegistryArgs"]

LOGIN_USER = "00000000-0000-0000-0000-000000000000"
"""The user for a token of `az acr login --expose-token`."""
MAX_REGISTRY_NAME = 50
IMAGE = "trainer"
OLD_DAYS = 14


class ImageRegistryArgs(TypedDict):
    """Inputs of ImageRegistry. `premium` (false): the more expensive kind."""

    resource_group_name: pulumi.Input[str]
    location: str
    premium: NotRequired[bool]
    tags: dict[str, str]


class ImageRegistry(pulumi.ComponentResource):
    """A private container registry without an admin user. `repository_url`: prefix of image references;
    `repository_id`: resource id for grants; `registry_host`: for logging in as LOGIN_USER.
    """

    repository_url: pulumi.Output[str]
    repository_id: pulumi.Output[str]
    registry_host: pulumi.Output[str]

    def __init__(self, name: str, args: ImageRegistryArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:azure:ImageRegistry", name, None, replacing(opts))
        premium = args.get("premium", False)
        registry = containerregistry.Registry(
            letters(name, MAX_REGISTRY_NAME),
            resource_group_name=args["resource_group_name"],
            location=args["location"],
            sku=containerregistry.SkuArgs(
                name=containerregistry.SkuName.PREMIUM if premium else containerregistry.SkuName.STANDARD
            ),
            admin_user_enabled=False,
            anonymous_pull_enabled=False,
            policies=_policies() if premium else None,
            tags=args["tags"],
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.repository_url = pulumi.Output.concat(registry.login_server, "/", IMAGE)
        self.repository_id = registry.id
        self.registry_host = registry.login_server
        self.register_outputs(
            {
                "repository_url": self.repository_url,
                "repository_id": self.repository_id,
                "registry_host": self.registry_host,
            }
        )


def _policies() -> containerregistry.PoliciesArgs:
    return containerregistry.PoliciesArgs(
        retention_policy=containerregistry.RetentionPolicyArgs(
            days=OLD_DAYS, status=containerregistry.PolicyStatus.ENABLED
        )
    )
