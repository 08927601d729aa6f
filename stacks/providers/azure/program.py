"""The resources of a stack on Azure. `plan` checks everything that can be checked before a resource is declared."""

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import pulumi_azure_native as azure

from gangway.components.azure.identity import ResourceGroup, ResourceGroupArgs
from gangway.components.azure.pricing import price_resources
from gangway.components.catalog.loader import load_provider
from gangway.components.core.keys import signing_key
from gangway.components.core.lookup import record_choice
from gangway.components.estimate.cost import CostComponent, Declared
from gangway.stacks.base.kept import keep_job
from gangway.stacks.base.ownership import check_unclaimed
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.azure.component_factory import ComponentFactory, marketplace_images
from gangway.stacks.providers.azure.existing_outputs import GivenGroup
from gangway.stacks.providers.azure.existing_settings import group_name
from gangway.stacks.providers.azure.findings import findings
from gangway.stacks.providers.azure.lookups import find_owner, look_up_all, refuse_stale_sizes
from gangway.stacks.providers.azure.plan import AzurePlan, job_spec, plan
from gangway.stacks.providers.azure.settings import get_existing
from gangway.stacks.providers.azure.user_data import Names, check_user_data

__all__ = ["AzurePlan", "build", "findings", "plan", "price"]


def price(config: StackConfig, resources: Sequence[Declared]) -> list[CostComponent]:
    """The cost of the declared resources."""
    return price_resources(resources, load_provider("azure"), config.region)


def build(config: StackConfig, planned: AzurePlan) -> Mapping[str, pulumi.Input[Any]]:
    """Declares the stack's resources and returns what it exports."""
    if not planned.standing:
        check_user_data(config, planned)
    provider = azure.Provider(config.stack, subscription_id=planned.subscription_id, location=config.region)
    check_unclaimed(config, lambda: find_owner(config.stack, planned.subscription_id, provider))
    found = look_up_all(config, planned, provider, {} if planned.standing else marketplace_images(config, planned))
    record_choice(config.stack, config.encryption)
    sizes = refuse_stale_sizes(found.token)
    opts = pulumi.ResourceOptions(providers={"azure-native": provider}, transformations=[sizes])
    given = get_existing(config).resource_group_id
    place: ResourceGroupArgs = {"location": config.region, "tags": planned.tags}
    group = ResourceGroup(config.stack, place, opts) if given is None else GivenGroup(group_name(given))
    stack = ComponentFactory(config, planned, opts, found, group)
    if planned.standing:
        # Imported here, so that other stacks do not load Kubernetes' SDK.
        from gangway.stacks.providers.azure.kubernetes import build_cluster

        return build_cluster(stack, provider)
    return _build_machines(stack)


def _build_machines(stack: ComponentFactory) -> Mapping[str, pulumi.Input[Any]]:
    config, planned = stack.config, stack.planned
    key = stack.key()
    runs = stack.runs(key)
    network = stack.network(stack.flow_logs(key))
    logs = stack.logs()
    image = stack.image()
    storage = stack.storage(network, key)
    job = keep_job(config, image.reference.apply(lambda reference: job_spec(config, planned, reference)))
    mount = storage.mount_point if storage else None
    signing = signing_key(config.stack)
    members = stack.keys(network, stack.found.tenant_id, signing.pem)
    names = pulumi.Output.all(
        job,
        runs.bucket_url,
        logs.ingestion_url,
        mount,
        stack.group.resource_group_name,
        members.secret_url,
        members.signing_secret_url,
    ).apply(lambda known: Names(*known))
    rights = stack.rights(image, runs, logs, members)
    images = stack.image_versions()
    subnet = stack.machines_subnet(network, image, runs, members)
    built = stack.built_image(image, images)
    pool = stack.pool(network, subnet, stack.node_identity(rights), key, images, built, names)
    # The head fills the scale sets, and needs their names.
    head = stack.head(network, subnet, rights, key, images, names, pool.fallback_config)
    budget = stack.budget(pool, head)
    observed = stack.observe(logs)
    return {
        "job": job.apply(lambda spec: spec.model_dump(mode="json")),
        "image": image.reference,
        "machine_images": images if built is None else {**images, "nodes": built},
        "run_bucket": runs.bucket_name,
        "run_bucket_url": runs.bucket_url,
        "group_names": pool.group_names,
        "head_instance_id": head.instance_id,
        # An address, as Azure assigns no DNS name; all providers use this export name.
        "lustre_dns_name": storage.dns_name if storage else None,
        "mount_point": mount,
        "resource_group": stack.group.resource_group_name,
        "zone": planned.zone,
        "log_group": logs.workspace_id,
        "dashboard": observed.dashboard_id,
        "alarm_topic_id": observed.channel_names.apply(lambda ids: ids[0]),
        "budget_topic_id": budget.topic_id,
        "signing_public_key": signing.public,
    }
