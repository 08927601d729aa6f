"""The plan of a Slurm cluster on AWS, the user data of its machines, and its findings."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pulumi

from gangway.components.aws.identity import SecretParameter, parameter_name
from gangway.components.aws.launch import HeadNode, count_efa, count_lustre_efa, efa_nccl
from gangway.components.aws.monitoring import NodeLogs
from gangway.components.aws.node_pool import LIFECYCLE_HOOK
from gangway.components.aws.slurm import SlurmIdentity
from gangway.components.core.fields import Egress
from gangway.components.core.findings import Finding, InputError
from gangway.images.aws import EFA_SETUP_SHA256, user_data_base64gzip
from gangway.images.slurm.aws import AwsSlurmHeadSpec, AwsSlurmNodeSpec, render_slurm_head, render_slurm_node
from gangway.images.slurm.conf import Release, SlurmRung, SlurmSpec, SlurmTeam, rung_names
from gangway.images.specs import Breaker, FileSystem
from gangway.stacks.base.cluster_queues import check_machine_types
from gangway.stacks.base.kept import keep_text
from gangway.stacks.base.shared import has_exporters, head_host, queue_fabric, slurm_machine
from gangway.stacks.base.stand_ins import stand_in
from gangway.stacks.config.engine_settings import SlurmConfig
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.aws.component_factory import ComponentFactory, Identity, Key
from gangway.stacks.providers.aws.plan import MOUNT, AwsPlan, head_type
from gangway.stacks.providers.aws.user_data import get_mount_source, longest_mount_source, user_data_limit

RELEASE: Release = "23.11"  # the release in Ubuntu 24.04, which nodes and controller run
HEAD_NAME = "head"
MUNGE_KEY = "munge-key"
PATIENCE_SEC, REST_SEC = 300, 900  # how long a rung may start no machine, and how long it is skipped after that
SHARED_DIR = f"{MOUNT}/jobs"
_STATE_DIR = f"{MOUNT}/.gangway/slurm"


class SlurmNames(NamedTuple):
    """Names that exist only once their resources do."""

    munge_key: str
    mount_source: str | None
    log_group: str


def slurm_spec(config: StackConfig, engine: SlurmConfig, planned: AwsPlan) -> SlurmSpec:
    """The cluster."""
    machine, cluster = planned.machine, config.cluster
    kinds = [rung.kind for rung in cluster.capacity]
    return SlurmSpec(
        cluster=config.stack,
        release=RELEASE,
        head_host=head_host(config),
        head_name=HEAD_NAME,
        machine=slurm_machine(machine, machine.fabric.kind if machine.fabric else None),
        rungs=tuple(
            SlurmRung(name, kind, cluster.nodes.max) for name, kind in zip(rung_names(kinds), kinds, strict=True)
        ),
        nodes_up=cluster.nodes.min,
        idle_minutes=engine.idle_minutes,
        accounting=engine.accounting,
        teams=tuple(SlurmTeam(team.name, team.nodes, team.max_nodes, team.users) for team in engine.teams),
        # A new head reads the queue from there.
        state_dir=_STATE_DIR if config.storage else SlurmSpec.state_dir,
    )


def partitions(config: StackConfig) -> list[str]:
    """The names of the partitions, in the ladder's order."""
    return rung_names(rung.kind for rung in config.cluster.capacity)


def submit_target(config: StackConfig) -> str | None:
    """The value of `gangway job submit --on` on the head; None if nodes share no folder."""
    return f"slurm:{SHARED_DIR}@{'+'.join(partitions(config))}" if config.storage else None


def _common(config: StackConfig, engine: SlurmConfig, planned: AwsPlan, names: SlurmNames) -> dict[str, Any]:
    source = names.mount_source
    return {
        "stack": config.stack,
        "region": config.region,
        "slurm": slurm_spec(config, engine, planned),
        "munge_key": names.munge_key,
        "file_system": None if source is None else FileSystem("lustre", source, MOUNT),
        "log_group": names.log_group,
        "hardware_metrics": has_exporters(config),
    }


