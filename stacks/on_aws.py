"""A stack on AWS: the components of `components.aws`, wired together from one StackConfig.

What can be known without a resource is `stacks.aws_plan`, so that a mistake is found before anything is declared; what
the machines read at boot is `stacks.aws_boot`. Other providers get modules of the same shapes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pulumi
import pulumi_aws as aws

from components.aws.budget import Budget, CostTagActivation
from components.aws.encryption import EncryptionKey
from components.aws.fabric import count_efa
from components.aws.head_node import HeadNode
from components.aws.identity import HeadIdentity, NodeIdentity
from components.aws.network import TrainingNetwork
from components.aws.node_pool import CapacityRungArgs, EfaNodePool
from components.aws.observability import NodeLogs, Observability
from components.aws.order import after
from components.aws.pricing import Declared, price_resources
from components.aws.registry import ImageRegistry
from components.aws.storage import LustreFileSystem, RunBucket
from components.catalog import load
from components.cost import CostComponent
from components.image import TrainerImage
from stacks.aws_boot import Boot, check_user_data, head_user_data, node_user_data
from stacks.aws_findings import findings
from stacks.aws_plan import METRICS_PORT, RENDEZVOUS_PORT, AwsPlan, head_host, job_spec, plan, purchases
from stacks.config import StackConfig
from stacks.trainer_image import CONTEXT, content_tag, dockerfile_for

__all__ = ["AwsPlan", "build", "findings", "plan", "price"]

# The Deep Learning AMI with NVIDIA's driver, EFA and Docker; EC2 resolves the parameter at launch.
NEWEST_AMI = "resolve:ssm:/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
TAG_KEY = "gangway:stack"


def price(config: StackConfig, resources: Sequence[Declared]) -> list[CostComponent]:
    """The bill of the declared resources, and what `up` buys at once."""
    return [*price_resources(resources, load(), config.region), *purchases(config)]


def build(config: StackConfig) -> Mapping[str, pulumi.Input[Any]]:
    """Declares the stack's resources and returns what it exports."""
    planned = plan(config)
    check_user_data(config, planned)
    provider = aws.Provider(config.stack, region=config.region)
    stack = _Stack(config, planned, provider, pulumi.ResourceOptions(providers={"aws": provider}))
    key = stack.key()
    network = stack.network(key)
    runs = RunBucket(config.stack, {"kms_key_arn": key, "tags": planned.tags}, stack.opts)
    logs = stack.logs(key)
    image = stack.image(key)
    lustre = stack.lustre(network, runs, key)
    job = image.reference.apply(lambda reference: job_spec(config, planned, reference))
    boot = Boot(job, runs.bucket_name, logs.log_group_name, lustre)
    identity = stack.node_identity(image, runs, logs, key)
    head = stack.head(network, image, runs, logs, key, boot) if planned.head else None
    user_data = node_user_data(config, planned, boot)
    # Workers agree on their last checkpoint over the head node's store, so it has to outlive them.
    pool = stack.pool(network, identity, after(user_data, head.host) if head else user_data, key)
    budget = stack.budget(key)
    observed = stack.observe(pool, key)
    return {
        "job": job.apply(lambda spec: spec.model_dump(mode="json")),
        "image": image.reference,
        "run_bucket": runs.bucket_name,
        "group_names": pool.group_names,
        "head_instance_id": head.instance_id if head else None,
        "lustre_dns_name": lustre.dns_name if lustre else None,
        "log_group": logs.log_group_name,
        "dashboard": observed.dashboard_name,
        "alarm_topic_arn": observed.topic_arn,
        "budget_topic_arn": budget.topic_arn,
    }


@dataclass(frozen=True)
class _Image:
    """The trainer's image by digest, and the repository nodes may pull from."""

    reference: pulumi.Output[str]
    repository_arn: pulumi.Input[str]


Key = pulumi.Output[str] | None


