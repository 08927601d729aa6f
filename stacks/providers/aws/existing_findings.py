"""Findings about provided resources: which they are, what the stack cannot check or do, and settings without effect."""

from collections.abc import Iterable, Iterator

from gangway.components.aws.identity import (
    Statement,
    head_policy,
    key_policy,
    node_policy,
    parameter_name,
    partition_in,
)
from gangway.components.aws.monitoring import log_group_name
from gangway.components.aws.slurm import slurm_head_policy, slurm_node_policy
from gangway.components.core.findings import Finding
from gangway.stacks.config.engine_settings import SlurmConfig
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.aws.plan import AwsPlan
from gangway.stacks.providers.aws.settings import EXISTING, ExistingConfig, arn_parts, get_existing

_NETWORK_SETTINGS = ("cidr", "dns_firewall", "flow_logs")


def existing_findings(config: StackConfig, planned: AwsPlan) -> Iterable[Finding]:
    """All findings about provided resources; none if the stack file names none."""
    existing = get_existing(config)
    for key, value in existing.provided().items():
        yield Finding.info(
            "existing.provided",
            f"{EXISTING}.{key}",
            f"{value} is used as it is: the stack does not create, tag, change or delete it. It is not in the "
            "estimate, nor in the budget, which counts by the stack's tag",
        )
    if existing.vpc_id is not None:
        yield Finding.info(
            "existing.network-owner",
            f"{EXISTING}.vpc_id",
            "its owner decides what machines reach: the stack adds no way out, endpoint, DNS firewall or flow log",
        )
    yield from _unchecked(existing)
    for role, arn in (("node", existing.instance_profiles.node), ("head", existing.instance_profiles.head)):
        if arn is not None and (role == "node" or planned.head):
            yield _role_permissions(config, planned, role, arn)
    if existing.kms_key_arn is not None:
        yield _key_users(config, existing.kms_key_arn)
    for path, why in _ignored(config, existing, planned):
        name = path.rpartition(".")[2]
        yield Finding.warning("existing.ignored-setting", path, f"of no effect: {why}", f"remove {name}")


def _unchecked(existing: ExistingConfig) -> Iterator[Finding]:
    if existing.file_system is not None:
        yield Finding.info(
            "existing.file-system-unchecked",
            f"{EXISTING}.file_system",
            "`up` cannot look a Lustre file system up: its state, network, ports, size and links to S3 are checked by "
            "`gangway preflight`",
            "run `gangway preflight` before `up`",
        )


def role_statements(config: StackConfig, planned: AwsPlan, role: str, account: str) -> list[Statement]:
    """What the stack would allow its own `node` or `head`. A `*` ends names that only `up` knows."""
    existing, stack, region = get_existing(config), config.stack, config.region
    place = f"{region}:{account}"
    partition = partition_in(region)
    bucket = f"arn:{partition}:s3:::{existing.run_bucket or f'{stack}-runs-*'}"
    own_repository = f"arn:{partition}:ecr:{place}:repository/{stack}-trainer-*"
    repository = planned.repository_arn or existing.repository_arn or own_repository
    logs = existing.log_group_arn or f"arn:{partition}:logs:{place}:log-group:{log_group_name(stack)}"
    own_key = f"arn:{partition}:kms:{place}:key/*" if config.encryption == "customer-key" else None
    key = existing.kms_key_arn or own_key

    def parameter(what: str) -> str:
        return f"arn:{partition}:ssm:{place}:parameter{parameter_name(stack, what)}"

    if isinstance(config.engine, SlurmConfig):
        munge = parameter("munge-key")
        document = (
            slurm_head_policy(munge, stack, key) if role == "head" else slurm_node_policy(munge, stack, key, logs)
        )
    else:
        keys = {
            "log_group_arn": logs,
            "kms_key_arn": key,
            "member_key_arn": parameter("member-key") if planned.member_key else None,
            "signing_key_arn": parameter("signing-key"),
        }
        if role == "head":
            document = head_policy(bucket, repository, stack, **keys)
        else:
            document = node_policy(bucket, repository, stack, self_termination=config.nodes_leave, **keys)
    statements: list[Statement] = document["Statement"]
    return statements


def _role_permissions(config: StackConfig, planned: AwsPlan, role: str, arn: str) -> Finding:
    rows = role_statements(config, planned, role, arn_parts(arn)[1])
    needed = "; ".join(f"{', '.join(row['Action'])} on {row['Resource']}" for row in rows)
    return Finding.info(
        "existing.role-permissions",
        f"{EXISTING}.instance_profiles.{role}",
        f"the stack adds no policy to its role, which needs: {needed}",
        "check them with `gangway preflight`; who runs `up` needs iam:PassRole for the role",
    )


def _key_users(config: StackConfig, arn: str) -> Finding:
    rows = [row for row in key_policy(arn_parts(arn)[1], config.region)["Statement"] if row["Sid"] != "AccountDecides"]
    needed = "; ".join(f"{row['Sid']} ({', '.join(row['Action'])})" for row in rows)
    return Finding.info(
        "existing.key-policy",
        f"{EXISTING}.kms_key_arn",
        "the stack does not change the key's policy, which must let AWS's services use it as the policy of the "
        f"stack's own key does: {needed}",
        "check it with `gangway preflight`",
    )


def _ignored(config: StackConfig, existing: ExistingConfig, planned: AwsPlan) -> Iterator[tuple[str, str]]:
    """Settings without effect: config path and why."""
    if existing.vpc_id is not None:
        for name in _NETWORK_SETTINGS:
            if name in config.network.model_fields_set:
                yield f"gangway:network.{name}", f"{EXISTING}.vpc_id is a network that exists already"
    if existing.log_group_arn is not None and "log_days" in config.observe.model_fields_set:
        yield "gangway:observe.log_days", f"{EXISTING}.log_group_arn has its own retention"
    if existing.repository_arn is not None and (config.ready_image is not None or config.engine.has_queue):
        yield f"{EXISTING}.repository_arn", "`up` builds no image for this stack"
    if planned.head:
        return
    groups = existing.security_groups
    unused = {
        "private_zone_id": existing.private_zone_id,
        "security_groups.head": None if groups is None else groups.head,
        "instance_profiles.head": existing.instance_profiles.head,
    }
    yield from ((f"{EXISTING}.{key}", "the stack has no head node") for key, value in unused.items() if value)
