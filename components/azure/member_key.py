"""MemberKeyVault: the keys of a stack's machines in a separate key vault, open only to the stack's subnet."""

from typing import TypedDict

import pulumi
from pulumi_azure_native import keyvault

from gangway.components.azure.immutable import replacing
from gangway.components.azure.names import RANDOM_DIGITS
from gangway.components.core.tags import shortened

__all__ = ["MAX_VAULT_NAME", "SECRET", "SIGNING_SECRET", "MemberKeyVault", "MemberKeyVaultArgs"]

MAX_VAULT_NAME = 24
"""Key vaults: 3 to 24 letters, digits and dashes."""
DELETION_DAYS = 7
"""The minimum. A deleted vault's name stays reserved as long; Pulumi's digits make the next one's."""
SECRET, SIGNING_SECRET = "member-key", "signing-key"


class MemberKeyVaultArgs(TypedDict):
    """Inputs of MemberKeyVault. `pem` is `gangway.components.core.member_key`'s, `signing_pem` `.signing_key`'s;
    `tenant_id` is the directory that the vault trusts; `subnet_id` needs the service endpoint Microsoft.KeyVault, as
    TrainingNetwork's has.
    """

    tenant_id: pulumi.Input[str]
    resource_group_name: pulumi.Input[str]
    location: str
    pem: pulumi.Input[str]
    signing_pem: pulumi.Input[str]
    subnet_id: pulumi.Input[str]
    tags: dict[str, str]


class MemberKeyVault(pulumi.ComponentResource):
    """A vault with two secrets: resource ids (`..._id`) for grants, and URLs (`..._url`) for machines."""

    vault_id: pulumi.Output[str]
    secret_id: pulumi.Output[str]
    secret_url: pulumi.Output[str]
    signing_secret_id: pulumi.Output[str]
    signing_secret_url: pulumi.Output[str]

    def __init__(self, name: str, args: MemberKeyVaultArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:azure:MemberKeyVault", name, None, replacing(opts))
        vault = self._vault(name, args)
        self.vault_id = vault.id
        self.secret_id, self.secret_url = self._secret(name, SECRET, args["pem"], vault, args)
        signing = self._secret(name, SIGNING_SECRET, args["signing_pem"], vault, args)
        self.signing_secret_id, self.signing_secret_url = signing
        self.register_outputs(
            {
                "vault_id": self.vault_id,
                "secret_id": self.secret_id,
                "secret_url": self.secret_url,
                "signing_secret_id": self.signing_secret_id,
                "signing_secret_url": self.signing_secret_url,
            }
        )

    def _secret(
        self, name: str, called: str, pem: pulumi.Input[str], vault: keyvault.Vault, args: MemberKeyVaultArgs
    ) -> tuple[pulumi.Output[str], pulumi.Output[str]]:
        """A key in the vault: its resource id, and its URL."""
        secret = keyvault.Secret(
            f"{name}-{called}",
            resource_group_name=args["resource_group_name"],
            vault_name=vault.name,
            secret_name=called,
            properties=keyvault.SecretPropertiesArgs(
                value=pulumi.Output.secret(pem), content_type="application/x-pem-file"
            ),
            tags=args["tags"],
            # Resource Manager cannot delete secrets, and the vault does not answer the plugin. It is deleted with the
            # vault.
            opts=pulumi.ResourceOptions(parent=self, retain_on_delete=True),
        )
        uri = vault.properties.vault_uri.apply(lambda known: known or "")
        return secret.id, pulumi.Output.concat(uri, "secrets/", called)

    def _vault(self, name: str, args: MemberKeyVaultArgs) -> keyvault.Vault:
        return keyvault.Vault(
            shortened(f"{name}-members", MAX_VAULT_NAME - RANDOM_DIGITS),
            resource_group_name=args["resource_group_name"],
            location=args["location"],
            properties=keyvault.VaultPropertiesArgs(
                tenant_id=args["tenant_id"],
                sku=keyvault.SkuArgs(family=keyvault.SkuFamily.A, name=keyvault.SkuName.STANDARD),
                enable_rbac_authorization=True,
                enable_soft_delete=True,
                soft_delete_retention_in_days=DELETION_DAYS,
                # Nothing needs it after the stack, but many directories refuse a vault without.
                enable_purge_protection=True,
                # `up` writes the secret by Resource Manager, one of Azure's services.
                network_acls=keyvault.NetworkRuleSetArgs(
                    bypass=keyvault.NetworkRuleBypassOptions.AZURE_SERVICES,
                    default_action=keyvault.NetworkRuleAction.DENY,
                    virtual_network_rules=[keyvault.VirtualNetworkRuleArgs(id=args["subnet_id"])],
                ),
            ),
            tags=args["tags"],
            opts=pulumi.ResourceOptions(parent=self),
        )
