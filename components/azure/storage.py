"""RunBucket (run records outlive the nodes), FlowLogStore: accounts without keys, HTTPS only; ImageRegistry."""

import re
from dataclasses import dataclass
from typing import NotRequired

import pulumi
from pulumi_azure_native import containerregistry, network, storage

from gangway.components.azure.common import CommonArgs, common_inputs, declare_identity, heeded, replacing
from gangway.components.azure.identity import Grantee, KeyArgs
from gangway.components.azure.policies import BLOB_CONTRIBUTOR, container_id, letters
from gangway.components.core.findings import InputError
from gangway.components.core.outputs import after, register_outputs
from gangway.components.core.settling import Settling

MAX_ACCOUNT_NAME = 24
OWN_GROUP = "NetworkWatcherRG"  # of Azure's own watchers, one per region ("Enable or disable Azure Network Watcher")
_SHORT = re.compile(r"(?P<group>[-\w.()]{1,90})/(?P<name>[-\w.]{1,80})", re.ASCII)
KEPT_DAYS = 30
# Distinguishes the account's name from the runs' account.
ENDING = "flows"
CONTAINER = "runs"
OLD_VERSION_DAYS = 30
SOFT_DELETE_DAYS = 7


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
    """Declare an account. `sku`: replication; `rules`: firewall; `key`: its newest version; None for Azure's keys."""
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


_ID = re.compile(
    r"/subscriptions/(?P<subscription>[0-9a-f-]{36})/resourceGroups/(?P<group>[-\w.()]{1,90})"
    r"/providers/Microsoft\.Network/networkWatchers/(?P<name>[-\w.]{1,80})",
    re.IGNORECASE | re.ASCII,
)


@dataclass(frozen=True)
class Watcher:
    """A network watcher. `by_azure`: Azure creates it some time after the region's first network."""

    resource_group_name: str
    name: str
    by_azure: bool


def plan_watcher(
    written: str | None,
    region: str,
    subscription_id: str | None = None,
    place: str = "gangway:azure.network_watcher",
) -> Watcher:
    """Parse `written`, a resource id or GROUP/NAME; None for Azure's own in `region`. InputError at `place`: neither,
    or not in `subscription_id` (None for no check).
    """
    if written is None:
        return Watcher(OWN_GROUP, f"NetworkWatcher_{region}", by_azure=True)
    found = _ID.fullmatch(written) or _SHORT.fullmatch(written)
    if found is None:
        raise InputError(
            place,
            "not a network watcher",
            value=written,
            allowed="its resource id, or GROUP/NAME",
            fix='copy its id from `az network watcher list --query "[].{region: location, id: id}"`, or leave it out '
            f"for {OWN_GROUP}/NetworkWatcher_{region}",
        )
    other = found.groupdict().get("subscription")
    if subscription_id is not None and other is not None and other.lower() != subscription_id.lower():
        raise InputError(
            place,
            "a flow log belongs to a watcher of its network's own subscription",
            value=written,
            allowed=f"a watcher in the subscription {subscription_id}",
            fix=f"make one: `az network watcher configure --locations {region} --enabled true --resource-group GROUP`",
        )
    return Watcher(found["group"], found["name"], by_azure=False)


class FlowLogStoreArgs(CommonArgs):
    """Inputs of FlowLogStore. Without `key` Azure encrypts with its own keys. `role_wait_sec` (0): wait for Azure to
    apply the identity's role, only in Python programs (`gangway.components.core.settling`).
    """

    subscription_id: str
    stack: str
    key: NotRequired[KeyArgs | None]
    role_wait_sec: NotRequired[float]


