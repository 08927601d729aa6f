"""Azure's resource group, permissions, encryption keys and the vault of its machines' keys."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NotRequired, TypedDict

import pulumi
from pulumi_azure_native import authorization, compute, keyvault, managedidentity, resources

from gangway.components.azure.common import CommonArgs, common_inputs, declare_identity, heeded, replacing
from gangway.components.azure.policies import (
    ACR_PULL,
    BLOB_READER,
    KEY_USER,
    LOG_WRITER,
    RANDOM_DIGITS,
    RUN_WRITER_ACTIONS,
    SECRET_USER,
    assignable_scopes,
    container_id,
    get_account,
    group_id,
    guid,
    head_actions,
    node_actions,
    role_id,
)
from gangway.components.core.blob_url import read_blob_url
from gangway.components.core.outputs import after, register_outputs
from gangway.components.core.settling import Settling
from gangway.components.core.tags import shortened

MAX_VAULT_NAME = 24  # key vaults: 3 to 24 letters, digits and dashes
MEMBER_DELETION_DAYS = 7  # the minimum; a deleted vault's name stays reserved as long
SECRET, SIGNING_SECRET = "member-key", "signing-key"


class MemberKeyVaultArgs(CommonArgs):
    """Inputs of MemberKeyVault. `pem` is `gangway.components.core.keys`'s, `signing_pem` `.signing_key`'s;
    `tenant_id` is the directory that the vault trusts; `subnet_id` needs the service endpoint Microsoft.KeyVault, as
    TrainingNetwork's has.
    """

    tenant_id: pulumi.Input[str]
    pem: pulumi.Input[str]
    signing_pem: pulumi.Input[str]
    subnet_id: pulumi.Input[str]


class MemberKeyVault(pulumi.ComponentResource):
    """A vault with two secrets: resource ids (`..._id`) for grants, and URLs (`..._url`) for machines."""

    vault_id: pulumi.Output[str]
    secret_id: pulumi.Output[str]
    secret_url: pulumi.Output[str]
    signing_secret_id: pulumi.Output[str]
    signing_secret_url: pulumi.Output[str]

    def __init__(self, name: str, args: MemberKeyVaultArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:azure:MemberKeyVault", name, None, replacing(opts))
        # `up` writes the secrets by Resource Manager, one of Azure's services.
        child = pulumi.ResourceOptions(parent=self)
        vault = _vault(f"{name}-members", args, MEMBER_DELETION_DAYS, [args["subnet_id"]], child)
        self.vault_id = vault.id
        self.secret_id, self.secret_url = self._secret(name, SECRET, args["pem"], vault, args)
        signing = self._secret(name, SIGNING_SECRET, args["signing_pem"], vault, args)
        self.signing_secret_id, self.signing_secret_url = signing
        register_outputs(self)

    def _secret(
        self, name: str, called: str, pem: pulumi.Input[str], vault: keyvault.Vault, args: MemberKeyVaultArgs
    ) -> tuple[pulumi.Output[str], pulumi.Output[str]]:
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


def _vault(
    name: str,
    args: "MemberKeyVaultArgs | EncryptionKeyArgs",
    days: int,
    subnets: Sequence[pulumi.Input[str]],
    opts: pulumi.ResourceOptions,
) -> keyvault.Vault:
    """A vault that keeps what is deleted for `days`, and that only Azure's services and `subnets` reach."""
    rules = [keyvault.VirtualNetworkRuleArgs(id=subnet) for subnet in subnets]
    return keyvault.Vault(
        shortened(name, MAX_VAULT_NAME - RANDOM_DIGITS),
        **common_inputs(args),
        properties=keyvault.VaultPropertiesArgs(
            tenant_id=args["tenant_id"],
            sku=keyvault.SkuArgs(family=keyvault.SkuFamily.A, name=keyvault.SkuName.STANDARD),
            enable_rbac_authorization=True,
            enable_soft_delete=True,
            soft_delete_retention_in_days=days,
            # Many directories refuse a vault without, even where nothing needs it after the stack.
            enable_purge_protection=True,
            network_acls=keyvault.NetworkRuleSetArgs(
                bypass=keyvault.NetworkRuleBypassOptions.AZURE_SERVICES,
                default_action=keyvault.NetworkRuleAction.DENY,
                virtual_network_rules=rules or None,
            ),
        ),
        opts=opts,
    )