def node_user_data(config: StackConfig, engine: SlurmConfig, planned: AwsPlan, names: SlurmNames) -> str:
    """The user data of a node, base64."""
    storage, num_efa = config.storage, count_efa(planned.machine)
    spec = AwsSlurmNodeSpec(
        **_common(config, engine, planned, names),
        efa_interfaces_planned=num_efa,
        lustre_efa_interfaces=count_lustre_efa(planned.machine) if storage and storage.efa and num_efa else 0,
        lustre_efa_setup_sha256=(storage and storage.efa_setup_sha256) or EFA_SETUP_SHA256,
        scratch_mount_point="/scratch" if planned.machine.instance_store_gib.value else None,
        lifecycle_hook=LIFECYCLE_HOOK,
        job_fabric=queue_fabric(config, planned.machine, efa_nccl(planned.machine), planned.machine.network_gbps.value),
    )
    return user_data_base64gzip(render_slurm_node(spec))


def head_user_data(
    config: StackConfig, engine: SlurmConfig, planned: AwsPlan, names: SlurmNames, groups: Iterable[str]
) -> str:
    """The user data of the controller, base64. `groups`: Auto Scaling groups of the rungs, in order."""
    spec = AwsSlurmHeadSpec(
        **_common(config, engine, planned, names),
        groups=tuple(groups),
        most=config.cluster.nodes.max,
        patience_sec=PATIENCE_SEC,
        rest_sec=REST_SEC,
        breaker=Breaker(config.cluster.given_up_limit, config.cluster.breaker.minutes),
        shared_dir=SHARED_DIR if config.storage else "",
        prometheus_image=config.head.prometheus_image or "",
    )
    return user_data_base64gzip(render_slurm_head(spec))


def check_slurm(config: StackConfig, engine: SlurmConfig, planned: AwsPlan) -> None:
    """Checks the settings before a resource is declared. InputError: machines could not become nodes."""
    if config.network.egress is not Egress.NAT:
        raise InputError(
            "gangway:network.egress", "Slurm is installed from Ubuntu's archive, which AWS's endpoints do not reach",
            value=str(config.network.egress), allowed="nat with engine: slurm", fix="write egress: nat",
        )  # fmt: skip
    check_machine_types(config, "slurm", "all nodes of a Slurm partition have one machine type")
    # EC2 user guide, "View tags for your EC2 instances using instance metadata": such a key stops every launch.
    for key in config.tags:
        if " " in key or "/" in key:
            raise InputError(
                "gangway:tags", "Slurm machines read their tags, and EC2 cannot show them this one", value=key,
                allowed="keys without spaces and slashes with engine: slurm",
                fix=f"write {key.replace(' ', '-').replace('/', '-')}",
            )  # fmt: skip
    _check_size(config, engine, planned)


def _check_size(config: StackConfig, engine: SlurmConfig, planned: AwsPlan) -> None:
    """Renders both files once, with the longest names that AWS may assign."""
    source = longest_mount_source(config)
    names = SlurmNames(parameter_name(config.stack, MUNGE_KEY), source, f"/gangway/{config.stack}")
    groups = [f"{position}-{stand_in(f'group {position}', 60)}" for position, _ in enumerate(config.cluster.capacity)]
    with user_data_limit("gangway:engine.teams", "the controller", "write fewer teams and users"):
        node_user_data(config, engine, planned, names)
        head_user_data(config, engine, planned, names, groups)


def slurm_findings(config: StackConfig, engine: SlurmConfig) -> Iterable[Finding]:
    """Findings about the queue."""
    yield Finding.info(
        "slurm.partitions",
        "gangway:engine",
        f"partitions, tried in this order: {', '.join(partitions(config))}; a job without a partition uses all of "
        f"them. A rung that starts no machine within {PATIENCE_SEC // 60} minutes is skipped for {REST_SEC // 60} "
        "minutes",
    )
    if config.storage is None:
        yield Finding.warning(
            "slurm.no-shared-folder",
            "gangway:storage",
            "nodes share no folder: jobs submitted with Gangway need one, and the queue is lost with the head's disk",
            "write a storage section",
        )
    if config.cluster.image_id is not None:
        yield Finding.warning(
            "slurm.image-release",
            "gangway:cluster.image_id",
            f"its Slurm must be the controller's, {RELEASE} of Ubuntu 24.04: nodes with another release may not join",
            "use an image of Ubuntu 24.04",
        )
    for index, team in enumerate(engine.teams):
        if not team.users:
            yield Finding.warning(
                "slurm.team-without-users",
                f"gangway:engine.teams[{index}].users",
                f"{team.name} has no users: its account accepts no jobs",
                "add them, each with a unique number: users: {ann: 20001}",
            )
    if engine.accounting:
        kept = (
            "accounts and used hours are in a database on the head's disk, which is saved to the file system every 5 "
            "minutes and at shutdown; a new head restores it"
        )
        lost = "accounts and used hours are in a database on the head's disk, and are lost when the head is replaced"
        yield Finding.info("slurm.accounts", "gangway:engine.accounting", kept if config.storage else lost)