class FlowLogStore(pulumi.ComponentResource):
    """A storage account, and the identity that writes the log. `identity_id` waits until it may write."""

    account_id: pulumi.Output[str]
    identity_id: pulumi.Output[str]

    def __init__(self, name: str, args: FlowLogStoreArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:azure:FlowLogStore", name, None, replacing(opts))
        child = pulumi.ResourceOptions(parent=self)
        account = declare_account(
            f"{letters(name, MAX_ACCOUNT_NAME - len(ENDING))}{ENDING}",
            args["resource_group_name"],
            args["location"],
            sku="Standard_LRS",
            # Open to everybody with a role, as with the runs.
            rules=storage.NetworkRuleSetArgs(default_action=storage.DefaultAction.ALLOW),
            key=args.get("key"),
            tags=args["tags"],
            opts=child,
        )
        identity = declare_identity(f"{name}-flows", args, child)
        grantee = Grantee(name, "flows", identity.principal_id, args["subscription_id"], args["stack"], child)
        grant = grantee.may("write", BLOB_CONTRIBUTOR, account.id)
        self.account_id = account.id
        waits = heeded(f"{name}-flows-heeded", "the flow log's identity", [grant], args.get("role_wait_sec", 0), child)
        self.identity_id = after(identity.id, *waits)
        register_outputs(self)


def declare_flow_log(
    name: str,
    network_id: pulumi.Input[str],
    store: tuple[pulumi.Input[str], pulumi.Input[str]],
    watcher: Watcher,
    wait_sec: float,
    location: str,
    tags: dict[str, str],
    opts: pulumi.ResourceOptions,
) -> network.FlowLog:
    """Declare the flow log of a whole network, written to the account `store[0]` as the identity `store[1]`. It follows
    after `wait_sec`: Azure's own watcher comes after the first network (ParentResourceNotFound, pulumi/pulumi#11430).
    """
    before: list[pulumi.Resource] = []
    if watcher.by_azure and wait_sec:
        there = f"makes {watcher.name} in {watcher.resource_group_name} where there is none"
        what = f"Azure heeds the network, and {there}"
        before = [Settling(f"{name}-watcher", what, [network_id], wait_sec, opts)]
    return network.FlowLog(
        f"{name}-flows",
        resource_group_name=watcher.resource_group_name,
        network_watcher_name=watcher.name,
        location=location,
        target_resource_id=network_id,
        storage_id=store[0],
        identity=network.ManagedServiceIdentityArgs(
            type=network.ResourceIdentityType.USER_ASSIGNED, user_assigned_identities=[store[1]]
        ),
        enabled=True,
        format=network.FlowLogFormatParametersArgs(type="JSON", version=2),
        retention_policy=network.RetentionPolicyParametersArgs(days=KEPT_DAYS, enabled=True),
        tags=tags,
        opts=pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=before)),
    )


class RunBucketArgs(CommonArgs):
    """Inputs of RunBucket. With `subnet_ids` or `allowed_ips` only these subnets and addresses or ranges have access
    (for people outside); without, anybody with a role. `zone` empty: the region has none, and data is in one place.
    Without `key` Azure encrypts with its own keys.
    """

    zone: str
    subnet_ids: NotRequired[pulumi.Input[list[str]] | None]
    allowed_ips: NotRequired[list[str]]
    key: NotRequired[KeyArgs | None]


class RunBucket(pulumi.ComponentResource):
    """A private, encrypted, versioned container. Current versions never expire. `bucket_url` is
    `https://ACCOUNT.blob.core.windows.net/CONTAINER` and waits for versioning; `container_id` is for the machines'
    grants.
    """

    bucket_name: pulumi.Output[str]
    bucket_url: pulumi.Output[str]
    account_name: pulumi.Output[str]
    account_id: pulumi.Output[str]
    container_id: pulumi.Output[str]

    def __init__(self, name: str, args: RunBucketArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:azure:RunBucket", name, None, replacing(opts))
        self._name, self._args = name, args
        # Azure would delete an account with everything in it, unlike other clouds.
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
        register_outputs(self)

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
        # Their number is unknown in advance; all rules are one value.
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
            # A rule for versions is refused before versioning is on.
            opts=pulumi.ResourceOptions.merge(self._kept, pulumi.ResourceOptions(depends_on=[service])),
        )


LOGIN_USER = "00000000-0000-0000-0000-000000000000"  # the user for a token of `az acr login --expose-token`
MAX_REGISTRY_NAME = 50
IMAGE = "trainer"
OLD_DAYS = 14


# `premium` adds private endpoints, more concurrent reads, and deletion of untagged images after OLD_DAYS. Encrypted
# with Azure's keys: images hold no secret, and a registry cannot pass the vault's firewall. Tags may move: the build
# cache's, and content tags after an `up` interrupted between push and state; nodes and run records use digests. The
# images are deleted with the stack, as each can be rebuilt from a run record's commit and lock.
class ImageRegistryArgs(CommonArgs):
    """Inputs of ImageRegistry. `premium` (false): the more expensive kind."""

    premium: NotRequired[bool]


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
            **common_inputs(args),
            sku=containerregistry.SkuArgs(
                name=containerregistry.SkuName.PREMIUM if premium else containerregistry.SkuName.STANDARD
            ),
            admin_user_enabled=False,
            anonymous_pull_enabled=False,
            policies=_policies() if premium else None,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.repository_url = pulumi.Output.concat(registry.login_server, "/", IMAGE)
        self.repository_id = registry.id
        self.registry_host = registry.login_server
        register_outputs(self)


def _policies() -> containerregistry.PoliciesArgs:
    return containerregistry.PoliciesArgs(
        retention_policy=containerregistry.RetentionPolicyArgs(
            days=OLD_DAYS, status=containerregistry.PolicyStatus.ENABLED
        )
    )
