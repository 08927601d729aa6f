"""The components of a stack on Azure, and the registry password with which `up` pushes the image."""

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import pulumi

from gangway.components.azure.aks import PODS_CIDR
from gangway.components.azure.api import TIMEOUT_SEC, api_root
from gangway.components.azure.budget import Budget
from gangway.components.azure.file_system import LustreFileSystem
from gangway.components.azure.head_node import HEAD_IMAGE, HeadNode
from gangway.components.azure.identity import (
    EncryptionKey,
    HeadIdentity,
    KeyArgs,
    MemberKeyVault,
    NodeIdentity,
    ResourceGroup,
)
from gangway.components.azure.launch import Image as BaseImage
from gangway.components.azure.launch import plan_image
from gangway.components.azure.machine_image import ImageBuilderIdentity, MachineImage
from gangway.components.azure.monitoring import NodeLogs, Observability, WorkspaceArgs
from gangway.components.azure.network import (
    PrivateEndpoints,
    TrainingNetwork,
)
from gangway.components.azure.node_pool import IbNodePool
from gangway.components.azure.storage import (
    LOGIN_USER,
    FlowLogStore,
    ImageRegistry,
    RunBucket,
)
from gangway.components.core.image import RegistryLogin
from gangway.components.core.keys import member_key
from gangway.components.core.lookup import pinned
from gangway.stacks.base.factory import Factory, Image
from gangway.stacks.base.kept import keep_text
from gangway.stacks.base.shared import ended_key, scrapes, steps_alarm_minutes
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.run_context import build_image
from gangway.stacks.providers.azure.existing_outputs import (
    GivenFileSystem,
    GivenGroup,
    GivenIdentity,
    GivenNetwork,
    GivenRegistry,
    GivenRuns,
)
from gangway.stacks.providers.azure.existing_settings import ExistingConfig, ExistingKey, group_name, resource_name
from gangway.stacks.providers.azure.lookups import Lookups
from gangway.stacks.providers.azure.plan import AzurePlan, head_type
from gangway.stacks.providers.azure.settings import AzureConfig
from gangway.stacks.providers.azure.user_data import Names, head_user_data, image_script, node_user_data

PAUSES_SEC = (2.0, 5.0, 10.0, 20.0)  # between attempts; answers with a status in REFUSED are final
REFUSED = (401, 403)
_HOST = re.compile(r"[a-z0-9-]+\.azurecr\.io")
TAG_KEY = "gangway-stack"


def push_password(host: pulumi.Output[str], token: pulumi.Output[str]) -> pulumi.Output[str]:
    """The password of LOGIN_USER, a secret. pulumi.RunError: no registry, or refused. `token`: for Resource Manager."""

    def ask(known: list[str]) -> Awaitable[str]:
        # In a thread, so that the program declares other resources meanwhile.
        return asyncio.to_thread(_request_password, *known)

    return pulumi.Output.secret(pulumi.Output.all(host, token).apply(ask))


def _request_password(host: str, token: str) -> str:
    """The registry's answer, with retries: DNS takes time to publish a new registry."""
    if not _HOST.fullmatch(host) or token.startswith("${"):  # in a plan
        return ""
    pauses_sec = list(PAUSES_SEC)
    while True:
        try:
            return _exchange_token(host, token)
        except (OSError, ValueError, KeyError) as error:
            if pauses_sec and getattr(error, "status", None) not in REFUSED:
                time.sleep(pauses_sec.pop(0))
                continue
            raise pulumi.RunError(
                f"cannot get a password from {host} to push the trainer's image: {error!r}; run `az login` as a user "
                "with the role AcrPush, Contributor or Owner; or set gangway:image.prebuilt"
            ) from None


def _exchange_token(host: str, token: str) -> str:
    # Imported here, so that a plan loads no HTTP client. Unlike gangway.images.node.web, urllib honours a proxy.
    from urllib.error import HTTPError
    from urllib.request import urlopen

    from gangway.images.node.web import RefusedError

    form = urlencode({"grant_type": "access_token", "service": host, "access_token": token})
    try:
        with urlopen(f"{api_root(host)}/oauth2/exchange", form.encode(), timeout=TIMEOUT_SEC) as answer:
            return str(json.load(answer)["refresh_token"])
    except HTTPError as error:
        with error:
            raise RefusedError(error.code, error.reason) from None


Key = EncryptionKey | ExistingKey | None
Network = TrainingNetwork | GivenNetwork
Runs = RunBucket | GivenRuns
Registry = ImageRegistry | GivenRegistry
FileSystem = LustreFileSystem | GivenFileSystem


