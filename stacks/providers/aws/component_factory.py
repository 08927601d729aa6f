"""The components of a stack on AWS, one method each; arguments are what a component needs of the others."""

from dataclasses import dataclass
from typing import Any, Protocol

import pulumi

from gangway.components.aws.access import HeadZone, SecurityGroups
from gangway.components.aws.alarms import get_log_group
from gangway.components.aws.budget import Budget, CostTagActivation
from gangway.components.aws.identity import (
    EncryptionKey,
    HeadIdentity,
    NodeIdentity,
    SecretParameter,
    dns_suffix,
    partition_in,
)
from gangway.components.aws.launch import HeadNode
from gangway.components.aws.machine_image import MachineImage
from gangway.components.aws.monitoring import NodeLogs, Observability
from gangway.components.aws.network import TrainingNetwork
from gangway.components.aws.node_pool import EfaNodePool
from gangway.components.aws.storage import ImageRegistry, LustreFileSystem, RunBucket
from gangway.components.core.fields import Egress
from gangway.components.core.keys import member_key, munge_key
from gangway.components.core.lookup import pinned
from gangway.stacks.base.factory import Factory, Image
from gangway.stacks.base.kept import keep_text
from gangway.stacks.base.shared import head_host
from gangway.stacks.config.engine_settings import SlurmConfig
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.run_context import build_image
from gangway.stacks.providers.aws.lookups import Lookups
from gangway.stacks.providers.aws.plan import AwsPlan, get_head_ports, head_type
from gangway.stacks.providers.aws.settings import ExistingConfig, arn_parts, get_existing
from gangway.stacks.providers.aws.user_data import Names, head_user_data, image_script

# The Deep Learning AMI with NVIDIA's driver, EFA and Docker.
NEWEST_AMI = "resolve:ssm:/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
TAG_KEY = "gangway:stack"
EXPORT_WAIT_MINUTES = 120.0  # of `destroy` for the last exports to S3; only the file system is billed
Key = pulumi.Output[str] | None


class Network(Protocol):
    """What TrainingNetwork outputs, of a new or an existing network."""

    @property
    def private_subnet_ids(self) -> pulumi.Output[list[str]]: ...  # noqa: D102 - as the class says
    @property
    def fabric_security_group_id(self) -> pulumi.Output[str]: ...  # noqa: D102
    @property
    def head_security_group_id(self) -> pulumi.Output[str]: ...  # noqa: D102
    @property
    def private_zone_id(self) -> pulumi.Output[str]: ...  # noqa: D102


@dataclass(frozen=True)
class ExistingNetwork:
    """The given subnets, with given groups and zone or the stack's own."""

    private_subnet_ids: pulumi.Output[list[str]]
    fabric_security_group_id: pulumi.Output[str]
    head_security_group_id: pulumi.Output[str]
    private_zone_id: pulumi.Output[str]


@dataclass(frozen=True)
class Bucket:
    """The run bucket."""

    bucket_name: pulumi.Output[str]
    bucket_arn: pulumi.Output[str]


@dataclass(frozen=True)
class FileSystem:
    """The shared file system."""

    dns_name: pulumi.Output[str]
    mount_name: pulumi.Output[str]


@dataclass(frozen=True)
class Identity:
    """The permissions of a machine."""

    instance_profile_arn: pulumi.Output[str]


