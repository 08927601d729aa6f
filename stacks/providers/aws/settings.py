"""The section gangway:aws: resources that exist already; and the common settings on AWS."""

import re
from collections.abc import Iterator
from shlex import quote
from typing import Annotated

from pydantic import Field

from gangway.components.core.findings import InputError
from gangway.stacks.config.engine_settings import KubernetesConfig
from gangway.stacks.config.provider_settings import Account, ImageForm, ObjectStore, OwnSection, ProviderSettings
from gangway.stacks.config.section import Section
from gangway.stacks.config.stack_config import StackConfig

EXISTING = "gangway:aws.existing"
_HEX = "[0-9a-f]{8}([0-9a-f]{9})?"  # EC2's ids have 17 digits, old ones 8
_SUBNET = rf"^subnet-{_HEX}$"
_GROUP = rf"^sg-{_HEX}$"
_PROFILE = r"^arn:aws[a-z-]*:iam::[0-9]{12}:instance-profile/[A-Za-z0-9+=,.@_/-]+$"
_ACCOUNT = "123456789012"
_PROFILE_EXAMPLES = [f"arn:aws:iam::{_ACCOUNT}:instance-profile/gan-node"]


class SecurityGroupsConfig(Section):
    """Security groups that exist already.

    Attributes:
        fabric: of the nodes; it must admit all traffic from and to itself.
        head: of the head node.
    """

    fabric: str = Field(pattern=_GROUP, examples=["sg-0123456789abcdef0"])
    head: str | None = Field(default=None, pattern=_GROUP, examples=["sg-0123456789abcdef1"])


class FileSystemConfig(Section):
    """An FSx for Lustre file system that exists already; `gangway:storage` describes it.

    Attributes:
        id: its id.
        mount_name: its mount name.
    """

    id: str = Field(pattern=r"^fs-[0-9a-f]{17}$", examples=["fs-0123456789abcdef0"])
    mount_name: str = Field(
        pattern=r"^[A-Za-z0-9_-]{1,8}$",
        examples=["abcdefgh"],
        json_schema_extra={
            "value_source": "`aws fsx describe-file-systems --query 'FileSystems[].LustreConfiguration.MountName'`"
        },
    )


class InstanceProfilesConfig(Section):
    """Instance profiles that exist already. Their roles get no policy of the stack.

    Attributes:
        node: ARN of the nodes' profile.
        head: ARN of the head node's profile.
    """

    node: str | None = Field(default=None, pattern=_PROFILE, examples=_PROFILE_EXAMPLES)
    head: str | None = Field(default=None, pattern=_PROFILE, examples=_PROFILE_EXAMPLES)


