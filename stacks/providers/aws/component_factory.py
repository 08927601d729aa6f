"""The components of a stack on AWS, one method each; arguments are what a component needs of the others."""

from dataclasses import dataclass
from typing import cast

import pulumi

from gangway.components.aws.budget import Budget, CostTagActivation
from gangway.components.aws.identity import (
    EncryptionKey,
    EncryptionKeyArgs,
    HeadIdentity,
    NodeIdentity,
    SecretParameter,
    SecretParameterArgs,
)
from gangway.components.aws.launch import HeadNode, count_efa
from gangway.components.aws.monitoring import NodeLogs, Observability
from gangway.components.aws.network import TrainingNetwork
from gangway.components.aws.node_pool import CapacityRungArgs, EfaNodePool
from gangway.components.aws.slurm import SlurmIdentity
from gangway.components.aws.storage import ImageRegistry, LustreFileSystem, RunBucket
from gangway.components.core.fields import Egress
from gangway.components.core.member_key import member_key, munge_key
from gangway.components.core.network import SlurmPortsArgs
from gangway.components.core.pinned import pinned
from gangway.images.specs import Flavour
from gangway.stacks.base.shared import METRICS_PORT, RENDEZVOUS_PORT, head_host, typed_args
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.run_context import build_image
from gangway.stacks.providers.aws.lookups import Lookups
from gangway.stacks.providers.aws.plan import AwsPlan, head_type
from gangway.stacks.providers.aws.user_data import UserDataInputs, head_user_data

# The Deep Learning AMI with NVIDIA's driver, EFA and Docker.
NEWEST_AMI = "resolve:ssm:/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
TAG_KEY = "gangway:stack"
EXPORT_WAIT_MINUTES = 120.0
"""How long `destroy` waits for the last exports to S3; meanwhile the file system is billed, the nodes are not."""
Key = pulumi.Output[str] | None


@dataclass(frozen=True)
class Image:
    """The trainer's image by digest, and the repository nodes may pull from."""

    reference: pulumi.Output[str]
    repository_arn: pulumi.Input[str]


