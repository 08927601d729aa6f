"""Storage accounts as all of ours are: no keys, no public blobs, HTTPS alone. A part of several components.

What is in an account, who may come in and how long it stays, is its component's to say.
"""

import pulumi
from pulumi_azure_native import storage

from components.azure.encryption import KeyArgs

__all__ = ["MAX_ACCOUNT_NAME", "declare_account"]

MAX_ACCOUNT_NAME = 24


def declare_account(
    name: str,
    resource_group_name: pulumi.Input[str],
    location: str,
    *,
    sku: str,
    rules: storage.NetworkRuleSetArgs,
    key: KeyArgs | None,
    tags: dict[str, str],
    opts: pulumi.ResourceOptions,
) -> storage.StorageAccount:
    """Declares an account.

    Args:
        name: logical name, of lowercase letters and digits (`components.azure.names.letters`).
        resource_group_name: where it is.
        location: region.
        sku: how many copies there are, and where.
        rules: who it answers to, of those with a role.
        key: whose newest version encrypts it, Azure looks for a newer one each day; None for Azure's own keys.
        tags: of the account.
        opts: of the resource.
    """
    return storage.StorageAccount(
        name,
        resource_group_name=resource_group_name,
        location=location,
        kind=storage.Kind.STORAGE_V2,
        sku=storage.SkuArgs(name=sku),
        access_tier=storage.AccessTier.HOT,
        minimum_tls_version=storage.MinimumTlsVersion.TLS1_2,
        enable_https_traffic_only=True,
        allow_blob_public_access=False,
        # Roles only: a key would be a secret that opens everything.
        allow_shared_key_access=False,
        default_to_o_auth_authentication=True,
        allow_cross_tenant_replication=False,
        is_local_user_enabled=False,
        network_rule_set=rules,
        identity=None if key is None else _identity(key),
        encryption=None if key is None else _encryption(key),
        tags=tags,
        opts=opts,
    )


def _identity(key: KeyArgs) -> storage.IdentityArgs:
    return storage.IdentityArgs(type=storage.IdentityType.USER_ASSIGNED, user_assigned_identities=[key["identity_id"]])


def _encryption(key: KeyArgs) -> storage.EncryptionArgs:
    return storage.EncryptionArgs(
        key_source=storage.KeySource.MICROSOFT_KEYVAULT,
        key_vault_properties=storage.KeyVaultPropertiesArgs(key_name=key["key_name"], key_vault_uri=key["vault_uri"]),
        encryption_identity=storage.EncryptionIdentityArgs(encryption_user_assigned_identity=key["identity_id"]),
    )