def component_options(config: StackConfig, provider: pulumi.ProviderResource) -> pulumi.ResourceOptions:
    """The options of all components: each role gets the given permissions boundary."""
    boundary = get_existing(config).permissions_boundary_arn

    def limit_role(args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
        if args.type_ != "aws:iam/role:Role":
            return None
        return pulumi.ResourceTransformationResult({**args.props, "permissions_boundary": boundary}, args.opts)

    limited: list[pulumi.ResourceTransformation] | None = None if boundary is None else [limit_role]
    return pulumi.ResourceOptions(providers={"aws": provider}, transformations=limited)


def dns_name(file_system: str, region: str) -> str:
    """The name of a file system (FSx API, `DNSName`).

    >>> dns_name("fs-0123456789abcdef0", "us-east-2")
    'fs-0123456789abcdef0.fsx.us-east-2.amazonaws.com'
    """
    return f"{file_system}.fsx.{region}.{dns_suffix(region)}"


def _known(value: str) -> pulumi.Output[str]:
    return pulumi.Output.from_input(value)


@dataclass(frozen=True)
class ComponentFactory(Factory[AwsPlan]):
    """One method per component; `build` connects them."""

    found: Lookups

    @property
    def existing(self) -> ExistingConfig:
        """What the stack file provides."""
        return get_existing(self.config)

    def key(self) -> Key:
        """The stack's key; None with AWS's keys."""
        if self.existing.kms_key_arn is not None:
            return _known(self.existing.kms_key_arn)
        if self.config.encryption == "provider-key":
            return None
        return self.declare(EncryptionKey, {"region": self.config.region, "tags": self.planned.tags}).key_arn

    def network(self, runs: Bucket, repository_arn: pulumi.Input[str] | None, key: Key) -> Network:
        """The network, the way out and the security groups."""
        if self.existing.vpc_id is not None:
            return self._existing_network(self.existing.vpc_id)
        network, ports = self.config.network, get_head_ports(self.config, self.planned)
        # A NAT gateway opens the whole internet, and packages of the region come through it.
        closed = network.egress is Egress.ENDPOINTS
        args = {
            "cidr": network.cidr,
            "region": self.config.region,
            "zones": list(self.planned.zones),
            "egress": network.egress,
            "head": ports.job,
            "slurm": ports.slurm,
            # The nodes' only bucket: they read the data set from the file system.
            "s3_bucket_arns": [runs.bucket_arn] if closed else None,
            "repository_arn": repository_arn,
            "dns_firewall": network.dns_firewall,
            "flow_logs": network.flow_logs,
            "kms_key_arn": key,
            "tags": self.planned.tags,
        }
        return self.declare(TrainingNetwork, args)

    def _existing_network(self, vpc_id: str) -> ExistingNetwork:
        given, tags, nothing = self.existing, self.planned.tags, _known("")
        ports = get_head_ports(self.config, self.planned)
        if given.security_groups is not None:
            fabric, head = _known(given.security_groups.fabric), _known(given.security_groups.head or "")
        else:
            args = {"vpc_id": vpc_id, "head": ports.job, "slurm": ports.slurm, "tags": tags}
            groups = self.declare(SecurityGroups, args)
            fabric, head = groups.fabric_security_group_id, groups.head_security_group_id
        zone = nothing if given.private_zone_id is None else _known(given.private_zone_id)
        if self.planned.head and given.private_zone_id is None:
            zone = self.declare(HeadZone, {"vpc_id": vpc_id, "region": self.config.region, "tags": tags}).zone_id
        subnets = pulumi.Output.from_input([given.subnets[name] for name in self.planned.zones])
        return ExistingNetwork(subnets, fabric, head, zone)

    def runs(self, key: Key) -> Bucket:
        """The bucket of run records, which outlive the nodes."""
        if (name := self.existing.run_bucket) is not None:
            return Bucket(_known(name), _known(f"arn:{partition_in(self.config.region)}:s3:::{name}"))
        keep = self.config.work.keep_runs
        made = RunBucket(self.config.stack, {"kms_key_arn": key, "keep": keep, "tags": self.planned.tags}, self.opts)
        return Bucket(made.bucket_name, made.bucket_arn)

    def logs(self, key: Key) -> NodeLogs:
        """The log group that the nodes write."""
        args = {
            "stack": self.config.stack,
            "retention_days": self.config.observe.log_days,
            "log_group_arn": self.existing.log_group_arn,
            "kms_key_arn": key,
            "tags": self.planned.tags,
        }
        return self.declare(NodeLogs, args)

    def image(self, key: Key) -> Image:
        """The prebuilt image, or a repository and a build."""
        if (ready := self.ready_image(self.planned.repository_arn)) is not None:
            return ready
        url, arn = self._repository(key)
        assert self.found.login is not None, "look_up_all returns it if an image is built"
        image = build_image(self.config.stack, self.planned.flavour, url, self.found.login, self.opts)
        return Image(image.image, arn)

    def _repository(self, key: Key) -> tuple[pulumi.Output[str], pulumi.Output[str]]:
        """URL and ARN of the repository."""
        if (arn := self.existing.repository_arn) is not None:
            region, account, resource = arn_parts(arn)
            url = f"{account}.dkr.ecr.{region}.{dns_suffix(region)}/{resource.removeprefix('repository/')}"
            return _known(url), _known(arn)
        registry = ImageRegistry(self.config.stack, {"kms_key_arn": key, "tags": self.planned.tags}, self.opts)
        return registry.repository_url, registry.repository_arn

    def machine_images(self) -> pulumi.Output[dict[str, str]]:
        """The AMIs of nodes and head: from the stack file, or the newest at the first `up`."""
        cluster = self.config.cluster
        written = {"nodes": cluster.image_id} if cluster.image_id else {}
        if not self.found.images:
            return pulumi.Output.from_input(written)
        kept = pinned(f"{self.config.stack}-images", self.found.images, cluster.image_refresh)
        return kept.apply(lambda known: known | written)

    def node_images(
        self,
        images: pulumi.Output[dict[str, str]],
        network: Network,
        key: Key,
        container: Image | None = None,
    ) -> pulumi.Output[dict[str, str]]:
        """`images`, with the machine image of the nodes, if the stack builds one, instead of its base."""
        cluster = self.config.cluster
        if cluster.machine_image is None:
            return images
        reference = container.reference if container else pulumi.Output.from_input("")
        script = reference.apply(lambda known: image_script(self.config, self.planned, known))
        args = {
            "base_image_id": images["nodes"],
            "script": keep_text(self.config, "machine-image", script, reference),
            "subnet_id": network.private_subnet_ids[0],
            "security_group_ids": [network.fabric_security_group_id],
            "repository_arn": container.repository if container else None,
            "root_volume_gib": cluster.root_volume_gib,
            "root_device_name": cluster.root_device_name,
            "kms_key_arn": key,
            "keep": cluster.machine_image.keep,
            "region": self.config.region,
            "stack": self.config.stack,
            "tags": self.planned.tags,
        }
        built = self.declare(MachineImage, args)
        return pulumi.Output.all(images, built.image_id).apply(lambda known: {**known[0], "nodes": known[1]})

    def lustre(self, network: Network, runs: Bucket, key: Key) -> FileSystem | None:
        """The shared file system, if any."""
        storage, name = self.config.storage, self.config.stack
        if storage is None:
            return None
        if (given := self.existing.file_system) is not None:
            return FileSystem(_known(dns_name(given.id, self.config.region)), _known(given.mount_name))
        args = {
            "capacity_gib": storage.capacity_gib,
            "throughput_mbps_per_tib": storage.throughput_mbps_per_tib,
            "deployment": storage.deployment,
            "efa": storage.efa,
            "metadata_iops": storage.metadata_iops,
            "subnet_id": network.private_subnet_ids[0],
            "security_group_id": network.fabric_security_group_id,
            "source": storage.source,
            # Next to the records that nodes upload, so that neither overwrites the other.
            "runs": runs.bucket_name.apply(lambda bucket: f"s3://{bucket}/{name}/fsx") if storage.export_runs else None,
            "export_wait_minutes": EXPORT_WAIT_MINUTES,
            "region": self.config.region,
            "kms_key_arn": key if storage.deployment == "persistent" else None,
            "log": True,
            "tags": self.planned.tags,
        }
        made = self.declare(LustreFileSystem, args)
        return FileSystem(made.dns_name, made.mount_name)

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
        return self.declare(SecretParameter, args, f"-{what}")

    def rights(
        self,
        image: Image,
        runs: Bucket,
        logs: NodeLogs,
        key: Key,
        members: SecretParameter | None,
        signing: SecretParameter,
    ) -> dict[str, Any]:
        """The permissions of every machine."""
        return {
            "run_bucket_arn": runs.bucket_arn,
            "repository_arn": image.repository,
            "stack": self.config.stack,
            "log_group_arn": logs.log_group_arn,
            "kms_key_arn": key,
            "member_key_arn": members.arn if members else None,
            "signing_key_arn": signing.arn,
            "tags": self.planned.tags,
        }

    def node_identity(self, rights: dict[str, Any]) -> Identity:
        """The workers' role."""
        if (given := self.existing.instance_profiles.node) is not None:
            return Identity(_known(given))
        made = self.declare(NodeIdentity, {**rights, "self_termination": self.config.nodes_leave})
        return Identity(made.instance_profile_arn)

    def head_identity(self, rights: dict[str, Any]) -> Identity:
        """The head's role."""
        if (given := self.existing.instance_profiles.head) is not None:
            return Identity(_known(given))
        return Identity(self.declare(HeadIdentity, rights).instance_profile_arn)

    def pool(
        self,
        network: Network,
        identity: Identity,
        images: pulumi.Output[dict[str, str]],
        user_data: pulumi.Output[str],
        key: Key,
    ) -> EfaNodePool:
        """The workers."""
        cluster, by_slurm = self.config.cluster, isinstance(self.config.engine, SlurmConfig)
        args = {
            "machine_type": self.planned.machine.name,
            **self.node_args,
            # Slurm starts its nodes itself: it would not know one that the group started.
            **({"num_nodes_min": 0} if by_slurm else {}),
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
        }
        return self.declare(EfaNodePool, args)

    def head(
        self,
        network: Network,
        rights: dict[str, Any],
        key: Key,
        images: pulumi.Output[dict[str, str]],
        names: pulumi.Output[Names],
    ) -> HeadNode:
        """The head node and its identity."""
        args = {
            "subnet_id": network.private_subnet_ids[0],
            "security_group_ids": [network.head_security_group_id],
            "instance_profile_arn": self.head_identity(rights).instance_profile_arn,
            "user_data": keep_text(self.config, "head", head_user_data(self.config, names), names),
            "host_name": head_host(self.config),
            "zone_id": network.private_zone_id,
            "machine_type": head_type(self.config),
            "image_id": images["head"],
            "kms_key_arn": key,
            "tags": self.planned.tags,
        }
        return self.declare(HeadNode, args)

    def budget(self, key: Key) -> Budget:
        """The monthly budget, with its stop if set."""
        if self.config.budget.activate_tag:
            self.declare(CostTagActivation, {"tag_keys": [TAG_KEY]})
        args = {
            **self.budget_args,
            "tag_key": TAG_KEY,
            "kms_key_arn": key,
            "tags": self.planned.tags,
        }
        return self.declare(Budget, args)

    def observe(self, pool: EfaNodePool, key: Key) -> Observability:
        """Alarms and the dashboard."""
        given = self.existing.log_group_arn
        args = {
            **({} if given is None else {"log_group": get_log_group(given)}),
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
        }
        return self.declare(Observability, args)