def marketplace_images(config: StackConfig, planned: AzurePlan) -> dict[str, BaseImage]:
    """The images of nodes and head."""
    head = config.section(AzureConfig).head_image or HEAD_IMAGE
    return {"nodes": planned.image, "head": plan_image(head)}


def _version(images: Mapping[str, pulumi.Output[str]], what: str) -> dict[str, pulumi.Output[str]]:
    return {"image_version": images[what]} if what in images else {}


@dataclass(frozen=True)
class ComponentFactory(Factory[AzurePlan]):
    """One method per component; `build` connects them."""

    found: Lookups
    group: ResourceGroup | GivenGroup

    @property
    def existing(self) -> ExistingConfig:
        """What the stack uses but does not own."""
        return self.own.existing

    @property
    def own(self) -> AzureConfig:
        """The section gangway:azure."""
        return self.config.section(AzureConfig)

    def place(self, *further: str) -> dict[str, Any]:
        """The arguments of every component, and those of zone, subscription_id and stack in `further`."""
        known = {
            "zone": self.planned.zone,
            "subscription_id": self.planned.subscription_id,
            "stack": self.config.stack,
        }
        return {
            "resource_group_name": self.group.resource_group_name,
            "location": self.config.region,
            "tags": self.planned.tags,
            **{name: known[name] for name in further},
        }

    @property
    def role_wait(self) -> dict[str, int]:
        """How long to wait until role assignments take effect."""
        return {"role_wait_sec": self.own.role_wait_sec}

    @property
    def _guards(self) -> dict[str, bool]:
        guards = {"trusted_launch": self.own.trusted_launch, "encryption_at_host": self.own.encryption_at_host}
        return {name: wanted for name, wanted in guards.items() if not wanted}

    def key(self) -> Key:
        """The stack's key, or the given one; None with Azure's keys."""
        if self.config.encryption == "provider-key":
            return None
        if (given := self.existing.key) is not None:
            return given
        args = {**self.place("subscription_id", "stack"), "tenant_id": self.own.tenant_id, **self.role_wait}
        return self.declare(EncryptionKey, args)

    def flow_logs(self, key: Key) -> FlowLogStore | None:
        """The store of the network's flow log, if any."""
        if not self.config.network.flow_logs or self.existing.subnet_id is not None:
            return None
        args = {**self.place("subscription_id", "stack"), "key": _key_args(key), **self.role_wait}
        return self.declare(FlowLogStore, args)

    def network(self, flow_logs: FlowLogStore | None) -> Network:
        """The network, the way out and the firewall."""
        if self.existing.subnet_id is not None:
            return GivenNetwork.from_settings(self.existing)
        network, lustre = self.config.network, self.planned.lustre
        args = {
            **self.place("zone"),
            "cidr": network.cidr,
            "egress": network.egress,
            # It mounts the file system to upload the run record.
            "head": self.head_ports(lustre=lustre is not None) if self.planned.head else None,
            "pods_cidr": PODS_CIDR if self.planned.standing else None,
            "lustre_prefix_length": None if lustre is None else lustre.subnet_prefix_length,
            "bastion": self.own.bastion,
            "private_endpoints": self.own.private_endpoints,
            "flow_log_account_id": flow_logs.account_id if flow_logs else None,
            "flow_log_identity_id": flow_logs.identity_id if flow_logs else None,
            "network_watcher": self.own.network_watcher,
            "watcher_wait_sec": self.own.role_wait_sec,
        }
        return self.declare(TrainingNetwork, args)

    def runs(self, key: Key) -> Runs:
        """The container of run records, which outlive the nodes."""
        if (container_id := self.existing.run_container_id) is not None:
            return GivenRuns.from_id(container_id)
        # It is replicated over the region's zones, independently of the nodes' zone.
        zone = next(iter(self.planned.region.zones), "")
        return self.declare(RunBucket, {**self.place(), "zone": zone, "key": _key_args(key)})

    def logs(self) -> NodeLogs:
        """The log table of the machines."""
        given: WorkspaceArgs | None = None
        if (workspace_id := self.existing.log_workspace_id) is not None:
            given = {
                "id": workspace_id,
                "name": resource_name(workspace_id),
                "resource_group_name": group_name(workspace_id),
            }
        return self.declare(
            NodeLogs, {**self.place(), "retention_days": self.config.observe.log_days, "workspace": given}
        )

    def registry(self) -> Registry:
        """The registry of the image that `up` builds."""
        if (registry_id := self.existing.registry_id) is not None:
            return GivenRegistry.from_id(registry_id, self.found.given.registry_host, self.config.stack)
        return self.declare(ImageRegistry, {**self.place(), "premium": self.own.private_endpoints})

    def image(self) -> Image:
        """The prebuilt image, or a registry and a build."""
        if (ready := self.ready_image(self.planned.registry_id)) is not None:
            return ready
        registry = self.registry()
        login: RegistryLogin = {
            "address": registry.registry_host,
            "username": LOGIN_USER,
            "password": push_password(registry.registry_host, self.found.token),
        }
        built = build_image(self.config.stack, self.planned.flavour, registry.repository_url, login, self.opts)
        return Image(built.image, registry.repository_id)

    def storage(self, network: Network, key: Key) -> FileSystem | None:
        """The shared file system, if any."""
        storage = self.config.storage
        if storage is None:
            return None
        if self.existing.file_system_id is not None:
            return GivenFileSystem(self.found.given.file_system_address)
        args = {
            **self.place("subscription_id", "stack", "zone"),
            "capacity_gib": storage.capacity_gib,
            "throughput_mbps_per_tib": storage.throughput_mbps_per_tib,
            "subnet_id": network.lustre_subnet_id,
            "source": storage.source,
            "source_account_id": self.own.source_account_id,
            "importer_principal_id": self.own.importer_principal_id,
            "export_runs": storage.export_runs,
            "key": _key_args(key),
            **self.role_wait,
        }
        return self.declare(LustreFileSystem, args)

    def keys(self, network: Network, tenant: str, signing: pulumi.Output[str]) -> MemberKeyVault:
        """The vault of the job's member key and the signing key; `tenant`: the directory of the user who runs `up`."""
        args = {
            **self.place(),
            "tenant_id": tenant,
            "pem": member_key(self.config.stack, self.config.work.member_key_refresh),
            "signing_pem": signing,
            "subnet_id": network.private_subnet_ids[0],
        }
        return self.declare(MemberKeyVault, args)

    def machines_subnet(
        self, network: Network, image: Image, runs: Runs, members: MemberKeyVault
    ) -> pulumi.Output[str]:
        """The machines' subnet, after its private endpoints if set."""
        subnet = network.private_subnet_ids[0]
        if not self.own.private_endpoints:
            return subnet
        args = {
            **self.place(),
            "subnet_id": subnet,
            "network_id": network.vpc_id,
            "account_id": runs.account_id,
            "registry_id": image.repository,
            "vault_id": members.vault_id,
        }
        return self.declare(PrivateEndpoints, args).subnet_id

    def rights(self, image: Image, runs: Runs, logs: NodeLogs, members: MemberKeyVault) -> dict[str, Any]:
        """The permissions of every machine: pull the image, upload runs, send logs. Data comes from the file system."""
        return {
            **self.place("subscription_id", "stack"),
            "run_container_id": runs.container_id,
            "repository_id": image.repository,
            "data_collection_rule_id": logs.data_collection_rule_id,
            "member_secret_id": members.secret_id,
            "signing_secret_id": members.signing_secret_id,
            **self.role_wait,
        }

    def node_identity(self, rights: dict[str, Any]) -> NodeIdentity | GivenIdentity:
        """The identity of the workers."""
        if self.found.given.node_identity is not None:
            return self.found.given.node_identity
        return self.declare(NodeIdentity, {**rights, "self_termination": self.config.nodes_leave})

    def image_versions(self) -> dict[str, pulumi.Output[str]]:
        """The versions of the Marketplace images as of the first `up`; without fixed versions and custom images."""
        kept = pinned(f"{self.config.stack}-images", self.found.images, self.config.cluster.image_refresh)
        return {what: kept[what] for what in self.found.images}

    def built_image(self, container: Image, images: Mapping[str, pulumi.Output[str]]) -> pulumi.Output[str] | None:
        """The id of the nodes' machine image, if the stack builds one."""
        cluster = self.config.cluster
        if cluster.machine_image is None:
            return None
        place = self.place("subscription_id", "stack")
        pulls = {**place, "repository_id": container.repository, **self.role_wait}
        builder = self.declare(ImageBuilderIdentity, pulls)
        inputs = pulumi.Output.all(container.reference, builder.client_id)
        script = inputs.apply(lambda known: image_script(self.config, *known))
        image = self.planned.image
        args = {
            **{name: value for name, value in place.items() if name != "resource_group_name"},
            "base_image": f"{image.publisher}:{image.offer}:{image.sku}:{image.version}",
            "base_version": images.get("nodes"),
            "script": keep_text(self.config, "machine-image", script, inputs),
            "identity_id": builder.identity_id,
            "root_volume_gib": self.planned.root_volume_gib,
            "keep": cluster.machine_image.keep,
            **self.role_wait,
        }
        return self.declare(MachineImage, args).image_id

    def pool(
        self,
        network: Network,
        subnet: pulumi.Output[str],
        identity: NodeIdentity | GivenIdentity,
        key: Key,
        images: Mapping[str, pulumi.Output[str]],
        built: pulumi.Output[str] | None,
        names: pulumi.Output[Names],
    ) -> IbNodePool:
        """The workers: one scale set per rung, empty until the head fills it."""
        cluster = self.config.cluster
        args = {
            **self.place("subscription_id"),
            "zone": self.planned.nodes_zone,
            "machine_type": self.planned.machine.name,
            **self.node_args,
            "subnet_ids": pulumi.Output.all(subnet),
            "security_group_ids": _present(network.fabric_security_group_id),
            "image_id": cluster.image_id,
            **_version(images, "nodes"),
            "built_image_id": built,
            "identity_id": identity.identity_id,
            "user_data": keep_text(
                self.config,
                "nodes",
                node_user_data(self.config, self.planned, names, identity.client_id),
                pulumi.Output.all(names, identity.client_id),
            ),
            "root_volume_gib": self.planned.root_volume_gib,
            "disk_encryption_set_id": key.disk_encryption_set_id if key else None,
            "secure_boot": self.planned.security.secure_boot,
            "entra_login": self.own.bastion,
            "proximity": self.own.proximity,
            "ended_object": names.apply(lambda known: ended_key(self.config, Names(*known).job)),
            **self._guards,
        }
        return self.declare(IbNodePool, args)

    def head(
        self,
        network: Network,
        subnet: pulumi.Output[str],
        rights: dict[str, Any],
        key: Key,
        images: Mapping[str, pulumi.Output[str]],
        names: pulumi.Output[Names],
        fallback_config: pulumi.Output[str],
    ) -> HeadNode:
        """The head node and its identity. It requests the nodes of all rungs."""
        lustre, zone = self.planned.lustre, self.existing.private_dns_zone_id
        identity = self.found.given.head_identity or self.declare(
            HeadIdentity, {**rights, "fills_groups": True, "scrapes": scrapes(self.config)}
        )
        user_data = keep_text(
            self.config,
            "head",
            head_user_data(self.config, self.planned, names, identity.client_id, fallback_config),
            pulumi.Output.all(names, identity.client_id, fallback_config),
        )
        args = {
            **self.place("zone"),
            "subnet_id": subnet,
            "private_ip": self.planned.head_address,
            "security_group_ids": _present(network.head_security_group_id),
            "identity_id": identity.identity_id,
            "user_data": user_data,
            "host_name": self.planned.head_host,
            "zone_id": network.private_zone_id,
            **({} if zone is None else {"zone_resource_group_name": group_name(zone)}),
            "machine_type": head_type(self.config),
            **_version(images, "head"),
            **({} if self.own.head_image is None else {"image_id": self.own.head_image}),
            # If Microsoft has no client for the kernel, the head builds an unsigned module.
            "secure_boot": lustre is None,
            **self._guards,
            "disk_encryption_set_id": key.disk_encryption_set_id if key else None,
            "entra_login": self.own.bastion,
        }
        return self.declare(HeadNode, args)

    def budget(self, pool: IbNodePool, head: HeadNode) -> Budget:
        """The monthly budget, with its stop if set."""
        machines = {"group_ids": pool.launch_template_ids, "head_ids": pulumi.Output.all(head.instance_id)}
        return self.get_budget(machines)

    def get_budget(self, stopped: Mapping[str, Any]) -> Budget:
        """The monthly budget; `stopped`: arguments for what the stop ends."""
        args = {
            **self.place("subscription_id"),
            **self.budget_args,
            "starts_on": self.own.budget_starts_on,
            **stopped,
            "tag_key": TAG_KEY,
            **self.role_wait,
        }
        return self.declare(Budget, args)

    def observe(self, logs: NodeLogs) -> Observability:
        """Alarms and the workbook."""
        args = {
            **self.place("subscription_id", "stack"),
            "workspace_id": logs.workspace_id,
            "num_nodes": self.config.expected_nodes,
            "emails": list(self.config.budget.emails),
            "steps_alarm_minutes": steps_alarm_minutes(self.config),
            "expect_gpu": self.config.own_command is None,
        }
        return self.declare(Observability, args)


def _present(group: pulumi.Input[str] | None) -> list[pulumi.Input[str]]:
    return [] if group is None else [group]


def _key_args(key: Key) -> KeyArgs | None:
    if key is None:
        return None
    return {
        "key_name": key.key_name,
        "key_url": key.key_url,
        "vault_uri": key.vault_uri,
        "vault_id": key.vault_id,
        "identity_id": key.identity_id,
    }
