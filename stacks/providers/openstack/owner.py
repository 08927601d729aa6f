"""Finds the stack that uses an identity in an OpenStack project, by the tag of its subnet. A destroyed stack leaves
only its run container, whose name is random.
"""

import pulumi
import pulumi_openstack as openstack

from gangway.components.core.lookup import Lookup, look_up
from gangway.components.openstack.tags import tag_words
from gangway.stacks.base.ownership import Owner
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.openstack.plan import get_section


def find_owner(config: StackConfig, provider: openstack.Provider) -> Owner | None:
    """The stack whose subnet has the tag. LookupFailedError: the lookup failed."""
    cloud = get_section(config).cloud
    fix = f"`openstack{f' --os-cloud {cloud}' if cloud else ''} subnet list` must answer"
    where = f"cloud {cloud}" if cloud else "the cloud of OS_AUTH_URL"
    lookup = Lookup(f"the subnets of {config.stack}", where, "gangway:identity", fix)
    opts, words = pulumi.InvokeOptions(provider=provider), tag_words({"gangway:stack": config.stack})
    ids = look_up(lookup, openstack.networking.get_subnet_ids_v2, tags=words, opts=opts).ids
    if not ids:
        return None
    subnet = look_up(lookup, openstack.networking.get_subnet, subnet_id=ids[0], opts=opts)
    return Owner(f"subnet {ids[0]}", dict(word.partition("=")[::2] for word in subnet.all_tags))
