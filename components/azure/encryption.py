"""EncryptionKey: one customer-managed key for everything a stack stores, where Azure's own keys are not enough.

Optional. A Key Vault with roles instead of access policies, purge protection and no way in from outside; a key that
rotates; one identity that may use it on behalf of storage and the file system; and the disk encryption set that scale
sets name, with an identity of its own. All but that set stay when the stack is destroyed: the runs stay, and nobody
could read them without.
Purge protection is what these services ask for, and it has a price: whoever deletes the vault can restore it, but not
remove it, for DELETION_DAYS. Encryption at the host is the node pool's. Not a place for other secrets: there are none.
"""

from typing import NotRequired, TypedDict

import pulumi
from pulumi_azure_native import authorization, compute, keyvault, managedidentity

from components.azure.grants import Grantee
from components.azure.names import RANDOM_DIGITS
from components.azure.policies import KEY_USER
from components.azure.settling import heeded
from components.names import shortened
from components.order import after

__all__ = ["EncryptionKey", "EncryptionKeyArgs", "KeyArgs"]

# Key vaults: 3 to 24 letters, digits and dashes.
MAX_VAULT_NAME = 24
DELETION_DAYS = 30
ROTATION = "P90D"
# The one size that disks, storage accounts and Managed Lustre all take.
KEY_BITS = 2048


class KeyArgs(TypedDict):
    """What a component needs that encrypts with EncryptionKey's key: its outputs of the same names."""

    key_name: pulumi.Input[str]
    key_url: pulumi.Input[str]
    vault_uri: pulumi.Input[str]
    vault_id: pulumi.Input[str]
    identity_id: pulumi.Input[str]


class EncryptionKeyArgs(TypedDict):
    """Inputs of EncryptionKey.

    `tenant_id` is the directory's whose identities the vault trusts. `role_wait_sec` (0) is how long Azure gets to heed
    who may use the key, before anything is encrypted with it: from Python programs alone (`components.azure.settling`).
    """

    subscription_id: str
    tenant_id: str
    resource_group_name: pulumi.Input[str]
    location: str
    stack: str
    role_wait_sec: NotRequired[float]
    tags: dict[str, str]