@dataclass(frozen=True)
class ComponentFactory:
    """One method per component; `build` connects them."""

    config: StackConfig
    planned: AwsPlan
    found: Lookups
    opts: pulumi.ResourceOptions

    def key(self) -> Key:
        """The stack's key; None with AWS's keys."""
        if self.config.encryption == "provider-key":
            return None
        args = {"region": self.config.region, "tags": self.planned.tags}
        return EncryptionKey(self.config.stack, typed_args(EncryptionKeyArgs, args), self.opts).key_arn

    def network(
        self, runs: RunBucket, repository_arn: pulumi.Input[str] | None, key: Key, slurm: SlurmPortsArgs | None = None
    ) -> TrainingNetwork:
        """The network, the way out and the security groups."""
        network = self.config.network
        # A NAT gateway opens the whole internet, and packages of the region come through it.
        closed = network.egress is Egress.ENDPOINTS
        return TrainingNetwork(
            self.config.stack,
            {
                "cidr": network.cidr,
                "region": self.config.region,
                "zones": list(self.planned.zones),
                "egress": network.egress,
                "head": {
                    "rendezvous_port": RENDEZVOUS_PORT,
                    "metrics_port": METRICS_PORT,
                    # It mounts the file system to upload the run record; a command leaves none.
                    "lustre": self.config.storage is not None and self.config.trains,
                }
                if self.planned.head and not slurm
                else None,
                "slurm": slurm,
                # The nodes' only bucket: they read the data set from the file system.
                "s3_bucket_arns": [runs.bucket_arn] if closed else None,
                "repository_arn": repository_arn,
                "dns_firewall": network.dns_firewall,
                "flow_logs": network.flow_logs,
                "kms_key_arn": key,
                "tags": self.planned.tags,
            },
            self.opts,
        )

    def runs(self, key: Key) -> RunBucket:
        """The bucket of run records, which outlive the nodes."""
        keep = self.config.work.keep_runs
        return RunBucket(self.config.stack, {"kms_key_arn": key, "keep": keep, "tags": self.planned.tags}, self.opts)

    def logs(self, key: Key) -> NodeLogs:
        """The log group that the nodes write."""
        return NodeLogs(
            self.config.stack,
            {
                "stack": self.config.stack,
                "retention_days": self.config.observe.log_days,
                "kms_key_arn": key,
                "tags": self.planned.tags,
            },
            self.opts,
        )

    def image(self, key: Key) -> Image:
        """The prebuilt image, or a repository and a build."""
        prebuilt = self.config.ready_image
        if prebuilt is not None:
            assert self.planned.repository_arn is not None, "AwsPlan derives it from the image's name"
            return Image(pulumi.Output.from_input(prebuilt), self.planned.repository_arn)
        registry = ImageRegistry(self.config.stack, {"kms_key_arn": key, "tags": self.planned.tags}, self.opts)
        assert self.found.login is not None, "look_up_all returns it if an image is built"
        flavour: Flavour = "cuda-efa" if count_efa(self.planned.machine) else "cuda"
        image = build_image(self.config.stack, flavour, registry.repository_url, self.found.login, self.opts)
        return Image(image.image, registry.repository_arn)

    def machine_images(self) -> pulumi.Output[dict[str, str]]:
        """The AMIs of nodes and head: from the stack file, or the newest at the first `up`."""
        cluster = self.config.cluster
        written = {"nodes": cluster.image_id} if cluster.image_id else {}
        if not self.found.images:
            return pulumi.Output.from_input(written)
        kept = pinned(f"{self.config.stack}-images", self.found.images, cluster.image_refresh)
        return kept.apply(lambda known: known | written)

    def lustre(self, network: TrainingNetwork, runs: RunBucket, key: Key) -> LustreFileSystem | None:
        """The shared file system, if any."""
        storage, name = self.config.storage, self.config.stack
        if storage is None:
            return None
        return LustreFileSystem(
            name,
            {
                "capacity_gib": storage.capacity_gib,
                "throughput_mbps_per_tib": storage.throughput_mbps_per_tib,
                "deployment": storage.deployment,
                "efa": storage.efa,
                "metadata_iops": storage.metadata_iops,
                "subnet_id": network.private_subnet_ids[0],
                "security_group_id": network.fabric_security_group_id,
                "source": storage.source,
                # Next to the records that nodes upload, so that neither overwrites the other.
                "runs": runs.bucket_name.apply(lambda bucket: f"s3://{bucket}/{name}/fsx")
                if storage.export_runs
                else None,
                "export_wait_minutes": EXPORT_WAIT_MINUTES,
                "region": self.config.region,
                "kms_key_arn": key if storage.deployment == "persistent" else None,
                "log": True,
                "tags": self.planned.tags,
            },
            self.opts,
        )

    def member_key(self, key: Key) -> SecretParameter:
        """The key with which the job's nodes authenticate to each other."""
        return self._secret("member-key", member_key(self.config.stack, self.config.work.member_key_refresh), key)

    def signing_key(self, pem: pulumi.Output[str], key: Key) -> SecretParameter:
        """The key with which machines sign the run record."""
        return self._secret("signing-key", pem, key)

    def munge_key(self, key: Key) -> SecretParameter:
        """The key with which the machines of a Slurm cluster authenticate to each other."""
        return self._secret("munge-key", munge_key(self.config.stack), key)

    def _secret(self, what: str, pem: pulumi.Output[str], key: Key) -> SecretParameter:
        stack, tags = self.config.stack, self.planned.tags
        args = {"what": what, "pem": pem, "stack": stack, "kms_key_arn": key, "tags": tags}
        return SecretParameter(f"{stack}-{what}", typed_args(SecretParameterArgs, args), self.opts)

    def node_identity(
        self,
        image: Image,
        runs: RunBucket,
        logs: NodeLogs,
        key: Key,
        members: SecretParameter | None,
        signing: SecretParameter,
    ) -> NodeIdentity:
        """The workers' role."""
        return NodeIdentity(
            self.config.stack,
            {
                "run_bucket_arn": runs.bucket_arn,
                "repository_arn": image.repository_arn,
                "stack": self.config.stack,
                "log_group_arn": logs.log_group_arn,
                "kms_key_arn": key,
                "member_key_arn": members.arn if members else None,
                "signing_key_arn": signing.arn,
                "self_termination": self.config.work.terminate_when_done,
                "tags": self.planned.tags,
            },
            self.opts,
        )

    def pool(
        self,
        network: TrainingNetwork,
        identity: NodeIdentity | SlurmIdentity,
        images: pulumi.Output[dict[str, str]],
        user_data: pulumi.Output[str],
        key: Key,
    ) -> EfaNodePool:
        """The workers."""
        cluster, by_slurm = self.config.cluster, isinstance(identity, SlurmIdentity)
        return EfaNodePool(
            self.config.stack,
            {
                "machine_type": self.planned.machine.name,
                # Slurm starts its nodes itself: it would not know one that the group started.
                "num_nodes_min": 0 if by_slurm else cluster.nodes.min,
                "num_nodes_max": cluster.nodes.max,
                "capacity": [
                    cast("CapacityRungArgs", rung.model_dump(mode="json", exclude_none=True))
                    for rung in cluster.capacity
                ],
                "subnet_ids": network.private_subnet_ids,
                "zones": list(self.planned.zones),
                "security_group_ids": [network.fabric_security_group_id],
                "image_id": images["nodes"],
                "instance_profile_arn": identity.instance_profile_arn,
                "user_data": user_data,
                "root_volume_gib": cluster.root_volume_gib,
                "root_device_name": cluster.root_device_name,
                "kms_key_arn": key,
                "sized_by_queue": by_slurm,
                "named_by_tag": by_slurm,
                "tags": self.planned.tags,
            },
            self.opts,
        )

    def head(
        self,
        network: TrainingNetwork,
        image: Image,
        runs: RunBucket,
        logs: NodeLogs,
        key: Key,
        images: pulumi.Output[dict[str, str]],
        user_data_inputs: UserDataInputs,
        members: SecretParameter | None,
        signing: SecretParameter,
    ) -> HeadNode:
        """The head node and its identity."""
        name, tags = self.config.stack, self.planned.tags
        identity = HeadIdentity(
            name,
            {
                "run_bucket_arn": runs.bucket_arn,
                "repository_arn": image.repository_arn,
                "stack": name,
                "log_group_arn": logs.log_group_arn,
                "kms_key_arn": key,
                "member_key_arn": members.arn if members else None,
                "signing_key_arn": signing.arn,
                "tags": tags,
            },
            self.opts,
        )
        return HeadNode(
            name,
            {
                "subnet_id": network.private_subnet_ids[0],
                "security_group_ids": [network.head_security_group_id],
                "instance_profile_arn": identity.instance_profile_arn,
                "user_data": head_user_data(self.config, user_data_inputs),
                "host_name": head_host(self.config),
                "zone_id": network.private_zone_id,
                "machine_type": head_type(self.config),
                "image_id": images["head"],
                "kms_key_arn": key,
                "tags": tags,
            },
            self.opts,
        )

    def budget(self, key: Key) -> Budget:
        """The monthly budget, with its stop if set."""
        budget, name = self.config.budget, self.config.stack
        if budget.activate_tag:
            CostTagActivation(name, {"tag_keys": [TAG_KEY]}, self.opts)
        return Budget(
            name,
            {
                "monthly_usd": budget.monthly_usd,
                "emails": list(budget.emails),
                "alert_percent": list(budget.alert_percent),
                "stop_at_percent": budget.stop_at_percent,
                "tag_key": TAG_KEY,
                "tag_value": name,
                "kms_key_arn": key,
                "tags": self.planned.tags,
            },
            self.opts,
        )

    def observe(self, pool: EfaNodePool, key: Key) -> Observability:
        """Alarms and the dashboard."""
        return Observability(
            self.config.stack,
            {
                "stack": self.config.stack,
                "region": self.config.region,
                "group_names": pool.group_names,
                "emails": list(self.config.budget.emails),
                "kms_key_arn": key,
                # Neither a custom command nor a queue reports steps.
                "steps_alarm_minutes": self.config.observe.no_steps_minutes if self.config.trains else None,
                # Only the trainer reports utilisation; a queue may be empty.
                "expect_gpu": self.planned.machine.backend == "nccl" and self.config.job is not None,
                "tags": self.planned.tags,
            },
            self.opts,
        )
