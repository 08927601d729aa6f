"""Which stack has an identity in a subscription of Azure: by the networks that carry its tag."""

import json
import os
from urllib.parse import urlencode

import pulumi
import pulumi_azure_native as azure

from components.core.lookup import Lookup, look_up
from stacks.providers.azure.lookups import LOGIN
from stacks.providers.azure.newest_image import API_URL, TIMEOUT_SEC
from stacks.providers.ownership import Owner

API_VERSION = "2021-04-01"
NETWORK = "microsoft.network/virtualnetworks"
"""A stack that was destroyed leaves its runs' group, account and vault; a network has none but one that is up."""


def find_owner(stack: str, subscription_id: str, provider: azure.Provider) -> Owner | None:
    """The stack whose network has the tag. LookupFailedError: Azure does not answer."""
    fix = f"{LOGIN}, and you need the role Reader"
    lookup = Lookup(f"the networks of {stack}", f"subscription {subscription_id}", "gangway:identity", fix)
    opts = pulumi.InvokeOptions(provider=provider)
    token = look_up(lookup, azure.authorization.get_client_token, opts=opts).token
    # Here, so that a plan loads nothing of HTTP.
    from urllib.request import Request, urlopen

    host = "management.azure.com"
    root = f"https://{host}" if (api_url := os.environ.get(API_URL)) is None else f"{api_url}/{host}"
    query = {"$filter": f"tagName eq 'gangway-stack' and tagValue eq '{stack}'", "api-version": API_VERSION}
    url = f"{root}/subscriptions/{subscription_id}/resources?{urlencode(query)}"
    try:
        with urlopen(Request(url, headers={"Authorization": f"Bearer {token}"}), timeout=TIMEOUT_SEC) as answer:
            networks = [one for one in json.load(answer)["value"] if str(one["type"]).lower() == NETWORK]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise lookup.failed(repr(error)) from None
    return Owner(f"network {networks[0]['id']}", networks[0].get("tags") or {}) if networks else None
