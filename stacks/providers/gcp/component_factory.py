"""The components of a stack on Google Cloud, among them groups of GPU machines and queued TPU slices."""

import json
from dataclasses import dataclass
from typing import Any, cast

import pulumi
import pulumi_gcp as gcp

from gangway.components.core.dependencies import after
from gangway.components.core.image import RegistryLogin
from gangway.components.core.member_key import member_key
from gangway.components.core.pinned import pinned
from gangway.components.gcp.budget import Budget, BudgetArgs
from gangway.components.gcp.capacity import rung_zone
from gangway.components.gcp.identity import (
    EncryptionKey,
    EncryptionKeyArgs,
    HeadIdentity,
    NodeIdentity,
    ProjectServices,
    StackSecret,
    StackSecretArgs,
)
from gangway.components.gcp.launch import HeadNode, HeadNodeArgs
from gangway.components.gcp.monitoring import NodeLogs, NodeLogsArgs, Observability, ObservabilityArgs
from gangway.components.gcp.network import TrainingNetwork, TrainingNetworkArgs, network_tag, plan_network
from gangway.components.gcp.node_pool import GpuNodePool, GpuNodePoolArgs, GroupTag, GroupTagArgs
from gangway.components.gcp.perimeter import ServicePerimeter, ServicePerimeterArgs, read_perimeter
from gangway.components.gcp.storage import (
    LOGIN_USER,
    Filestore,
    FilestoreArgs,
    HeadFiles,
    HeadFilesArgs,
    ImageRegistry,
    ImageRegistryArgs,
    LustreFileSystem,
    LustreFileSystemArgs,
    RunBucket,
    RunBucketArgs,
)
from gangway.components.gcp.tpu.queued_tpu import QueuedTpu
from gangway.components.gcp.tpu.reconciler import TpuReconciler, TpuReconcilerArgs
from gangway.components.gcp.tpu.request import QueuedTpuArgs, queued_resource_body
from gangway.images.specs import Flavour
from gangway.stacks.base.shared import METRICS_PORT, RENDEZVOUS_PORT, head_host, steps_alarm_minutes, typed_args
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.run_context import build_image
from gangway.stacks.providers.gcp.lookups import Lookups, written_images
from gangway.stacks.providers.gcp.plan import FILESTORE_TIER, TPU_TIERS, GcpPlan, head_type, reservation_name
from gangway.stacks.providers.gcp.settings import GcpConfig
from gangway.stacks.providers.gcp.user_data import (
    REQUEST_OBJECT,
    UserDataInputs,
    ended_uri,
    head_user_data,
    node_user_data,
    tpu_startup_script,
)

Key = pulumi.Output[str] | None
LABEL_KEY = "gangway-stack"


@dataclass(frozen=True)
class Nodes:
    """The workers: groups, queued slices, or node pools. `group_ids` and `node_pool_ids`: full names; `fallback`: JSON
    for the head, None with one rung; `queued_resource`: full name of the request; `schedule_id`: schedule that requests
    lost slices again.
    """

    group_names: pulumi.Output[list[str]]
    group_ids: pulumi.Output[list[str]]
    fallback: pulumi.Output[str] | None
    queued_resource: pulumi.Output[str] | None
    schedule_id: pulumi.Output[str] | None = None
    node_pool_ids: pulumi.Output[list[str]] | None = None


def place(config: StackConfig, planned: GcpPlan) -> dict[str, Any]:
    """The arguments of nearly every component."""
    return {"project": planned.project, "region": config.region}


