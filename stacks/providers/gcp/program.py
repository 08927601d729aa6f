"""The resources of a stack on Google Cloud. `plan` checks all that can be checked before a resource is declared."""

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import pulumi_gcp as gcp

from gangway.components.catalog.loader import load_provider
from gangway.components.core.keys import signing_key
from gangway.components.core.lookup import record_choice
from gangway.components.estimate.cost import CostComponent, Declared
from gangway.components.gcp.identity import ProjectServices, plan_services
from gangway.components.gcp.pricing import price_resources
from gangway.stacks.base.kept import keep_job
from gangway.stacks.base.ownership import check_unclaimed
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.gcp.component_factory import ComponentFactory
from gangway.stacks.providers.gcp.existing import get_existing
from gangway.stacks.providers.gcp.existing_lookups import look_up_existing
from gangway.stacks.providers.gcp.findings import findings
from gangway.stacks.providers.gcp.lookups import find_owner, look_up_all
from gangway.stacks.providers.gcp.plan import GcpPlan, job_spec, plan
from gangway.stacks.providers.gcp.settings import GcpConfig
from gangway.stacks.providers.gcp.user_data import FALLBACK_OBJECT, Names, ended_uri, fallback_text

__all__ = ["GcpPlan", "build", "findings", "plan", "price"]


def price(config: StackConfig, resources: Sequence[Declared]) -> list[CostComponent]:
    """The cost of the declared resources."""
    return price_resources(resources, load_provider("gcp"), config.region, config.cluster.nodes.min)


def build(config: StackConfig, planned: GcpPlan) -> Mapping[str, pulumi.Input[Any]]:
    """Declares the stack's resources and returns what it exports."""
    provider = _provider(config, planned)
    has_account = get_existing(config).service_accounts is None
    check_unclaimed(config, lambda: find_owner(config.stack, planned.project, provider, has_account=has_account))
    existing = look_up_existing(config, planned, provider)
    found = look_up_all(config, planned, provider)
    record_choice(config.stack, config.encryption)
    providers = {"gcp": provider}
    services = _services(config, planned, pulumi.ResourceOptions(providers=providers))
    wait = pulumi.ResourceOptions(providers=providers, transformations=[_wait_for_services(services)])
    stack = ComponentFactory(config, planned, wait, provider, services, found, existing)
    if planned.standing:
        # Imported here, so that other stacks do not load Kubernetes' SDK.
        from gangway.stacks.providers.gcp.kubernetes import build_cluster

        return build_cluster(stack)
    return _build_machines(stack)


def _build_machines(stack: ComponentFactory) -> Mapping[str, pulumi.Input[Any]]:
    config, planned = stack.config, stack.planned
    key = stack.key()
    network = stack.network()
    runs = stack.runs(key)
    logs = stack.logs(key, runs)
    files = stack.head_files(key)
    image = stack.image(key)
    storage = stack.storage(network, key)
    job = keep_job(config, image.reference.apply(lambda reference: job_spec(config, planned, reference)))
    members = stack.member_key(key) if planned.has_member_key else None
    signing = signing_key(config.stack) if planned.tpu is None else None  # a TPU's container runs as root
    signs = stack.signing_key(signing.pem, key) if signing else None
    names = pulumi.Output.all(
        job,
        runs.bucket_name,
        logs.log_id,
        storage.mount_point if storage else None,
        storage.file_system_id if storage else None,
        files.bucket_name if files else None,
        members,
        signs,
    ).apply(lambda known: Names(*known))
    group_tag = stack.group_tag()
    rights = stack.rights(image, runs, members, signs)
    email = stack.node_identity(rights, group_tag).service_account_email
    images = stack.machine_images()
    head = stack.head(network, rights, files, key, images, names, group_tag) if planned.head else None
    if group_tag is not None:
        images = stack.node_images(images, network, email, key, image)
        nodes = stack.gpu_nodes(network, email, key, names, images, head, group_tag)
    else:
        assert files is not None, "head_files returns a bucket for slices"
        nodes = stack.tpu_nodes(network, email, key, runs, names, files, logs.log_name)
    if nodes.fallback is not None and files is not None:
        ended = ended_uri(config, names)
        stack.declare_file(files, FALLBACK_OBJECT, pulumi.Output.all(nodes.fallback, ended).apply(fallback_text))
    budget = stack.budget(key, nodes, head, group_tag)
    observed = stack.observe(nodes, logs)
    perimeter = stack.perimeter(nodes, budget, observed)
    return {
        "job": job.apply(lambda spec: spec.model_dump(mode="json")),
        "image": image.reference,
        "machine_images": images,
        "run_bucket": runs.bucket_name,
        "group_names": nodes.group_names,
        "queued_resource": nodes.queued_resource,
        "head_instance_id": head.instance_id if head else None,
        "lustre_dns_name": storage.dns_name if storage else None,  # or the address of the Filestore instance
        "mount_point": storage.mount_point if storage else None,
        "project": planned.project,
        "zone": planned.zone,
        "log_group": logs.log_name,
        "dashboard": observed.dashboard_id,
        "budget_topic_id": budget.topic_id,
        "service_perimeter": perimeter,
        "signing_public_key": signing.public if signing else None,
    }


def _provider(config: StackConfig, planned: GcpPlan) -> gcp.Provider:
    """The provider. Calls use the project's quota: with user credentials the budget API requires it."""
    project = planned.project
    return gcp.Provider(
        config.stack,
        project=project,
        region=config.region,
        zone=planned.zone,
        billing_project=project,
        user_project_override=True,
    )


def _services(config: StackConfig, planned: GcpPlan, opts: pulumi.ResourceOptions) -> ProjectServices:
    existing = get_existing(config)
    made = "" if config.storage is None or existing.file_system is not None else config.storage.kind
    parts = {
        "lustre": made == "lustre",
        "filestore": made == "filestore",
        "tpu": planned.queues_slices,
        "kubernetes": planned.standing,
        "encryption": config.encryption == "customer-key" and existing.kms_key is None,
        "keys": planned.has_secrets,
        "reconcile": planned.queues_slices,
        "perimeter": config.section(GcpConfig).service_perimeter is not None,
        "stop": config.budget.stop_at_percent is not None,
    }
    needed = plan_services(*[part for part, wanted in parts.items() if wanted])
    return ProjectServices(config.stack, {"project": planned.project, "services": needed}, opts)


def _wait_for_services(services: ProjectServices) -> pulumi.ResourceTransformation:
    """Makes the resources inside components wait for the APIs: `depends_on` would only affect the components."""

    def transform(args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
        if not isinstance(args.resource, pulumi.CustomResource):
            return None
        waits = pulumi.ResourceOptions(depends_on=[services])
        return pulumi.ResourceTransformationResult(args.props, pulumi.ResourceOptions.merge(args.opts, waits))

    return transform