@dataclass(frozen=True)
class _Stack:
    """One method for each part; what parts need of each other stands in `build`."""

    config: StackConfig
    planned: AwsPlan
    provider: aws.Provider
    opts: pulumi.ResourceOptions

    def key(self) -> Key:
        if self.config.encryption == "provider-key":
            return None
        args = {"region": self.config.region, "tags": self.planned.tags}
        return EncryptionKey(self.config.stack, cast("Any", args), self.opts).key_arn

    def network(self, key: Key) -> TrainingNetwork:
        network = self.config.network
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
                    # It mounts the file system to put the run record.
                    "lustre": self.config.storage is not None,
                }
                if self.planned.head
                else None,
                "flow_logs": network.flow_logs,
                "kms_key_arn": key,
                "tags": self.planned.tags,
            },
            self.opts,
        )

    def logs(self, key: Key) -> NodeLogs:
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

    def image(self, key: Key) -> _Image:
        """The prebuilt image, or a repository and the build that fills it."""
        prebuilt = self.config.image.prebuilt
        if prebuilt is not None:
            assert self.planned.repository_arn is not None, "AwsPlan has taken it from the image's name"
            return _Image(pulumi.Output.from_input(prebuilt), self.planned.repository_arn)
        registry = ImageRegistry(self.config.stack, {"kms_key_arn": key, "tags": self.planned.tags}, self.opts)
        login = aws.ecr.get_authorization_token_output(opts=pulumi.InvokeOutputOptions(provider=self.provider))
        dockerfile = dockerfile_for("cuda-efa" if count_efa(self.planned.machine) else "cuda")
        image = TrainerImage(
            self.config.stack,
            {
                "repository_url": registry.repository_url,
                "registry": {
                    "address": login.proxy_endpoint,
                    "username": login.user_name,
                    "password": login.password,
                },
                "dockerfile": dockerfile,
                "context": CONTEXT,
                "platform": "linux/amd64",
                "tag": content_tag(dockerfile),
            },
            self.opts,
        )
        return _Image(image.image, registry.repository_arn)

    def lustre(self, network: TrainingNetwork, runs: RunBucket, key: Key) -> LustreFileSystem | None:
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
                # Beside the records that the nodes put, so that neither overwrites the other.
                "runs": runs.bucket_name.apply(lambda bucket: f"s3://{bucket}/{name}/fsx")
                if storage.export_runs
                else None,
                "kms_key_arn": key if storage.deployment == "persistent" else None,
                "log": True,
                "tags": self.planned.tags,
            },
            self.opts,
        )

    def node_identity(self, image: _Image, runs: RunBucket, logs: NodeLogs, key: Key) -> NodeIdentity:
        return NodeIdentity(
            self.config.stack,
            {
                "run_bucket_arn": runs.bucket_arn,
                "repository_arn": image.repository_arn,
                "stack": self.config.stack,
                "data_source": self.config.storage.source if self.config.storage else None,
                "log_group_arn": logs.log_group_arn,
                "kms_key_arn": key,
                "self_termination": self.config.job.terminate_when_done,
                "tags": self.planned.tags,
            },
            self.opts,
        )

    def pool(
        self, network: TrainingNetwork, identity: NodeIdentity, user_data: pulumi.Output[str], key: Key
    ) -> EfaNodePool:
        cluster = self.config.cluster
        return EfaNodePool(
            self.config.stack,
            {
                "machine_type": self.planned.machine.name,
                "num_nodes_min": cluster.nodes.min,
                "num_nodes_max": cluster.nodes.max,
                "capacity": [
                    cast("CapacityRungArgs", rung.model_dump(mode="json", exclude_none=True))
                    for rung in cluster.capacity
                ],
                "subnet_ids": network.private_subnet_ids,
                "zones": list(self.planned.zones),
                "security_group_ids": [network.fabric_security_group_id],
                "image_id": cluster.image_id or NEWEST_AMI,
                "instance_profile_arn": identity.instance_profile_arn,
                "user_data": user_data,
                "root_volume_gib": cluster.root_volume_gib,
                "root_device_name": cluster.root_device_name,
                "kms_key_arn": key,
                "tags": self.planned.tags,
            },
            self.opts,
        )

    def head(
        self, network: TrainingNetwork, image: _Image, runs: RunBucket, logs: NodeLogs, key: Key, boot: Boot
    ) -> HeadNode:
        name, tags = self.config.stack, self.planned.tags
        identity = HeadIdentity(
            name,
            {
                "run_bucket_arn": runs.bucket_arn,
                "repository_arn": image.repository_arn,
                "stack": name,
                "log_group_arn": logs.log_group_arn,
                "kms_key_arn": key,
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
                "user_data": head_user_data(self.config, boot),
                "host_name": head_host(self.config),
                "zone_id": network.private_zone_id,
                "machine_type": self.config.head.machine_type,
                "kms_key_arn": key,
                "tags": tags,
            },
            self.opts,
        )

    def budget(self, key: Key) -> Budget:
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
        return Observability(
            self.config.stack,
            {
                "stack": self.config.stack,
                "region": self.config.region,
                "group_names": pool.group_names,
                "emails": list(self.config.budget.emails),
                "kms_key_arn": key,
                "steps_alarm_minutes": self.config.observe.no_steps_minutes,
                "expect_gpu": self.planned.machine.backend == "nccl",
                "tags": self.planned.tags,
            },
            self.opts,
        )