def gpu_nodes(
    config: StackConfig,
    planned: GcpPlan,
    network: TrainingNetwork,
    email: pulumi.Output[str],
    key: Key,
    user_data_inputs: UserDataInputs,
    images: pulumi.Output[dict[str, str]],
    head: HeadNode | None,
    group_tag: GroupTag,
    opts: pulumi.ResourceOptions,
) -> Nodes:
    """Groups of GPU machines, one per rung."""
    cluster, storage = config.cluster, config.storage
    user_data = node_user_data(config, planned, user_data_inputs)
    args: dict[str, Any] = {
        **place(config, planned),
        "zone": planned.zone,
        "machine_type": planned.machine.name,
        "num_nodes_min": cluster.nodes.min,
        "num_nodes_max": cluster.nodes.max,
        "capacity": [rung.model_dump(mode="json", exclude_none=True) for rung in cluster.capacity],
        "subnet_ids": network.private_subnet_ids,
        "fabric_subnet_ids": network.fabric_subnet_ids,
        "security_group_ids": [network.fabric_security_group_id],
        "image_id": cluster.image_id,
        "pinned_image": images["nodes"],
        "service_account_email": email,
        # Workers agree on their last checkpoint through the head node's store, so it must outlive them.
        "user_data": after(user_data, head.host) if head else user_data,
        "root_volume_gib": cluster.root_volume_gib,
        "secure_boot": storage is None or storage.kind != "lustre",
        "kms_key_name": key,
        "group_tags": group_tag.bound,
        "tags": planned.tags,
    }
    pool = GpuNodePool(config.stack, typed_args(GpuNodePoolArgs, args), opts)
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
    config: StackConfig,
    planned: GcpPlan,
    network: TrainingNetwork,
    email: pulumi.Output[str],
    key: Key,
    user_data_inputs: UserDataInputs,
    files: HeadFiles,
    log_name: pulumi.Output[str],
    opts: pulumi.ResourceOptions,
    own: pulumi.ResourceOptions,
) -> Nodes:
    """Slices of one queued request, and the workflow that repeats it. `own`: options of resources outside
    components.
    """
    script = tpu_startup_script(config, planned, user_data_inputs)
    args = _request_args(config, planned, network, email, key, script)
    # Written before the request, so that an `up` that changes both never repeats the old one.
    asked = pulumi.Output.from_input({"queued_resource_id": config.stack, **args})
    body = asked.apply(lambda known: json.dumps(queued_resource_body(known)))
    request = declare_file(config, files, REQUEST_OBJECT, body, own)
    queued = QueuedTpu(config.stack, cast("QueuedTpuArgs", {**args, "startup_script": after(script, request)}), opts)
    again: dict[str, Any] = {
        **place(config, planned),
        "zone": planned.zone,
        "stack": config.stack,
        "queued_resource": queued.name,
        "request_object": request.name,
        "files_bucket_name": files.bucket_name,
        "run_bucket_name": user_data_inputs.bucket,
        "ended_uri": ended_uri(config, planned, user_data_inputs),
        "service_account": email,
        "log_name": log_name,
        "kms_key_name": key,
        "tags": planned.tags,
    }
    reconciler = TpuReconciler(config.stack, typed_args(TpuReconcilerArgs, again), opts)
    nothing: pulumi.Output[list[str]] = pulumi.Output.from_input([])
    return Nodes(nothing, nothing, None, queued.name, reconciler.schedule_id)


def _request_args(
    config: StackConfig,
    planned: GcpPlan,
    network: TrainingNetwork,
    email: pulumi.Output[str],
    key: Key,
    startup_script: pulumi.Output[str],
) -> dict[str, Any]:
    tpu, cluster, section = planned.tpu, config.cluster, config.section(GcpConfig)
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
        "network_tags": [network_tag(config.stack, "fabric")],
        "startup_script": startup_script,
        "labels": planned.tags,
        **{name: value for name, value in optional.items() if value is not None},
    }


def declare_file(
    config: StackConfig, files: HeadFiles, name: str, content: pulumi.Output[str], opts: pulumi.ResourceOptions
) -> gcp.storage.BucketObject:
    """A JSON file for the head (groups to fill) or the TPU workflow (the request). In a bucket: its readers are created
    before these resources and outlive them.
    """
    return gcp.storage.BucketObject(
        f"{config.stack}-{name.removesuffix('.json')}",
        bucket=files.bucket_name,
        name=name,
        content=content,
        content_type="application/json",
        opts=opts,
    )


@dataclass(frozen=True)
class Image:
    """The trainer's image by digest, and its repository."""

    reference: pulumi.Output[str]
    repository_id: pulumi.Input[str]