class EncryptionKey(pulumi.ComponentResource):
    """A rotating key, and who may use it.

    Attributes:
        key_name: in the vault.
        key_url: of its first version.
        vault_uri: `https://NAME.vault.azure.net/`.
        vault_id: resource id.
        identity_id: resource id of the identity that may use the key; waits until it may.
        disk_encryption_set_id: for disks of machines; waits until it may use the key.
    """

    key_name: pulumi.Output[str]
    key_url: pulumi.Output[str]
    vault_uri: pulumi.Output[str]
    vault_id: pulumi.Output[str]
    identity_id: pulumi.Output[str]
    disk_encryption_set_id: pulumi.Output[str]

    def __init__(self, name: str, args: EncryptionKeyArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:azure:EncryptionKey", name, None, opts)
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
        self._kept = pulumi.ResourceOptions(parent=self, retain_on_delete=True)
        vault = self._vault()
        key = self._key(vault)
        identity = managedidentity.UserAssignedIdentity(
            f"{name}-key",
            resource_group_name=args["resource_group_name"],
            location=args["location"],
            tags=args["tags"],
            opts=self._kept,
        )
        whose = (name, "key", identity.principal_id, args["subscription_id"], args["stack"], self._kept)
        grant = Grantee(*whose).may("use", KEY_USER, key.id)
        self.key_name = key.name
        self.key_url = key.key_uri_with_version
        self.vault_uri = vault.properties.vault_uri.apply(lambda uri: uri or "")
        self.vault_id = vault.id
        self.identity_id = after(identity.id, *self._heeded("key", "the key's identity", grant))
        self.disk_encryption_set_id = self._disks(key)
        self.register_outputs(
            {
                "key_name": self.key_name,
                "key_url": self.key_url,
                "vault_uri": self.vault_uri,
                "vault_id": self.vault_id,
                "identity_id": self.identity_id,
                "disk_encryption_set_id": self.disk_encryption_set_id,
            }
        )

    def _vault(self) -> keyvault.Vault:
        return keyvault.Vault(
            shortened(f"{self._name}-key", MAX_VAULT_NAME - RANDOM_DIGITS),
            resource_group_name=self._args["resource_group_name"],
            location=self._args["location"],
            properties=keyvault.VaultPropertiesArgs(
                tenant_id=self._args["tenant_id"],
                sku=keyvault.SkuArgs(family=keyvault.SkuFamily.A, name=keyvault.SkuName.STANDARD),
                enable_rbac_authorization=True,
                enable_soft_delete=True,
                soft_delete_retention_in_days=DELETION_DAYS,
                enable_purge_protection=True,
                # Azure's services come in by the bypass, and nobody else has anything to do here.
                network_acls=keyvault.NetworkRuleSetArgs(
                    bypass=keyvault.NetworkRuleBypassOptions.AZURE_SERVICES,
                    default_action=keyvault.NetworkRuleAction.DENY,
                ),
            ),
            tags=self._args["tags"],
            opts=self._kept,
        )

    def _key(self, vault: keyvault.Vault) -> keyvault.Key:
        """A key with a new version every 90 days; disks and storage take the newest, Managed Lustre stays with its."""
        rotation = keyvault.RotationPolicyArgs(
            lifetime_actions=[
                keyvault.LifetimeActionArgs(
                    action=keyvault.ActionArgs(type=keyvault.KeyRotationPolicyActionType.ROTATE),
                    trigger=keyvault.TriggerArgs(time_after_create=ROTATION),
                )
            ]
        )
        return keyvault.Key(
            f"{self._name}-data",
            resource_group_name=self._args["resource_group_name"],
            vault_name=vault.name,
            key_name="data",
            properties=keyvault.KeyPropertiesArgs(
                kty=keyvault.JsonWebKeyType.RSA, key_size=KEY_BITS, rotation_policy=rotation
            ),
            tags=self._args["tags"],
            opts=self._kept,
        )

    def _heeded(self, label: str, whose: str, grant: authorization.RoleAssignment) -> list[pulumi.CustomResource]:
        seconds = self._args.get("role_wait_sec", 0)
        return heeded(f"{self._name}-{label}-heeded", whose, [grant], seconds, self._child)

    def _disks(self, key: keyvault.Key) -> pulumi.Output[str]:
        """The id of the disk encryption set, once it may use the key.

        Its identity is its own, which is there only when it is, so the grant comes after: the API's text has no other
        for new ones ("Only SystemAssigned is supported for new creations", EncryptionSetIdentity), though Terraform's
        provider has since 3.29 (hashicorp/terraform-provider-azurerm#18525). No disk is made before.
        """
        disks = self._disk_encryption_set()
        principal = disks.identity.apply(lambda own: (own and own.principal_id) or "")
        whose = (self._name, "disks", principal, self._args["subscription_id"], self._args["stack"], self._child)
        grant = Grantee(*whose).may("use", KEY_USER, key.id)
        return after(disks.id, *self._heeded("disks", "the disk encryption set", grant))

    def _disk_encryption_set(self) -> compute.DiskEncryptionSet:
        return compute.DiskEncryptionSet(
            f"{self._name}-disks",
            resource_group_name=self._args["resource_group_name"],
            location=self._args["location"],
            encryption_type=compute.DiskEncryptionSetType.ENCRYPTION_AT_REST_WITH_CUSTOMER_KEY,
            identity=compute.EncryptionSetIdentityArgs(type=compute.DiskEncryptionSetIdentityType.SYSTEM_ASSIGNED),
            active_key=compute.KeyForDiskEncryptionSetArgs(
                key_url=self.key_url, source_vault=compute.SourceVaultArgs(id=self.vault_id)
            ),
            rotation_to_latest_key_version_enabled=True,
            tags=self._args["tags"],
            opts=self._child,
        )
