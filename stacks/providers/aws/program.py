"""The resources of a stack on AWS. `plan` checks everything that can be checked before a resource is declared."""

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import pulumi_aws as aws

from gangway.components.aws.eks_nodes import image_parameter
from gangway.components.aws.launch import HEAD_IMAGE
from gangway.components.aws.pricing import price_resources
from gangway.components.catalog.loader import load
from gangway.components.core.keys import signing_key
from gangway.components.core.lookup import record_choice
from gangway.components.core.outputs import after
from gangway.components.estimate.cost import CostComponent, Declared, of_resources
from gangway.stacks.base.kept import keep_job, keep_text
from gangway.stacks.base.ownership import check_unclaimed
from gangway.stacks.config.engine_settings import SlurmConfig
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.aws.component_factory import NEWEST_AMI, ComponentFactory, component_options
from gangway.stacks.providers.aws.existing_lookups import check_existing, record_existing
from gangway.stacks.providers.aws.findings import findings
from gangway.stacks.providers.aws.lookups import look_up_all, owner_lookups
from gangway.stacks.providers.aws.plan import AwsPlan, job_spec, paid_blocks, plan, purchases
from gangway.stacks.providers.aws.slurm import HEAD_IMAGE as SLURM_HEAD_IMAGE
from gangway.stacks.providers.aws.slurm import NODE_IMAGE, build_slurm, check_slurm
from gangway.stacks.providers.aws.user_data import Names, check_user_data, get_mount_source, node_user_data

__all__ = ["AwsPlan", "build", "findings", "newest_images", "plan", "price"]


def price(config: StackConfig, resources: Sequence[Declared]) -> list[CostComponent]:
    """The cost of the declared resources and of what `up` buys immediately."""
    blocks = [one for one in resources if one.type == "aws:ec2/capacityBlockReservation:CapacityBlockReservation"]
    nodes = price_resources(resources, load(), config.region, paid_blocks(config))
    return [*nodes, *of_resources(purchases(config), *blocks)]


def newest_images(config: StackConfig, planned: AwsPlan) -> dict[str, str]:
    """The SSM parameters of the AMIs that the stack file does not name, by `nodes` or `head`."""
    if planned.eks is not None:
        return {} if config.cluster.image_id else {"nodes": image_parameter(planned.eks.version, planned.machine)}
    slurm = isinstance(config.engine, SlurmConfig)
    nodes, head = (NODE_IMAGE, SLURM_HEAD_IMAGE) if slurm else (NEWEST_AMI, HEAD_IMAGE)
    images = {} if config.cluster.image_id else {"nodes": nodes}
    return images | ({"head": head} if planned.head else {})


def _begin(config: StackConfig, planned: AwsPlan, *, builds: bool) -> ComponentFactory:
    """Checks and looks up everything in the cloud, before the first resource. `builds`: the trainer's image."""
    provider = aws.Provider(config.stack, region=config.region)
    check_unclaimed(config, *owner_lookups(config, provider))
    check_existing(config, planned, provider)
    found = look_up_all(config, provider, newest_images(config, planned), builds=builds)
    record_choice(config.stack, config.encryption)
    record_existing(config, planned)
    return ComponentFactory(config, planned, component_options(config, provider), found)


def build(config: StackConfig, planned: AwsPlan) -> Mapping[str, pulumi.Input[Any]]:
    """Declares the stack's resources and returns what it exports."""
    if planned.eks is not None:
        # Imported here: its SDK is a separate extra.
        from gangway.stacks.providers.aws.eks_program import build_eks

        return build_eks(config, planned, planned.eks, newest_images(config, planned))
    slurm = config.engine if isinstance(config.engine, SlurmConfig) else None
    if slurm is not None:
        check_slurm(config, slurm, planned)
        return build_slurm(_begin(config, planned, builds=False), slurm)
    check_user_data(config, planned)
    stack = _begin(config, planned, builds=config.ready_image is None)
    key = stack.key()
    runs = stack.runs(key)
    logs = stack.logs(key)
    image = stack.image(key)
    network = stack.network(runs, image.repository, key)
    lustre = stack.lustre(network, runs, key)
    job = keep_job(config, image.reference.apply(lambda reference: job_spec(config, planned, reference)))
    members, own = stack.member_key(key) if planned.member_key else None, signing_key(config.stack)
    signing = stack.signing_key(own.pem, key)
    names = pulumi.Output.all(
        job,
        runs.bucket_name,
        logs.log_group_name,
        get_mount_source(lustre),
        members.name if members else None,
        signing.name,
    ).apply(lambda known: Names(*known))
    rights = stack.rights(image, runs, logs, key, members, signing)
    identity = stack.node_identity(rights)
    images = stack.machine_images()
    head = stack.head(network, rights, key, images, names) if planned.head else None
    user_data = keep_text(config, "nodes", node_user_data(config, planned, names), names)
    # Workers agree on their last checkpoint through the head node's store, so it must outlive them.
    # Not for the head, whose image would be unknown in a preview.
    node_images = stack.node_images(images, network, key, image)
    pool = stack.pool(network, identity, node_images, after(user_data, head.host) if head else user_data, key)
    budget = stack.budget(key)
    observed = stack.observe(pool, key)
    return {
        "job": job.apply(lambda spec: spec.model_dump(mode="json")),
        "image": image.reference,
        "machine_images": node_images,
        "run_bucket": runs.bucket_name,
        "group_names": pool.group_names,
        "head_instance_id": head.instance_id if head else None,
        "lustre_dns_name": lustre.dns_name if lustre else None,
        "log_group": logs.log_group_name,
        "dashboard": observed.dashboard_name,
        "alarm_topic_arn": observed.topic_arn,
        "budget_topic_arn": budget.topic_arn,
        "signing_public_key": own.public,
    }