NODE_IMAGE = "resolve:ssm:/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
HEAD_IMAGE = "resolve:ssm:/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
"""Amazon Linux has no Slurm."""
ROOT_DEVICE = "/dev/sda1"  # Ubuntu's root device


def build_slurm(stack: ComponentFactory, engine: SlurmConfig) -> Mapping[str, pulumi.Input[Any]]:
    """Declares the stack's resources and returns what it exports."""
    config, planned = stack.config, stack.planned
    key = stack.key()
    runs, logs = stack.runs(key), stack.logs(key)
    network = stack.network(runs, None, key)
    lustre = stack.lustre(network, runs, key)
    munge = stack.munge_key(key)
    names = pulumi.Output.all(munge.name, get_mount_source(lustre), logs.log_group_name).apply(
        lambda known: SlurmNames(*known)
    )
    images = stack.machine_images()
    node = _identity(stack, "node", munge, key, logs)
    user_data = keep_text(
        config, "nodes", names.apply(lambda known: node_user_data(config, engine, planned, known)), names
    )
    node_images = stack.node_images(images, network, key)
    pool = stack.pool(network, node, node_images, user_data, key)
    control = _identity(stack, "head", munge, key)
    inputs = pulumi.Output.all(names, pool.group_names)
    head_args = {
        "subnet_id": network.private_subnet_ids[0],
        "security_group_ids": [network.head_security_group_id],
        "instance_profile_arn": control.instance_profile_arn,
        "user_data": keep_text(
            config,
            "head",
            inputs.apply(lambda known: head_user_data(config, engine, planned, SlurmNames(*known[0]), known[1])),
            inputs,
        ),
        "host_name": head_host(config),
        "zone_id": network.private_zone_id,
        "machine_type": head_type(config),
        "image_id": images["head"],
        "root_device_name": ROOT_DEVICE,
        "kms_key_arn": key,
        # Two controllers would write the same state, and the old one saves its accounting at shutdown.
        "delete_before_replace": True,
        "tags": planned.tags,
    }
    head = stack.declare(HeadNode, head_args)
    budget = stack.budget(key)
    observed = stack.observe(pool, key)
    return {
        "machine_images": node_images,
        "run_bucket": runs.bucket_name,
        "group_names": pool.group_names,
        "head_instance_id": head.instance_id,
        "partitions": partitions(config),
        "submit_on": submit_target(config),
        "lustre_dns_name": lustre.dns_name if lustre else None,
        "log_group": logs.log_group_name,
        "dashboard": observed.dashboard_name,
        "alarm_topic_arn": observed.topic_arn,
        "budget_topic_arn": budget.topic_arn,
    }


def _identity(
    stack: ComponentFactory, role: str, munge: SecretParameter, key: Key, logs: NodeLogs | None = None
) -> Identity:
    profiles = stack.existing.instance_profiles
    if (given := profiles.head if role == "head" else profiles.node) is not None:
        return Identity(pulumi.Output.from_input(given))
    args = {
        "role": role,
        "stack": stack.config.stack,
        "munge_key_arn": munge.arn,
        "kms_key_arn": key,
        "log_group_arn": None if logs is None else logs.log_group_arn,
        "tags": stack.planned.tags,
    }
    return Identity(stack.declare(SlurmIdentity, args, f"-{role}").instance_profile_arn)
