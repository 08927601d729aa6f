"""Finds the stack that uses an identity in an Azure subscription, by the networks that carry its tag."""

import pulumi
import pulumi_azure_native as azure

from gangway.components.core.lookup import Lookup, look_up
from gangway.stacks.base.ownership import Owner
from gangway.stacks.providers.azure.lookups import LOGIN
from gangway.stacks.providers.azure.resource_manager import get_json

API_VERSION = "2021-04-01"
NETWORK = "microsoft.network/virtualnetworks"
"""A destroyed stack leaves its resource group, storage account and vault behind, but no network."""


def find_owner(stack: str, subscription_id: str, provider: azure.Provider) -> Owner | None:
    """The stack whose network has the tag. LookupFailedError: the lookup failed."""
    fix = f"{LOGIN}, and you need the role Reader"
    lookup = Lookup(f"the networks of {stack}", f"subscription {subscription_id}", "gangway:identity", fix)
    opts = pulumi.InvokeOptions(provider=provider)
    token = look_up(lookup, azure.authorization.get_client_token, opts=opts).token
    tagged = {"$filter": f"tagName eq 'gangway-stack' and tagValue eq '{stack}'"}
    try:
        found = get_json(f"/subscriptions/{subscription_id}/resources", API_VERSION, token, tagged)["value"]
        networks = [one for one in found if str(one["type"]).lower() == NETWORK]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise lookup.failed(repr(error)) from None
    return Owner(f"network {networks[0]['id']}", networks[0].get("tags") or {}) if networks else None
