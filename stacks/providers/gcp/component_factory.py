"""The components of a stack on Google Cloud, among them groups of GPU machines and queued TPU slices."""

import json
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_gcp as gcp

from gangway.components.core.image import RegistryLogin
from gangway.components.core.keys import member_key
from gangway.components.core.lookup import pinned
from gangway.components.core.outputs import after
from gangway.components.gcp.budget import Budget
from gangway.components.gcp.capacity import rung_zone
from gangway.components.gcp.existing import ExistingNetwork
from gangway.components.gcp.gke import ClusterIdentity
from gangway.components.gcp.identity import (
    EncryptionKey,
    ExistingIdentity,
    HeadIdentity,
    NodeIdentity,
    ProjectServices,
    StackSecret,
)
from gangway.components.gcp.launch import HeadNode
from gangway.components.gcp.machine_image import MachineImage
from gangway.components.gcp.monitoring import NodeLogs, Observability
from gangway.components.gcp.network import ServicePerimeter, TrainingNetwork, plan_network, read_perimeter
from gangway.components.gcp.node_pool import GpuNodePool, GroupTag
from gangway.components.gcp.storage import (
    LOGIN_USER,
    Filestore,
    HeadFiles,
    ImageRegistry,
    LustreFileSystem,
    RunBucket,
)
from gangway.components.gcp.tpu.queued_tpu import QueuedTpu
from gangway.components.gcp.tpu.reconciler import TpuReconciler
from gangway.components.gcp.tpu.request import queued_resource_body
from gangway.stacks.base.factory import Factory, Image
from gangway.stacks.base.kept import keep_text
from gangway.stacks.base.shared import head_host, steps_alarm_minutes
from gangway.stacks.estimates.run_context import build_image
from gangway.stacks.providers.gcp.existing_lookups import FoundExisting
from gangway.stacks.providers.gcp.existing_outputs import (
    ExistingBucket,
    ExistingFileSystem,
    ExistingRegistry,
    existing_network_args,
)
from gangway.stacks.providers.gcp.lookups import Lookups, written_images
from gangway.stacks.providers.gcp.plan import (
    FILESTORE_TIER,
    TPU_TIERS,
    GcpPlan,
    head_type,
    imports,
    key_services,
    reservation_name,
)
from gangway.stacks.providers.gcp.settings import GcpConfig
from gangway.stacks.providers.gcp.user_data import (
    REQUEST_OBJECT,
    Names,
    ended_uri,
    head_user_data,
    image_script,
    node_user_data,
    tpu_startup_script,
)

Key = pulumi.Output[str] | None
Network = TrainingNetwork | ExistingNetwork
Runs = RunBucket | ExistingBucket
Registry = ImageRegistry | ExistingRegistry
FileSystem = LustreFileSystem | Filestore | ExistingFileSystem
LABEL_KEY = "gangway-stack"


@dataclass(frozen=True)
class Nodes:
    """The workers: groups, queued slices, or node pools. Ids are full names; `fallback`: JSON for the head, None with
    one rung; `queued_resource`: of the request; `schedule_id`: of what requests lost slices again.
    """

    group_names: pulumi.Output[list[str]]
    group_ids: pulumi.Output[list[str]]
    fallback: pulumi.Output[str] | None
    queued_resource: pulumi.Output[str] | None
    schedule_id: pulumi.Output[str] | None = None
    node_pool_ids: pulumi.Output[list[str]] | None = None


