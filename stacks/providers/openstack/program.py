"""The resources of a stack on OpenStack. `plan` checks everything that can be checked before a resource is declared."""

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import pulumi_openstack as openstack

from gangway.components.core.keys import signing_key
from gangway.components.core.lookup import Lookup, look_up
from gangway.components.core.tags import tag_words
from gangway.components.estimate.cost import CostComponent, Declared
from gangway.components.openstack.pricing import price_resources
from gangway.stacks.base.kept import keep_job
from gangway.stacks.base.ownership import Owner, check_unclaimed
from gangway.stacks.base.shared import get_machine, get_price
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.openstack.component_factory import ComponentFactory
from gangway.stacks.providers.openstack.existing import get_existing
from gangway.stacks.providers.openstack.existing_lookups import look_up_existing
from gangway.stacks.providers.openstack.findings import findings
from gangway.stacks.providers.openstack.plan import OpenstackPlan, get_section, job_spec, plan
from gangway.stacks.providers.openstack.user_data import Names, check_user_data

__all__ = ["OpenstackPlan", "build", "findings", "plan", "price"]


def price(config: StackConfig, resources: Sequence[Declared]) -> list[CostComponent]:
    """The cost of the declared resources."""
    return price_resources(resources, get_price(config, get_machine(config)))


def build(config: StackConfig, planned: OpenstackPlan) -> Mapping[str, pulumi.Input[Any]]:
    """Declares the stack's resources and returns what it exports."""
    check_user_data(config, planned)
    provider = openstack.Provider(config.stack, cloud=get_section(config).cloud, region=config.region)
    check_unclaimed(config, lambda: find_owner(config, provider))
    mount_source = look_up_existing(config, provider)
    options = pulumi.ResourceOptions(providers={"openstack": provider})
    stack = ComponentFactory(config, planned, options, mount_source)
    runs = stack.runs()
    network = stack.network()
    storage = stack.storage(network)
    identity = stack.node_identity(runs)
    image = config.ready_image
    assert image is not None, "gangway.stacks.loading.unsupported_settings checks it"
    job = keep_job(config, job_spec(config, planned, image))
    share = (storage.mount_source, storage.access_user) if storage else ("", "")
    names = pulumi.Output.all(job, runs.bucket_url, *share).apply(lambda known: Names(*known))
    signing = signing_key(config.stack)
    secrets = stack.secrets(identity, storage, signing.pem)
    head = stack.head(network, names, secrets)
    pool = stack.pool(network, names, secrets, head)
    return {
        "job": job.apply(lambda spec: spec.model_dump(mode="json")),
        "image": image,
        "run_bucket": runs.bucket_name,
        "run_bucket_url": runs.bucket_url,
        "group_names": pool.group_names,
        "head_instance_id": head.instance_id if head else None,
        "mount_point": storage.mount_source if storage else None,
        "zone": planned.zone,
        "signing_public_key": signing.public,
        # Exports of other providers: OpenStack has no log service.
        "log_group": None,
        "dashboard": None,
    }


def find_owner(config: StackConfig, provider: openstack.Provider) -> Owner | None:
    """The stack whose subnet has the tag, or in an existing network a port. LookupFailedError: the lookup failed."""
    cloud = get_section(config).cloud
    fix = f"`openstack{f' --os-cloud {cloud}' if cloud else ''} subnet list` must answer"
    where = f"cloud {cloud}" if cloud else "the cloud of OS_AUTH_URL"
    lookup = Lookup(f"the subnets of {config.stack}", where, "gangway:identity", fix)
    opts, words = pulumi.InvokeOptions(provider=provider), tag_words({"gangway:stack": config.stack})
    if get_existing(config).network_id is not None:
        ports = look_up(lookup, openstack.networking.get_port_ids, tags=words, opts=opts).ids
        return Owner(f"port {ports[0]}", {}) if ports else None
    ids = look_up(lookup, openstack.networking.get_subnet_ids_v2, tags=words, opts=opts).ids
    if not ids:
        return None
    subnet = look_up(lookup, openstack.networking.get_subnet, subnet_id=ids[0], opts=opts)
    return Owner(f"subnet {ids[0]}", dict(word.partition("=")[::2] for word in subnet.all_tags))