@dataclass(frozen=True)
class ComponentFactory:
    """One method per component; `build` connects them."""

    config: StackConfig
    planned: GcpPlan
    provider: gcp.Provider
    services: ProjectServices
    found: Lookups
    opts: pulumi.ResourceOptions

    @property
    def _own(self) -> GcpConfig:
        return self.config.section(GcpConfig)

    def project_number(self) -> pulumi.Output[str]:
        """The number of the stack's project."""
        return self.found.project_number.after(self.services.project)

    def key(self) -> Key:
        """The stack's key; None with Google's keys."""
        if self.config.encryption == "provider-key":
            return None
        storage, stops = self.config.storage, self.config.budget.stop_at_percent is not None
        queued, inside = self.planned.queues_slices, self.planned.standing
        users = {
            "kubernetes": inside,
            "secretmanager": self.planned.has_secrets,
            "tpu": queued,
            "workflows": stops or queued,
        }
        services = [*([storage.kind] if storage else []), *(name for name, used in users.items() if used)]
        args = {
            **place(self.config, self.planned),
            "project_number": self.project_number(),
            "services": services,
            "agents": {name: agent.after(self.services.project) for name, agent in self.found.agents.items()},
            "grant_wait_sec": self._own.grant_wait_sec,
            "tags": self.planned.tags,
        }
        return EncryptionKey(self.config.stack, typed_args(EncryptionKeyArgs, args), self.opts).key_name

    def network(self) -> TrainingNetwork:
        """The networks, the way out and the firewall."""
        network, storage = self.config.network, self.config.storage
        args: dict[str, Any] = {
            **place(self.config, self.planned),
            "cidr": network.cidr,
            "zone": self.planned.zone,
            "egress": network.egress,
            "head": {
                "rendezvous_port": RENDEZVOUS_PORT,
                "metrics_port": METRICS_PORT,
                # It mounts the file system to upload the run record.
                "lustre": storage is not None and storage.kind == "lustre",
            }
            if self.planned.head
            else None,
            "private_services": storage is not None and storage.kind == "lustre",
            "flow_logs": network.flow_logs,
            "tags": self.planned.tags,
        }
        if self.planned.tpu is None:
            args["machine_type"] = self.planned.machine.name
        return TrainingNetwork(self.config.stack, typed_args(TrainingNetworkArgs, args), self.opts)

    def runs(self, key: Key) -> RunBucket:
        """The bucket of run records, which outlive the nodes."""
        keep = self.config.work.keep_runs
        args = {**place(self.config, self.planned), "kms_key_name": key, "keep": keep, "tags": self.planned.tags}
        return RunBucket(self.config.stack, typed_args(RunBucketArgs, args), self.opts)

    def head_files(self, key: Key) -> HeadFiles | None:
        """The bucket for files of `declare_file`; None if there are none."""
        if self.planned.tpu is None and not (self.planned.head and len(self.config.cluster.capacity) > 1):
            return None
        args = {**place(self.config, self.planned), "kms_key_name": key, "tags": self.planned.tags}
        return HeadFiles(self.config.stack, typed_args(HeadFilesArgs, args), self.opts)

    def logs(self, key: Key, runs: RunBucket) -> NodeLogs:
        """The log that the nodes write."""
        args = {
            **place(self.config, self.planned),
            "stack": self.config.stack,
            "run_bucket_name": runs.bucket_name,
            "retention_days": self.config.observe.log_days,
            "kms_key_name": key,
        }
        return NodeLogs(self.config.stack, typed_args(NodeLogsArgs, args), self.opts)

    def image(self, key: Key) -> Image:
        """The prebuilt image, or a repository and a build."""
        prebuilt = self.config.ready_image
        if prebuilt is not None:
            assert self.planned.repository_id is not None, "GcpPlan derives it from the image's name"
            return Image(pulumi.Output.from_input(prebuilt), self.planned.repository_id)
        args = {**place(self.config, self.planned), "kms_key_name": key, "tags": self.planned.tags}
        registry = ImageRegistry(self.config.stack, typed_args(ImageRegistryArgs, args), self.opts)
        assert self.found.token is not None, "look_up_all returns it if an image is built"
        login: RegistryLogin = {
            "address": registry.registry_host,
            "username": LOGIN_USER,
            "password": self.found.token,
        }
        flavour: Flavour = "cuda" if self.planned.tpu is None else "xla"
        image = build_image(self.config.stack, flavour, registry.repository_url, login, self.opts)
        return Image(image.image, registry.repository_id)

    def storage(self, network: TrainingNetwork, key: Key) -> LustreFileSystem | Filestore | None:
        """The shared file system, if any."""
        storage, name = self.config.storage, self.config.stack
        if storage is None:
            return None
        args: dict[str, Any] = {
            "project": self.planned.project,
            "zone": self.planned.zone,
            "capacity_gib": storage.capacity_gib,
            "network": network.vpc_id,
            "kms_key_name": key,
            "tags": self.planned.tags,
        }
        if storage.kind == "filestore":
            private = plan_network(self.config.network.cidr).private_cidr
            args |= {
                "tier": storage.tier or FILESTORE_TIER,
                "client_cidr": private,
                "client_tags": [network.fabric_security_group_id],
            }
            return Filestore(name, typed_args(FilestoreArgs, args), self.opts)
        args |= {
            "stack": name,
            "throughput_mbps_per_tib": storage.throughput_mbps_per_tib,
            # Only a head imports it; otherwise a node copies it with its own permissions.
            "source": storage.source if self.planned.head else None,
        }
        return LustreFileSystem(name, typed_args(LustreFileSystemArgs, args), self.opts)

    def member_key(self, key: Key) -> pulumi.Output[str]:
        """The secret with which the job's nodes authenticate to each other."""
        return self._secret("member-key", member_key(self.config.stack, self.config.work.member_key_refresh), key)

    def signing_key(self, pem: pulumi.Output[str], key: Key) -> pulumi.Output[str]:
        """The secret with which machines sign the run record."""
        return self._secret("signing-key", pem, key)

    def _secret(self, what: str, pem: pulumi.Output[str], key: Key) -> pulumi.Output[str]:
        args = {**place(self.config, self.planned), "pem": pem, "kms_key_name": key, "tags": self.planned.tags}
        name = f"{self.config.stack}-{what}"
        return StackSecret(name, typed_args(StackSecretArgs, args), self.opts).secret_id

    def group_tag(self) -> GroupTag | None:
        """The tag that identifies the stack's groups in IAM conditions; None for slices, which are in no group."""
        if self.planned.tpu is not None:
            return None
        args = {"project_number": self.project_number(), "stack": self.config.stack}
        return GroupTag(self.config.stack, typed_args(GroupTagArgs, args), self.opts)

    def node_identity(
        self,
        image: Image,
        runs: RunBucket,
        members: pulumi.Output[str] | None,
        signs: pulumi.Output[str] | None,
        group_tag: GroupTag | None,
    ) -> NodeIdentity:
        """The workers' service account."""
        storage = self.config.storage
        # Managed Lustre imports it itself: no machine reads the bucket.
        imported = storage is not None and storage.kind == "lustre" and self.planned.head
        return NodeIdentity(
            self.config.stack,
            {
                "project": self.planned.project,
                "stack": self.config.stack,
                "run_bucket_name": runs.bucket_name,
                "repository_id": image.repository_id,
                "data_source": storage.source if storage and not imported else None,
                "member_key_id": members,
                "signing_key_id": signs,
                "groups_condition": group_tag.condition if group_tag and self.config.work.terminate_when_done else None,
                "releases_slices": self.config.work.terminate_when_done and self.planned.tpu is not None,
            },
            self.opts,
        )

    def machine_images(self) -> pulumi.Output[dict[str, str]]:
        """The images of GPU nodes and head: from the stack file, or the newest of the family at the first `up`."""
        written = written_images(self.config, self.planned)
        newest = {what: image.after(self.services.project) for what, image in self.found.images.items()}
        if not newest:
            return pulumi.Output.from_input(written)
        kept = pinned(f"{self.config.stack}-images", newest, self.config.cluster.image_refresh)
        return kept.apply(lambda known: written | known)

    def head(
        self,
        network: TrainingNetwork,
        image: Image,
        runs: RunBucket,
        key: Key,
        images: pulumi.Output[dict[str, str]],
        user_data_inputs: UserDataInputs,
        group_tag: GroupTag | None,
    ) -> HeadNode:
        """The head node and its identity."""
        name, storage = self.config.stack, self.config.storage
        lustre = storage is not None and storage.kind == "lustre"
        identity = HeadIdentity(
            name,
            {
                "project": self.planned.project,
                "stack": name,
                "run_bucket_name": runs.bucket_name,
                "repository_id": image.repository_id,
                "groups_condition": group_tag.condition
                if group_tag and len(self.config.cluster.capacity) > 1
                else None,
                "files_bucket_name": user_data_inputs.head_files,
                "member_key_id": user_data_inputs.member_key,
                "signing_key_id": user_data_inputs.signing_key,
                "imports": storage is not None and lustre and storage.source is not None,
            },
            self.opts,
        )
        args = {
            **place(self.config, self.planned),
            "zone": self.planned.zone,
            "subnet_id": network.private_subnet_ids[0],
            "security_group_ids": [network.head_security_group_id],
            "service_account_email": identity.service_account_email,
            "user_data": head_user_data(self.config, self.planned, user_data_inputs),
            "host_name": head_host(self.config),
            "zone_id": network.private_zone_id,
            "machine_type": head_type(self.config),
            "image_id": images["head"],
            # The module of Lustre's client is unsigned.
            "secure_boot": not lustre,
            "kms_key_name": key,
            "tags": self.planned.tags,
        }
        return HeadNode(name, typed_args(HeadNodeArgs, args), self.opts)

    def budget(self, key: Key, nodes: Nodes, head: HeadNode | None, group_tag: GroupTag | None) -> Budget:
        """The monthly budget, with its stop if set."""
        budget, section = self.config.budget, self._own
        args: dict[str, Any] = {
            **place(self.config, self.planned),
            "project_number": self.project_number(),
            "billing_account": section.billing_account,
            "monthly_usd": budget.monthly_usd,
            "currency": section.currency,
            "monthly_amount": section.monthly_amount,
            "emails": list(budget.emails),
            "alert_percent": list(budget.alert_percent),
            "stop_at_percent": budget.stop_at_percent,
            **({"group_ids": nodes.group_ids, "groups_condition": group_tag.condition} if group_tag else {}),
            "head_ids": pulumi.Output.all(head.instance_id) if head else [],
            "tag_key": LABEL_KEY,
            "tag_value": self.config.stack,
            "kms_key_name": key,
            "grant_wait_sec": section.grant_wait_sec,
            "tags": self.planned.tags,
        }
        if nodes.queued_resource is not None:
            args["queued_resource_names"] = pulumi.Output.all(nodes.queued_resource)
            args["schedule_ids"] = pulumi.Output.all(nodes.schedule_id)
        if nodes.node_pool_ids is not None:
            args["node_pool_ids"] = nodes.node_pool_ids
        return Budget(self.config.stack, typed_args(BudgetArgs, args), self.opts)

    def observe(self, nodes: Nodes, logs: NodeLogs) -> Observability:
        """Alarms and the dashboard."""
        gpus, trains = self.planned.tpu is None, not self.planned.commands
        args = {
            **place(self.config, self.planned),
            "stack": self.config.stack,
            "log_name": logs.log_name,
            "group_names": nodes.group_names,
            "num_nodes": self.config.expected_nodes if gpus else 0,
            "emails": list(self.config.budget.emails),
            "steps_alarm_minutes": steps_alarm_minutes(self.config),
            "expect_gpu": gpus and trains,
            "tags": self.planned.tags,
        }
        return Observability(self.config.stack, typed_args(ObservabilityArgs, args), self.opts)

    def perimeter(self, nodes: Nodes, budget: Budget, observed: Observability) -> pulumi.Output[str] | None:
        """The full name of the perimeter, if any. It is created last and deleted first: for half an hour after a change
        services may refuse all calls, also those of `up`.
        """
        wanted, name, number = self._own.service_perimeter, self.config.stack, self.project_number()
        if wanted is None:
            return None
        if wanted.existing is not None:
            own = pulumi.ResourceOptions(provider=self.provider, depends_on=[self.services])
            return read_perimeter(name, wanted.access_policy, wanted.existing, number, own)
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
        return ServicePerimeter(name, typed_args(ServicePerimeterArgs, args), self.opts).perimeter_name
