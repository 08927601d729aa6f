"""RunBucket, where run records outlive the nodes; and LustreFileSystem, which has a module of its own.

A container in a storage account that knows no keys: whoever reads or writes it has a role. The account and what is in
it stay when the stack is destroyed.
"""

from typing import NotRequired, TypedDict

import pulumi
from pulumi_azure_native import storage

from components.azure.accounts import MAX_ACCOUNT_NAME, declare_account
from components.azure.encryption import KeyArgs
from components.azure.file_system import LustreFileSystem, LustreFileSystemArgs
from components.azure.names import letters
from components.azure.policies import container_id
from components.order import after

__all__ = ["LustreFileSystem", "LustreFileSystemArgs", "RunBucket", "RunBucketArgs"]

CONTAINER = "runs"
OLD_VERSION_DAYS = 30
SOFT_DELETE_DAYS = 7


class RunBucketArgs(TypedDict):
    """Inputs of RunBucket.

    With `subnet_ids` or `allowed_ips` the account answers to these subnets and these addresses or ranges (of people who
    read runs from elsewhere), and to nobody else, whatever role they have; without, to anybody with a role.
    `zone` empty: the region has none, and the data is in one place. Without `key` Azure encrypts with its own keys.
    """

    resource_group_name: pulumi.Input[str]
    location: str
    zone: str
    subnet_ids: NotRequired[pulumi.Input[list[str]] | None]
    allowed_ips: NotRequired[list[str]]
    key: NotRequired[KeyArgs | None]
    tags: dict[str, str]


class RunBucket(pulumi.ComponentResource):
    """A private, encrypted, versioned container. Nothing current ever expires.

    Attributes:
        bucket_name: the container.
        bucket_url: `https://ACCOUNT.blob.core.windows.net/CONTAINER`; waits for versioning.
        account_name: the storage account.
        account_id: its resource id.
        container_id: the container's, on which machines get to write.
    """

    bucket_name: pulumi.Output[str]
    bucket_url: pulumi.Output[str]
    account_name: pulumi.Output[str]
    account_id: pulumi.Output[str]
    container_id: pulumi.Output[str]

    def __init__(self, name: str, args: RunBucketArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:azure:RunBucket", name, None, opts)
        self._name, self._args = name, args
        # Azure would delete an account with everything in it, where other clouds refuse to.
        self._kept = pulumi.ResourceOptions(parent=self, retain_on_delete=True)
        account = self._account()
        service = self._blob_service(account)
        self._lifecycle(account, service)
        container = storage.BlobContainer(
            f"{name}-runs",
            resource_group_name=args["resource_group_name"],
            account_name=account.name,
            container_name=CONTAINER,
            public_access=storage.PublicAccess.NONE,
            opts=self._kept,
        )
        self.bucket_name = container.name
        url = pulumi.Output.concat("https://", account.name, ".blob.core.windows.net/", container.name)
        self.bucket_url = after(url, service)
        self.account_name = account.name
        self.account_id = account.id
        self.container_id = after(account.id.apply(lambda id_: container_id(id_, CONTAINER)), container)
        self.register_outputs(
            {
                "bucket_name": self.bucket_name,
                "bucket_url": self.bucket_url,
                "account_name": self.account_name,
                "account_id": self.account_id,
                "container_id": self.container_id,
            }
        )

    def _account(self) -> storage.StorageAccount:
        args = self._args
        return declare_account(
            letters(self._name, MAX_ACCOUNT_NAME),
            args["resource_group_name"],
            args["location"],
            sku="Standard_ZRS" if args["zone"] else "Standard_LRS",
            rules=self._network_rules(),
            key=args.get("key"),
            tags=args["tags"],
            opts=self._kept,
        )

    def _network_rules(self) -> storage.NetworkRuleSetArgs:
        subnets, ips = self._args.get("subnet_ids"), self._args.get("allowed_ips", [])
        if subnets is None and not ips:
            return storage.NetworkRuleSetArgs(default_action=storage.DefaultAction.ALLOW)
        # How many there are is not known before they are; all rules are one value.
        rules = pulumi.Output.from_input(subnets or []).apply(
            lambda ids: [
                storage.VirtualNetworkRuleArgs(virtual_network_resource_id=id_, action=storage.Action.ALLOW)
                for id_ in ids
            ]
        )
        return storage.NetworkRuleSetArgs(
            default_action=storage.DefaultAction.DENY,
            bypass=storage.Bypass.AZURE_SERVICES,
            virtual_network_rules=rules,
            ip_rules=[storage.IPRuleArgs(i_p_address_or_range=ip, action=storage.Action.ALLOW) for ip in ips],
        )

    def _blob_service(self, account: storage.StorageAccount) -> storage.BlobServiceProperties:
        """Every version is kept; what somebody deletes for good is kept for another week."""
        soft = storage.DeleteRetentionPolicyArgs(enabled=True, days=SOFT_DELETE_DAYS)
        return storage.BlobServiceProperties(
            f"{self._name}-runs",
            resource_group_name=self._args["resource_group_name"],
            account_name=account.name,
            blob_services_name="default",
            is_versioning_enabled=True,
            delete_retention_policy=soft,
            container_delete_retention_policy=soft,
            opts=self._kept,
        )

    def _lifecycle(self, account: storage.StorageAccount, service: storage.BlobServiceProperties) -> None:
        """Versions that are no longer current go after a month. Azure counts from when one was written."""
        old = storage.DateAfterCreationArgs(days_after_creation_greater_than=OLD_VERSION_DAYS)
        rule = storage.ManagementPolicyRuleArgs(
            name="old-versions",
            type=storage.RuleType.LIFECYCLE,
            enabled=True,
            definition=storage.ManagementPolicyDefinitionArgs(
                actions=storage.ManagementPolicyActionArgs(version=storage.ManagementPolicyVersionArgs(delete=old)),
                filters=storage.ManagementPolicyFilterArgs(blob_types=["blockBlob"]),
            ),
        )
        storage.ManagementPolicy(
            f"{self._name}-runs",
            resource_group_name=self._args["resource_group_name"],
            account_name=account.name,
            management_policy_name="default",
            policy=storage.ManagementPolicySchemaArgs(rules=[rule]),
            # A rule of versions is refused before there are any.
            opts=pulumi.ResourceOptions.merge(self._kept, pulumi.ResourceOptions(depends_on=[service])),
        )
