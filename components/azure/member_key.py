"""MemberKeyVault: the key of a job's nodes in a key vault of the stack's, which answers the stack's subnet alone."""

from typing import TypedDict

import pulumi
from pulumi_azure_native import keyvault

from components.azure.names import RANDOM_DIGITS
from components.core.tags import shortened

__all__ = ["MAX_VAULT_NAME", "SECRET", "MemberKeyVault", "MemberKeyVaultArgs"]

MAX_VAULT_NAME = 24
"""Key vaults: 3 to 24 letters, digits and dashes."""
DELETION_DAYS = 7
"""The least there is. The name of a vault that is gone stays taken so long; Pulumi's digits make the next one's."""
SECRET = "member-key"


class MemberKeyVaultArgs(TypedDict):
    """Inputs of MemberKeyVault. `pem` is `components.core.member_key`'s; `tenant_id` the directory whose identities the
    vault trusts; `subnet_id` has the service endpoint Microsoft.KeyVault, as TrainingNetwork's has.
    """

    tenant_id: pulumi.Input[str]
    resource_group_name: pulumi.Input[str]
    location: str
    pem: pulumi.Input[str]
    subnet_id: pulumi.Input[str]
    tags: dict[str, str]


class MemberKeyVault(pulumi.ComponentResource):
    """A vault with one secret. `secret_id` is its resource id, on which rights are given; `secret_url` where machines
    ask for it; `vault_id` the vault's resource id.
    """

    vault_id: pulumi.Output[str]
    secret_id: pulumi.Output[str]
    secret_url: pulumi.Output[str]

    def __init__(self, name: str, args: MemberKeyVaultArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:azure:MemberKeyVault", name, None, opts)
        vault = self._vault(name, args)
        secret = keyvault.Secret(
            f"{name}-member-key",
            resource_group_name=args["resource_group_name"],
            vault_name=vault.name,
            secret_name=SECRET,
            properties=keyvault.SecretPropertiesArgs(
                value=pulumi.Output.secret(args["pem"]), content_type="application/x-pem-file"
            ),
            tags=args["tags"],
            # Resource Manager deletes none; the plugin would ask the vault, which does not answer whoever runs `up`. It
            # goes with the vault.
            opts=pulumi.ResourceOptions(parent=self, retain_on_delete=True),
        )
        self.vault_id, self.secret_id = vault.id, secret.id
        uri = vault.properties.vault_uri.apply(lambda known: known or "")
        self.secret_url = pulumi.Output.concat(uri, "secrets/", SECRET)
        self.register_outputs({"vault_id": self.vault_id, "secret_id": self.secret_id, "secret_url": self.secret_url})

    def _vault(self, name: str, args: MemberKeyVaultArgs) -> keyvault.Vault:
        return keyvault.Vault(
            shortened(f"{name}-members", MAX_VAULT_NAME - RANDOM_DIGITS),
            resource_group_name=args["resource_group_name"],
            location=args["location"],
            properties=keyvault.VaultPropertiesArgs(
                tenant_id=args["tenant_id"],
                sku=keyvault.SkuArgs(family=keyvault.SkuFamily.A, name=keyvault.SkuName.STANDARD),
                enable_rbac_authorization=True,
                # Of no use to anybody once the stack is gone: it may be purged.
                soft_delete_retention_in_days=DELETION_DAYS,
                # `up` writes the secret by Resource Manager, which is one of Azure's services.
                network_acls=keyvault.NetworkRuleSetArgs(
                    bypass=keyvault.NetworkRuleBypassOptions.AZURE_SERVICES,
                    default_action=keyvault.NetworkRuleAction.DENY,
                    virtual_network_rules=[keyvault.VirtualNetworkRuleArgs(id=args["subnet_id"])],
                ),
            ),
            tags=args["tags"],
            opts=pulumi.ResourceOptions(parent=self),
        )