DELETION_DAYS = 30
ROTATION = "P90D"
# The only size that disks, storage accounts and Managed Lustre all accept.
KEY_BITS = 2048
KNOWN_SEC = 60.0
"""Before a custom role is assigned, as Microsoft's modules wait (Azure/terraform-azurerm-caf-enterprise-scale)."""


class ResourceGroupArgs(TypedDict):
    """Inputs of ResourceGroup, which is named after the stack with Pulumi's digits."""

    location: str
    tags: dict[str, str]


class ResourceGroup(pulumi.ComponentResource):
    """A resource group. Outputs: its name, and its id (`/subscriptions/S/resourceGroups/G`)."""

    resource_group_name: pulumi.Output[str]
    resource_group_id: pulumi.Output[str]

    def __init__(self, name: str, args: ResourceGroupArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:azure:ResourceGroup", name, None, replacing(opts))
        group = resources.ResourceGroup(
            f"{name}-gangway",
            location=args["location"],
            tags=args["tags"],
            opts=pulumi.ResourceOptions(parent=self, retain_on_delete=True),
        )
        self.resource_group_name = group.name
        self.resource_group_id = group.id
        register_outputs(self)


class KeyArgs(TypedDict):
    """EncryptionKey's outputs of the same names, for components that encrypt with it."""

    key_name: pulumi.Input[str]
    key_url: pulumi.Input[str]
    vault_uri: pulumi.Input[str]
    vault_id: pulumi.Input[str]
    identity_id: pulumi.Input[str]


class EncryptionKeyArgs(CommonArgs):
    """Inputs of EncryptionKey. `tenant_id` is the directory that the vault trusts. `role_wait_sec` (0): wait for Azure
    to apply the grants before the key is used, only in Python programs (`gangway.components.core.settling`).
    """

    subscription_id: str
    tenant_id: str
    stack: str
    role_wait_sec: NotRequired[float]


class EncryptionKey(pulumi.ComponentResource):
    """A rotating key, and its users. `key_url`: of its first version; `vault_uri`: `https://NAME.vault.azure.net/`;
    `identity_id`: may use the key; waits for the grant; `disk_encryption_set_id`: for machines' disks; waits for the
    grant.
    """

    key_name: pulumi.Output[str]
    key_url: pulumi.Output[str]
    vault_uri: pulumi.Output[str]
    vault_id: pulumi.Output[str]
    identity_id: pulumi.Output[str]
    disk_encryption_set_id: pulumi.Output[str]

    def __init__(self, name: str, args: EncryptionKeyArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:azure:EncryptionKey", name, None, replacing(opts))
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
        self._kept = pulumi.ResourceOptions(parent=self, retain_on_delete=True)
        vault = _vault(f"{name}-key", args, DELETION_DAYS, [], self._kept)
        key = self._key(vault)
        identity = declare_identity(f"{name}-key", args, self._kept)
        whose = (name, "key", identity.principal_id, args["subscription_id"], args["stack"], self._kept)
        grant = Grantee(*whose).may("use", KEY_USER, key.id)
        self.key_name = key.name
        self.key_url = key.key_uri_with_version
        self.vault_uri = vault.properties.vault_uri.apply(lambda uri: uri or "")
        self.vault_id = vault.id
        self.identity_id = after(identity.id, *self._heeded("key", "the key's identity", grant))
        self.disk_encryption_set_id = self._disks(key)
        register_outputs(self)

    def _key(self, vault: keyvault.Vault) -> keyvault.Key:
        """Rotates every 90 days; disks and storage use the newest version, Managed Lustre keeps its own."""
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
        """The id of the disk encryption set, once it may use the key. The grant comes afterwards: new sets have only a
        system-assigned identity (EncryptionSetIdentity, hashicorp/terraform-provider-azurerm#18525).
        """
        disks = self._disk_encryption_set()
        principal = disks.identity.apply(lambda own: (own and own.principal_id) or "")
        whose = (self._name, "disks", principal, self._args["subscription_id"], self._args["stack"], self._child)
        grant = Grantee(*whose).may("use", KEY_USER, key.id)
        return after(disks.id, *self._heeded("disks", "the disk encryption set", grant))

    def _disk_encryption_set(self) -> compute.DiskEncryptionSet:
        return compute.DiskEncryptionSet(
            f"{self._name}-disks",
            **common_inputs(self._args),
            encryption_type=compute.DiskEncryptionSetType.ENCRYPTION_AT_REST_WITH_CUSTOMER_KEY,
            identity=compute.EncryptionSetIdentityArgs(type=compute.DiskEncryptionSetIdentityType.SYSTEM_ASSIGNED),
            active_key=compute.KeyForDiskEncryptionSetArgs(
                key_url=self.key_url, source_vault=compute.SourceVaultArgs(id=self.vault_id)
            ),
            rotation_to_latest_key_version_enabled=True,
            opts=self._child,
        )


@dataclass(frozen=True)
class Grantee:
    """An identity that gets rights. `name`: prefix of the assignments' logical names; `kind`: its part in the stack:
    node, head, stop ; `subscription_id`: where roles are looked up; `stack`: seed of the GUIDs; `wait_sec`: for applied
    roles; custom roles need only KNOWN_SEC.
    """

    name: str
    kind: str
    principal_id: pulumi.Input[str]
    subscription_id: str
    stack: str
    opts: pulumi.ResourceOptions
    wait_sec: float = 0

    def may(self, label: str, role: str, scope: pulumi.Input[str]) -> authorization.RoleAssignment:
        """Assign a built-in role, by its GUID, on `scope`."""
        return self._assign(label, role_id(self.subscription_id, role), scope)

    def may_do(
        self,
        label: str,
        title: str,
        actions: Sequence[str],
        resource_group_name: pulumi.Input[str],
        *,
        data_actions: Sequence[str] = (),
        scope: pulumi.Input[str] | None = None,
    ) -> list[pulumi.CustomResource]:
        """A role with only these actions, assigned on `scope` (default: resource group); empty without actions."""
        if not actions and not data_actions:
            return []
        name = pulumi.Output.from_input(resource_group_name)
        group = name.apply(lambda known: group_id(self.subscription_id, known))
        parts = (self.subscription_id, self.stack, self.kind, label, "role")
        role = authorization.RoleDefinition(
            f"{self.name}-{self.kind}-{label}",
            role_definition_id=name.apply(lambda known: guid(*parts, known)),
            # Role names are unique per directory; only the name of the stack's own group ends in digits.
            role_name=name.apply(lambda known: f"Gangway {self._place(known)} ({self.subscription_id[:8]}): {title}"),
            role_type="CustomRole",
            description=f"Made and removed by the stack {self.stack}",
            scope=group,
            assignable_scopes=pulumi.Output.all(group, group if scope is None else scope).apply(assignable_scopes),
            permissions=[authorization.PermissionArgs(actions=list(actions), data_actions=list(data_actions) or None)],
            opts=self.opts,
        )
        return [role, self._assign(label, self._role_id(role, label, title), group if scope is None else scope)]

    def _place(self, group: str) -> str:
        return group if group.startswith(self.stack) else f"{self.stack} in {group}"

    def _role_id(self, role: authorization.RoleDefinition, label: str, title: str) -> pulumi.Input[str]:
        if not self.wait_sec:
            return role.id
        name, seconds = f"{self.name}-{self.kind}-{label}-known", min(self.wait_sec, KNOWN_SEC)
        return after(role.id, Settling(name, f"Azure heeds the new role: {title}", [role.id], seconds, self.opts))

    def _assign(self, label: str, role: pulumi.Input[str], scope: pulumi.Input[str]) -> authorization.RoleAssignment:
        parts = (self.subscription_id, self.stack, self.kind, label)
        return authorization.RoleAssignment(
            f"{self.name}-{self.kind}-{label}",
            role_assignment_name=pulumi.Output.from_input(scope).apply(lambda known: guid(*parts, known)),
            role_definition_id=role,
            principal_id=self.principal_id,
            # Avoids a lookup of an identity that some directory servers do not know yet.
            principal_type="ServicePrincipal",
            scope=scope,
            opts=self.opts,
        )


class MachineIdentityArgs(CommonArgs):
    """What the identities of nodes and head have in common."""

    subscription_id: str
    stack: str
    run_container_id: pulumi.Input[str]
    repository_id: pulumi.Input[str]
    data_collection_rule_id: NotRequired[pulumi.Input[str] | None]
    member_secret_id: NotRequired[pulumi.Input[str] | None]
    signing_secret_id: NotRequired[pulumi.Input[str] | None]
    role_wait_sec: NotRequired[float]


class NodeIdentityArgs(MachineIdentityArgs):
    """Inputs of NodeIdentity. `run_container_id` is RunBucket's, `repository_id` the registry's resource id,
    `data_collection_rule_id` NodeLogs', `member_secret_id` and `signing_secret_id` MemberKeyVault's. `data_source` is a
    readable `az://account/container/prefix`, `data_source_account_id` its account's resource id (roles apply to whole
    containers; `up` needs the right to grant them). `self_termination` lets a node delete itself from its scale set.
    `role_wait_sec` (0): wait for Azure to know a custom role, only in Python programs
    (`gangway.components.azure.identity`).
    """

    data_source: NotRequired[str | None]
    data_source_account_id: NotRequired[str | None]
    self_termination: NotRequired[bool]


class HeadIdentityArgs(MachineIdentityArgs):
    """NodeIdentity's inputs. `fills_groups` lets it resize scale sets, `scrapes` find the workers."""

    fills_groups: NotRequired[bool]
    scrapes: NotRequired[bool]


def _identity(
    name: str, kind: str, args: MachineIdentityArgs, opts: pulumi.ResourceOptions
) -> tuple[managedidentity.UserAssignedIdentity, Grantee, list[pulumi.CustomResource]]:
    identity = declare_identity(f"{name}-{kind}", args, opts)
    whose = (name, kind, identity.principal_id, args["subscription_id"], args["stack"], opts)
    grantee = Grantee(*whose, wait_sec=args.get("role_wait_sec", 0))
    grants: list[pulumi.CustomResource] = [
        grantee.may("image", ACR_PULL, args["repository_id"]),
        *grantee.may_do(
            "runs",
            f"a {kind} writes records",
            (),
            args["resource_group_name"],
            data_actions=RUN_WRITER_ACTIONS,
            scope=args["run_container_id"],
        ),
    ]
    for label, role, scope in (
        ("lines", LOG_WRITER, args.get("data_collection_rule_id")),
        ("members", SECRET_USER, args.get("member_secret_id")),
        ("signs", SECRET_USER, args.get("signing_secret_id")),
    ):
        if scope is not None:
            grants.append(grantee.may(label, role, scope))
    return identity, grantee, grants


class NodeIdentity(pulumi.ComponentResource):
    """Managed identity and grants of the nodes. `identity_id` waits for the grants (Azure may apply them some minutes
    later); `client_id`: to request tokens; `principal_id`: for further grants.
    """

    identity_id: pulumi.Output[str]
    client_id: pulumi.Output[str]
    principal_id: pulumi.Output[str]

    def __init__(self, name: str, args: NodeIdentityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:azure:NodeIdentity", name, None, replacing(opts))
        identity, grantee, grants = _identity(name, "node", args, pulumi.ResourceOptions(parent=self))
        if url := args.get("data_source"):
            source = read_blob_url(url)
            account_id = args.get("data_source_account_id") or ""
            get_account(account_id, source)
            grants.append(grantee.may("data", BLOB_READER, container_id(account_id, source.container)))
        actions = node_actions(self_termination=args.get("self_termination", False))
        grants += grantee.may_do("leave", "a node leaves its scale set", actions, args["resource_group_name"])
        self.identity_id = after(identity.id, *grants)
        self.client_id = identity.client_id
        self.principal_id = identity.principal_id
        register_outputs(self)


class HeadIdentity(pulumi.ComponentResource):
    """Managed identity and grants of the head node. Outputs as of NodeIdentity."""

    identity_id: pulumi.Output[str]
    client_id: pulumi.Output[str]
    principal_id: pulumi.Output[str]

    def __init__(self, name: str, args: HeadIdentityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:azure:HeadIdentity", name, None, replacing(opts))
        identity, grantee, grants = _identity(name, "head", args, pulumi.ResourceOptions(parent=self))
        actions = head_actions(fills_groups=args.get("fills_groups", False), scrapes=args.get("scrapes", False))
        grants += grantee.may_do("fill", "find workers, fill scale sets", actions, args["resource_group_name"])
        self.identity_id = after(identity.id, *grants)
        self.client_id = identity.client_id
        self.principal_id = identity.principal_id
        register_outputs(self)