class ExistingConfig(Section):
    """Resources that exist already. The stack uses them: it never creates, tags, changes or deletes them.

    Attributes:
        vpc_id: the network of all machines.
        subnets: private subnets by zone, one for each zone of the nodes.
        security_groups: the stack's own in that network if omitted.
        private_zone_id: Route 53 zone for the head's name; the stack's own if omitted. Needed in a network of another
            account.
        file_system: the file system.
        kms_key_arn: the key for data at rest; with encryption: customer-key.
        instance_profiles: the permissions of the machines.
        permissions_boundary_arn: policy that limits each role that the stack creates.
        log_group_arn: log group of the job's lines; nodes write events to the group of this name with /events.
        repository_arn: ECR repository to which `up` pushes the image that it builds.
        run_bucket: bucket for run records, below the stack's identity.
    """

    vpc_id: str | None = Field(default=None, pattern=rf"^vpc-{_HEX}$", examples=["vpc-0123456789abcdef0"])
    subnets: dict[str, Annotated[str, Field(pattern=_SUBNET)]] = Field(
        default={}, max_length=20, examples=[{"us-east-2a": "subnet-0123456789abcdef0"}]
    )
    security_groups: SecurityGroupsConfig | None = Field(
        default=None, examples=[{"fabric": "sg-0123456789abcdef0", "head": "sg-0123456789abcdef1"}]
    )
    private_zone_id: str | None = Field(default=None, pattern=r"^Z[0-9A-Z]{1,31}$", examples=["Z0123456789ABCDEFGHIJ"])
    file_system: FileSystemConfig | None = Field(
        default=None, examples=[{"id": "fs-0123456789abcdef0", "mount_name": "abcdefgh"}]
    )
    kms_key_arn: str | None = Field(
        default=None,
        pattern=r"^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+$",
        examples=[f"arn:aws:kms:us-east-2:{_ACCOUNT}:key/11111111-0000-4000-8000-111111111111"],
    )
    instance_profiles: InstanceProfilesConfig = Field(
        default=InstanceProfilesConfig(), examples=[{"node": _PROFILE_EXAMPLES[0]}]
    )
    permissions_boundary_arn: str | None = Field(
        default=None,
        pattern=r"^arn:aws[a-z-]*:iam::[0-9]{12}:policy/[A-Za-z0-9+=,.@_/-]+$",
        examples=[f"arn:aws:iam::{_ACCOUNT}:policy/team-boundary"],
    )
    log_group_arn: str | None = Field(
        default=None,
        pattern=r"^arn:aws[a-z-]*:logs:[a-z0-9-]+:[0-9]{12}:log-group:[A-Za-z0-9_./#-]{1,500}$",
        examples=[f"arn:aws:logs:us-east-2:{_ACCOUNT}:log-group:/team/gan"],
    )
    repository_arn: str | None = Field(
        default=None,
        pattern=r"^arn:aws[a-z-]*:ecr:[a-z0-9-]+:[0-9]{12}:repository/[a-z0-9]+([._/-]+[a-z0-9]+)*$",
        examples=[f"arn:aws:ecr:us-east-2:{_ACCOUNT}:repository/team/trainer"],
    )
    run_bucket: str | None = Field(
        default=None, pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", examples=["my-run-records"]
    )

    def arns(self) -> dict[str, str]:
        """The given ARNs, by their key."""
        profiles = self.instance_profiles
        found = {
            "kms_key_arn": self.kms_key_arn,
            "instance_profiles.node": profiles.node,
            "instance_profiles.head": profiles.head,
            "permissions_boundary_arn": self.permissions_boundary_arn,
            "log_group_arn": self.log_group_arn,
            "repository_arn": self.repository_arn,
        }
        return {key: arn for key, arn in found.items() if arn is not None}

    def provided(self) -> dict[str, str]:
        """All that is given: id, name or ARN by key."""
        groups, file_system = self.security_groups, self.file_system
        found = {
            "vpc_id": self.vpc_id,
            **{f"subnets.{zone}": subnet for zone, subnet in self.subnets.items()},
            "security_groups.fabric": None if groups is None else groups.fabric,
            "security_groups.head": None if groups is None else groups.head,
            "private_zone_id": self.private_zone_id,
            "file_system": None if file_system is None else file_system.id,
            **self.arns(),
            "run_bucket": self.run_bucket,
        }
        return {key: value for key, value in found.items() if value is not None}


class AwsConfig(Section):
    """Settings of a stack on AWS.

    Attributes:
        existing: resources that exist already and that the stack uses.
    """

    existing: ExistingConfig = Field(
        default=ExistingConfig(),
        examples=[{"vpc_id": "vpc-0123456789abcdef0", "subnets": {"us-east-2a": "subnet-0123456789abcdef0"}}],
    )


def get_existing(config: StackConfig) -> ExistingConfig:
    """What the stack file provides; an empty section if nothing."""
    own = config.find_section(AwsConfig)
    return ExistingConfig() if own is None else own.existing


def arn_parts(arn: str) -> tuple[str, str, str]:
    """Region, account and resource of an ARN.

    >>> arn_parts("arn:aws:ecr:us-east-2:123456789012:repository/team/trainer")
    ('us-east-2', '123456789012', 'repository/team/trainer')
    """
    _, _, _, region, account, resource = arn.split(":", 5)
    return region, account, resource


def existing_mistakes(config: StackConfig) -> Iterator[InputError]:
    """Ids that contradict each other or the rest of the stack file."""
    existing = get_existing(config)
    yield from _other_places(config, existing)
    yield from _incomplete_network(existing)
    yield from _contradictions(config, existing)
    if isinstance(config.engine, KubernetesConfig):
        yield from _unsupported_with_eks(existing)


def _other_places(config: StackConfig, existing: ExistingConfig) -> Iterator[InputError]:
    """ARNs and zones of another region, and ARNs of more than one account."""
    arns, region = existing.arns(), config.region
    for key, arn in arns.items():
        if (its_region := arn_parts(arn)[0]) not in ("", region):
            yield InputError(
                f"{EXISTING}.{key}",
                f"it is in {its_region}, and the stack in {region}",
                value=arn,
                allowed=f"an ARN of {region}, the value of gangway:region",
                fix=f"name one of {region}, or set gangway:region: {its_region}",
            )
    first = next(iter(arns.items()), None)
    for key, arn in arns.items():
        if first is not None and arn_parts(arn)[1] != arn_parts(first[1])[1]:
            yield InputError(
                f"{EXISTING}.{key}",
                f"it is in account {arn_parts(arn)[1]}, and {first[0]} in {arn_parts(first[1])[1]}",
                value=arn,
                allowed="ARNs of one account, that of the stack",
                fix=f"name one of account {arn_parts(first[1])[1]}",
            )
    for zone, subnet in existing.subnets.items():
        if not zone.startswith(region):
            yield InputError(
                f"{EXISTING}.subnets",
                f"{zone} is no zone of {region}",
                value=f"{zone}: {subnet}",
                allowed=f"zones of {region}, such as {region}a, each with its subnet",
                fix=f"write a zone and subnet of {region}",
            )