@dataclass(frozen=True)
class ComponentFactory(Factory[GcpPlan]):
    """One method per component; `build` connects them."""

    provider: gcp.Provider
    services: ProjectServices
    found: Lookups
    existing: FoundExisting

    @property
    def _own(self) -> GcpConfig:
        return self.config.section(GcpConfig)

    @property
    def place(self) -> dict[str, Any]:
        """The arguments of nearly every component."""
        return {"project": self.planned.project, "region": self.config.region}

    @property
    def outside(self) -> pulumi.ResourceOptions:
        """The options of resources outside components."""
        return pulumi.ResourceOptions(provider=self.provider, depends_on=[self.services])

    def project_number(self) -> pulumi.Output[str]:
        """The number of the stack's project."""
        return self.found.project_number.after(self.services.project)

    def key(self) -> Key:
        """The stack's key; None with Google's keys."""
        if self.config.encryption == "provider-key":
            return None
        if (existing := self._own.existing.kms_key) is not None:
            return pulumi.Output.from_input(existing)
        args = {
            **self.place,
            "project_number": self.project_number(),
            "services": key_services(self.config, self.planned),
            "agents": {name: agent.after(self.services.project) for name, agent in self.found.agents.items()},
            "grant_wait_sec": self._own.grant_wait_sec,
            "tags": self.planned.tags,
        }
        return self.declare(EncryptionKey, args).key_name

    def network(self) -> Network:
        """The networks, the way out and the firewall."""
        network, storage = self.config.network, self.config.storage
        if self._own.existing.network is not None:
            return self.declare(ExistingNetwork, existing_network_args(self.config, self.planned))
        lustre = storage is not None and storage.kind == "lustre"
        args: dict[str, Any] = {
            **self.place,
            "cidr": network.cidr,
            "zone": self.planned.zone,
            "egress": network.egress,
            # It mounts the file system to upload the run record.
            "head": self.head_ports(lustre=lustre) if self.planned.head else None,
            "private_services": lustre,
            "flow_logs": network.flow_logs,
            "tags": self.planned.tags,
        }
        if self.planned.tpu is None:
            args["machine_type"] = self.planned.machine.name
        return self.declare(TrainingNetwork, args)

    def runs(self, key: Key) -> Runs:
        """The bucket of run records, which outlive the nodes."""
        if (existing := self._own.existing.run_bucket) is not None:
            return ExistingBucket(pulumi.Output.from_input(existing))
        keep = self.config.work.keep_runs
        return self.declare(RunBucket, {**self.place, "kms_key_name": key, "keep": keep, "tags": self.planned.tags})

    def head_files(self, key: Key) -> HeadFiles | None:
        """The bucket for files of `declare_file`; None if there are none."""
        if self.planned.tpu is None and not (self.planned.head and len(self.config.cluster.capacity) > 1):
            return None
        return self.declare(HeadFiles, {**self.place, "kms_key_name": key, "tags": self.planned.tags})

    def logs(self, key: Key, runs: Runs) -> NodeLogs:
        """The log that the nodes write."""
        args = {
            **self.place,
            "stack": self.config.stack,
            "run_bucket_name": runs.bucket_name,
            "retention_days": self.config.observe.log_days,
            "kms_key_name": key,
            "bucket_id": self._own.existing.log_bucket,
        }
        return self.declare(NodeLogs, args)

    def registry(self, key: Key) -> Registry:
        """The repository of the stack's own images."""
        if (existing := self._own.existing.repository) is not None:
            return ExistingRegistry.named(existing)
        return self.declare(ImageRegistry, {**self.place, "kms_key_name": key, "tags": self.planned.tags})

    def image(self, key: Key) -> Image:
        """The prebuilt image, or a repository and a build."""
        if (ready := self.ready_image(self.planned.repository_id)) is not None:
            return ready
        registry = self.registry(key)
        assert self.found.token is not None, "look_up_all returns it if an image is built"
        login: RegistryLogin = {
            "address": registry.registry_host,
            "username": LOGIN_USER,
            "password": self.found.token,
        }
        image = build_image(self.config.stack, self.planned.flavour, registry.repository_url, login, self.opts)
        return Image(image.image, registry.repository_id)

    def storage(self, network: Network, key: Key) -> FileSystem | None:
        """The shared file system, if any."""
        storage, name = self.config.storage, self.config.stack
        if storage is None:
            return None
        if (existing := self._own.existing.file_system) is not None:
            assert self.existing.mount is not None, "look_up_existing returns it for a file system"
            return ExistingFileSystem.mounted(existing, self.existing.mount)
        args: dict[str, Any] = {
            "project": self.planned.project,
            "zone": self.planned.zone,
            "capacity_gib": storage.capacity_gib,
            "network": network.vpc_id,
            "kms_key_name": key,
            "tags": self.planned.tags,
        }
        if storage.kind == "filestore":
            own = self._own.existing.network is None
            private = plan_network(self.config.network.cidr).private_cidr if own else self.existing.subnetwork_cidr
            args |= {
                "tier": storage.tier or FILESTORE_TIER,
                "client_cidr": private,
                "client_tags": [network.fabric_security_group_id],
            }
            return self.declare(Filestore, args)
        args |= {
            "stack": name,
            "throughput_mbps_per_tib": storage.throughput_mbps_per_tib,
            # Only a head imports it; otherwise a node copies it with its own permissions.
            "source": storage.source if imports(self.config, self.planned) else None,
        }
        return self.declare(LustreFileSystem, args)

    def member_key(self, key: Key) -> pulumi.Output[str]:
        """The secret with which the job's nodes authenticate to each other."""
        return self._secret("member-key", member_key(self.config.stack, self.config.work.member_key_refresh), key)

    def signing_key(self, pem: pulumi.Output[str], key: Key) -> pulumi.Output[str]:
        """The secret with which machines sign the run record."""
        return self._secret("signing-key", pem, key)

    def _secret(self, what: str, pem: pulumi.Output[str], key: Key) -> pulumi.Output[str]:
        args = {**self.place, "pem": pem, "kms_key_name": key, "tags": self.planned.tags}
        return self.declare(StackSecret, args, f"-{what}").secret_id

    def group_tag(self) -> GroupTag | None:
        """The tag that identifies the stack's groups in IAM conditions; None for slices, which are in no group."""
        if self.planned.tpu is not None:
            return None
        return self.declare(GroupTag, {"project_number": self.project_number(), "stack": self.config.stack})

    def rights(
        self, image: Image, runs: Runs, members: pulumi.Output[str] | None, signs: pulumi.Output[str] | None
    ) -> dict[str, Any]:
        """The permissions of every machine."""
        return {
            "project": self.planned.project,
            "stack": self.config.stack,
            "run_bucket_name": runs.bucket_name,
            "repository_id": image.repository,
            "member_key_id": members,
            "signing_key_id": signs,
        }

    def _account(self, kind: str, email: str, rights: dict[str, Any], files: HeadFiles | None) -> ExistingIdentity:
        """An existing service account. It gets access to what the stack makes, and none to what exists."""
        existing = self._own.existing
        built = self.config.ready_image is None and existing.repository is None
        args = {
            "project": rights["project"],
            "email": email,
            "run_bucket_name": rights["run_bucket_name"] if existing.run_bucket is None else None,
            "repository_id": rights["repository_id"] if built else None,
            "files_bucket_name": files.bucket_name if files else None,
            "member_key_id": rights["member_key_id"],
            "signing_key_id": rights["signing_key_id"],
        }
        return self.declare(ExistingIdentity, args, f"-{kind}")

    def node_identity(self, rights: dict[str, Any], group_tag: GroupTag | None) -> NodeIdentity | ExistingIdentity:
        """The workers' service account."""
        if (accounts := self._own.existing.service_accounts) is not None:
            return self._account("node", accounts.nodes, rights, None)
        storage = self.config.storage
        # Managed Lustre imports it itself: no machine reads the bucket.
        imported = imports(self.config, self.planned)
        args = {
            **rights,
            "data_source": storage.source if storage and not imported else None,
            "groups_condition": group_tag.condition if group_tag and self.config.nodes_leave else None,
            "releases_slices": self.config.work.terminate_when_done and self.planned.tpu is not None,
        }
        return self.declare(NodeIdentity, args)

    def cluster_account(self, registry: Registry) -> pulumi.Output[str]:
        """The service account of a GKE cluster's nodes."""
        existing, project = self._own.existing, self.planned.project
        if (accounts := existing.service_accounts) is None:
            args = {"project": project, "stack": self.config.stack, "repository_id": registry.repository_id}
            return self.declare(ClusterIdentity, args).service_account_email
        made = registry.repository_id if existing.repository is None else None
        args = {"project": project, "email": accounts.nodes, "repository_id": made}
        return self.declare(ExistingIdentity, args, "-node").service_account_email

    def machine_images(self) -> pulumi.Output[dict[str, str]]:
        """The images of GPU nodes and head: from the stack file, or the newest of the family at the first `up`."""
        written = written_images(self.config, self.planned)
        newest = {what: image.after(self.services.project) for what, image in self.found.images.items()}
        if not newest:
            return pulumi.Output.from_input(written)
        kept = pinned(f"{self.config.stack}-images", newest, self.config.cluster.image_refresh)
        return kept.apply(lambda known: written | known)

    def _head_identity(
        self, rights: dict[str, Any], files: HeadFiles | None, group_tag: GroupTag | None
    ) -> HeadIdentity | ExistingIdentity:
        accounts = self._own.existing.service_accounts
        if accounts is not None and accounts.head is not None:
            return self._account("head", accounts.head, rights, files)
        args = {
            **rights,
            "groups_condition": group_tag.condition if group_tag and len(self.config.cluster.capacity) > 1 else None,
            "files_bucket_name": files.bucket_name if files else None,
            "imports": imports(self.config, self.planned),
        }
        return self.declare(HeadIdentity, args)

    def head(
        self,
        network: Network,
        rights: dict[str, Any],
        files: HeadFiles | None,
        key: Key,
        images: pulumi.Output[dict[str, str]],
        names: pulumi.Output[Names],
        group_tag: GroupTag | None,
    ) -> HeadNode:
        """The head node and its identity."""
        lustre = self.config.storage is not None and self.config.storage.kind == "lustre"
        identity = self._head_identity(rights, files, group_tag)
        args = {
            **self.place,
            "zone": self.planned.zone,
            "subnet_id": network.private_subnet_ids[0],
            "security_group_ids": [network.head_security_group_id],
            "service_account_email": identity.service_account_email,
            "user_data": keep_text(self.config, "head", head_user_data(self.config, self.planned, names), names),
            "host_name": head_host(self.config),
            "zone_id": network.private_zone_id,
            "machine_type": head_type(self.config),
            "image_id": images["head"],
            # The module of Lustre's client is unsigned.
            "secure_boot": not lustre,
            "kms_key_name": key,
            "tags": self.planned.tags,
        }
        return self.declare(HeadNode, args)

    def node_images(
        self,
        images: pulumi.Output[dict[str, str]],
        network: Network,
        email: pulumi.Output[str],
        key: Key,
        container: Image,
    ) -> pulumi.Output[dict[str, str]]:
        """`images`, with the machine image of the nodes, if the stack builds one, instead of its base."""
        cluster = self.config.cluster
        if cluster.machine_image is None:
            return images
        script = container.reference.apply(lambda known: image_script(self.config, self.planned, known))
        args = {
            "project": self.planned.project,
            "zone": self.planned.zone,
            "stack": self.config.stack,
            "base_image": images["nodes"],
            "script": keep_text(self.config, "machine-image", script, container.reference),
            "subnet_id": network.private_subnet_ids[0],
            "security_group_ids": [network.fabric_security_group_id],
            "service_account_email": email,
            "root_volume_gib": cluster.root_volume_gib,
            "secure_boot": self._secure_boot,
            "kms_key_name": key,
            "keep": cluster.machine_image.keep,
            "tags": self.planned.tags,
        }
        built = self.declare(MachineImage, args)
        return pulumi.Output.all(images, built.image_id).apply(lambda known: {**known[0], "nodes": known[1]})

    @property
    def _secure_boot(self) -> bool:
        """Modules of a Lustre client that a node builds itself are not signed."""
        return self.config.storage is None or self.config.storage.kind != "lustre"

    def gpu_nodes(
        self,
        network: Network,
        email: pulumi.Output[str],
        key: Key,
        names: pulumi.Output[Names],
        images: pulumi.Output[dict[str, str]],
        head: HeadNode | None,
        group_tag: GroupTag,
    ) -> Nodes:
        """Groups of GPU machines, one per rung."""
        config, planned, cluster = self.config, self.planned, self.config.cluster
        user_data = keep_text(config, "nodes", node_user_data(config, planned, names), names)
        args: dict[str, Any] = {
            **self.place,
            "zone": planned.zone,
            "machine_type": planned.machine.name,
            **self.node_args,
            "subnet_ids": network.private_subnet_ids,
            "fabric_subnet_ids": network.fabric_subnet_ids,
            "security_group_ids": [network.fabric_security_group_id],
            "image_id": cluster.image_id,
            "pinned_image": images["nodes"],
            "service_account_email": email,
            # Workers agree on their last checkpoint through the head node's store, so it must outlive them.
            "user_data": after(user_data, head.host) if head else user_data,
            "root_volume_gib": cluster.root_volume_gib,
            "secure_boot": self._secure_boot,
            "kms_key_name": key,
            "group_tags": group_tag.bound,
            "tags": planned.tags,
        }
        pool = self.declare(GpuNodePool, args)
        zones = [rung_zone(rung, planned.zone) for rung in cluster.capacity]
        ids = pool.group_names.apply(
            lambda names: [
                f"projects/{planned.project}/zones/{zone}/instanceGroupManagers/{name}"
                for zone, name in zip(zones, names, strict=True)
            ]
        )
        fallback = pool.fallback_config if len(cluster.capacity) > 1 else None
        return Nodes(pool.group_names, ids, fallback, None)

    def tpu_nodes(
        self,
        network: Network,
        email: pulumi.Output[str],
        key: Key,
        runs: Runs,
        names: pulumi.Output[Names],
        files: HeadFiles,
        log_name: pulumi.Output[str],
    ) -> Nodes:
        """Slices of one queued request, and the workflow that repeats it."""
        config, planned = self.config, self.planned
        script = keep_text(config, "nodes", tpu_startup_script(config, planned, names), names)
        args = self._request_args(network, email, key, script)
        # Written before the request, so that an `up` that changes both never repeats the old one.
        asked = pulumi.Output.from_input({"queued_resource_id": config.stack, **args})
        body = asked.apply(lambda known: json.dumps(queued_resource_body(known)))
        request = self.declare_file(files, REQUEST_OBJECT, body)
        queued = self.declare(QueuedTpu, {**args, "startup_script": after(script, request)})
        again: dict[str, Any] = {
            **self.place,
            "zone": planned.zone,
            "stack": config.stack,
            "queued_resource": queued.name,
            "request_object": request.name,
            "files_bucket_name": files.bucket_name,
            "run_bucket_name": runs.bucket_name,
            "ended_uri": ended_uri(config, names),
            "service_account": email,
            "log_name": log_name,
            "kms_key_name": key,
            "tags": planned.tags,
        }
        reconciler = self.declare(TpuReconciler, again)
        nothing: pulumi.Output[list[str]] = pulumi.Output.from_input([])
        return Nodes(nothing, nothing, None, queued.name, reconciler.schedule_id)

    def _request_args(
        self,
        network: Network,
        email: pulumi.Output[str],
        key: Key,
        startup_script: pulumi.Output[str],
    ) -> dict[str, Any]:
        config, planned, section = self.config, self.planned, self._own
        tpu, cluster = planned.tpu, config.cluster
        assert tpu is not None, "called only if the plan has a slice"
        (rung,) = cluster.capacity
        shape = {"accelerator_type": tpu.accelerator_type}
        own_shape = {"accelerator_config": {"type": tpu.api_type, "topology": tpu.topology}}
        optional = {
            "reservation_name": reservation_name(rung, planned.project, planned.zone),
            "kms_key_name": key if section.tpu_boot_key else None,
            "api_url": section.tpu_api_url,
        }
        return {
            "project": planned.project,
            "zone": planned.zone,
            **(shape if tpu.default_topology else own_shape),
            "runtime_version": tpu.runtime_version,
            "tier": TPU_TIERS[rung.kind],
            "num_slices": cluster.nodes.max,
            "service_account": email,
            "subnetwork": network.private_subnet_ids[0],
            "network_tags": [network.fabric_security_group_id],
            "startup_script": startup_script,
            "labels": planned.tags,
            **{name: value for name, value in optional.items() if value is not None},
        }

    def declare_file(self, files: HeadFiles, name: str, content: pulumi.Output[str]) -> gcp.storage.BucketObject:
        """A JSON file for the head or the TPU workflow, in a bucket: its readers come before these resources."""
        return gcp.storage.BucketObject(
            f"{self.config.stack}-{name.removesuffix('.json')}",
            bucket=files.bucket_name,
            name=name,
            content=content,
            content_type="application/json",
            opts=self.outside,
        )

    def budget(self, key: Key, nodes: Nodes, head: HeadNode | None, group_tag: GroupTag | None) -> Budget:
        """The monthly budget, with its stop if set."""
        section = self._own
        args: dict[str, Any] = {
            **self.place,
            "project_number": self.project_number(),
            "billing_account": section.billing_account,
            **self.budget_args,
            "currency": section.currency,
            "monthly_amount": section.monthly_amount,
            **({"group_ids": nodes.group_ids, "groups_condition": group_tag.condition} if group_tag else {}),
            "head_ids": pulumi.Output.all(head.instance_id) if head else [],
            "tag_key": LABEL_KEY,
            "kms_key_name": key,
            "grant_wait_sec": section.grant_wait_sec,
            "tags": self.planned.tags,
        }
        if nodes.queued_resource is not None:
            args["queued_resource_names"] = pulumi.Output.all(nodes.queued_resource)
            args["schedule_ids"] = pulumi.Output.all(nodes.schedule_id)
        if nodes.node_pool_ids is not None:
            args["node_pool_ids"] = nodes.node_pool_ids
        return self.declare(Budget, args)

    def observe(self, nodes: Nodes, logs: NodeLogs) -> Observability:
        """Alarms and the dashboard."""
        gpus, trains = self.planned.tpu is None, not self.planned.commands
        args = {
            **self.place,
            "stack": self.config.stack,
            "log_name": logs.log_name,
            "group_names": nodes.group_names,
            "num_nodes": self.config.expected_nodes if gpus else 0,
            "emails": list(self.config.budget.emails),
            "steps_alarm_minutes": steps_alarm_minutes(self.config),
            "expect_gpu": gpus and trains,
            "tags": self.planned.tags,
        }
        return self.declare(Observability, args)

    def perimeter(self, nodes: Nodes, budget: Budget, observed: Observability) -> pulumi.Output[str] | None:
        """The perimeter's full name. Last created, first deleted: for half an hour services may refuse all calls."""
        wanted, name, number = self._own.service_perimeter, self.config.stack, self.project_number()
        if wanted is None:
            return None
        if wanted.existing is not None:
            return read_perimeter(name, wanted.access_policy, wanted.existing, number, self.outside)
        groups = nodes.group_names.apply(",".join)
        queued = [] if nodes.queued_resource is None else [nodes.queued_resource]
        args: dict[str, Any] = {
            "access_policy": wanted.access_policy,
            "project": self.planned.project,
            "project_number": after(number, groups, *queued, budget.topic_id, observed.dashboard_id),
            "operators": list(wanted.operators),
            "access_levels": list(wanted.access_levels),
            "reads_from": list(wanted.reads_from),
            "enforced": wanted.mode == "enforced",
        }
        return self.declare(ServicePerimeter, args).perimeter_name