def _incomplete_network(existing: ExistingConfig) -> Iterator[InputError]:
    """Parts of a network without the rest of it."""
    if existing.vpc_id is not None and not existing.subnets:
        yield InputError(
            f"{EXISTING}.subnets",
            "missing: the stack creates no subnets in a network that exists",
            allowed="with vpc_id: a private subnet for each zone of the nodes",
            fix="add subnets: {ZONE: SUBNET}; aws ec2 describe-subnets lists them",
        )
    if existing.vpc_id is not None:
        return
    parts = {
        "subnets": existing.subnets,
        "security_groups": existing.security_groups,
        "private_zone_id": existing.private_zone_id,
        "file_system": existing.file_system,
    }
    for name in (name for name, value in parts.items() if value):
        yield InputError(
            f"{EXISTING}.{name}",
            "the stack would create its own network, which this is not part of",
            allowed="only with vpc_id",
            fix=f"add vpc_id: the network of {name}",
        )


def _contradictions(config: StackConfig, existing: ExistingConfig) -> Iterator[InputError]:
    storage = config.storage
    if existing.kms_key_arn is not None and config.encryption != "customer-key":
        yield InputError(
            f"{EXISTING}.kms_key_arn",
            "the stack would not use the key: its data is encrypted with AWS's own",
            value=existing.kms_key_arn,
            allowed="only with encryption: customer-key",
            fix="set gangway:encryption: customer-key",
        )
    if existing.file_system is not None and storage is None:
        yield InputError(
            f"{EXISTING}.file_system",
            "gangway:storage, which describes it, is missing",
            value=existing.file_system.id,
            allowed="only with gangway:storage, with its kind and size",
            fix="add gangway:storage: {kind: lustre, capacity_gib: 1200}",
        )
    if existing.file_system is not None and storage is not None and storage.export_runs:
        yield InputError(
            "gangway:storage.export_runs",
            "the stack adds no export to a file system that it did not create",
            value=True,
            allowed=f"false with {EXISTING}.file_system; nodes upload run records in any case",
            fix="set export_runs: false",
        )
    if existing.run_bucket is not None and not config.work.keep_runs:
        yield InputError(
            f"gangway:{'engine' if config.engine.has_queue else 'job'}.keep_runs",
            "`destroy` deletes nothing from a bucket that the stack did not create",
            value=False,
            allowed=f"true with {EXISTING}.run_bucket",
            fix="set keep_runs: true",
        )


_NOT_WITH_EKS = ("instance_profiles", "log_group_arn", "private_zone_id", "repository_arn", "security_groups", "vpc_id")


def _unsupported_with_eks(existing: ExistingConfig) -> Iterator[InputError]:
    for name in _NOT_WITH_EKS:
        if getattr(existing, name) != ExistingConfig.model_fields[name].get_default():
            yield InputError(
                f"{EXISTING}.{name}",
                "not supported with engine: kubernetes so far",
                allowed="kms_key_arn, permissions_boundary_arn and run_bucket with engine: kubernetes",
                fix=f"remove {name}; the stack then creates its own",
            )


# The examples of the common settings are AWS's.
SETTINGS = ProviderSettings(
    own=OwnSection(
        "aws",
        AwsConfig,
        holds="existing",
        example="{existing: {run_bucket: my-run-records}}",
        is_required=False,
    ),
    image=ImageForm(re.compile(r"ami-[0-9a-f]{8,17}"), "ami-0123456789abcdef0"),
    store=ObjectStore("s3", "s3://bucket/prefix", lambda folder, url: f"aws s3 sync {quote(folder)} {quote(url)}"),
    storage_kinds=("lustre",),
    account=Account("aws", "AWS", "region", "choose the account by the environment, such as AWS_PROFILE"),
    deletes_runs=True,
    runs_commands=True,
    joins_commands=True,
    queues=("slurm", "kubernetes"),
    has_accounting=True,
)
