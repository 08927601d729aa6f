"""The version of an image of Azure's Marketplace that is the newest now: Resource Manager's, for whoever runs `up`."""

import asyncio
import json
import os
import re
from collections.abc import Awaitable
from urllib.parse import quote

import pulumi

from components.azure.launch import Image

API_URL = "GANGWAY_API_URL"
"""In tests: what stands before every host."""
API_VERSION = "2024-07-01"
TIMEOUT_SEC = 30.0
_VERSION = re.compile(r"[0-9]+(\.[0-9]+){2}")


def newest_version(subscription_id: str, location: str, image: Image, token: pulumi.Output[str]) -> pulumi.Output[str]:
    """The newest version of an image by its publisher, offer and SKU. pulumi.RunError, inside the output: nobody
    answers, or there is none. `token`: for Azure's Resource Manager; a plan has none, and names the version.
    """

    def ask(found: str) -> Awaitable[str]:
        # Beside the program, which has other things to declare meanwhile.
        return asyncio.to_thread(_newest, subscription_id, location, image, found)

    # A version is no secret, as what asks for it is.
    return pulumi.Output.unsecret(token.apply(ask))


def _newest(subscription_id: str, location: str, image: Image, token: str) -> str:
    if token.startswith("${"):
        return f"${{newest version of {image.offer}}}"
    # Here, so that a plan loads nothing of HTTP. Unlike on a machine of the stack, a proxy may stand in between.
    from urllib.request import Request, urlopen

    names = [quote(name or "", safe="") for name in (location, image.publisher, image.offer, image.sku)]
    path = "locations/{}/publishers/{}/artifacttypes/vmimage/offers/{}/skus/{}/versions".format(*names)
    host = "management.azure.com"
    root = f"https://{host}" if (api_url := os.environ.get(API_URL)) is None else f"{api_url}/{host}"
    place = f"{root}/subscriptions/{subscription_id}/providers/Microsoft.Compute/{path}?api-version={API_VERSION}"
    urn = f"{image.publisher}:{image.offer}:{image.sku}"
    try:
        with urlopen(Request(place, headers={"Authorization": f"Bearer {token}"}), timeout=TIMEOUT_SEC) as answer:
            versions = [str(one["name"]) for one in json.load(answer)]
    except (OSError, ValueError, KeyError, TypeError) as error:
        fix = "run `az login`, with the role Reader; or write the version into gangway:cluster.image_id"
        raise pulumi.RunError(f"the versions of {urn} in {location} cannot be listed: {error!r}; {fix}") from None
    if not (numbers := [version for version in versions if _VERSION.fullmatch(version)]):
        raise pulumi.RunError(f"there is no version of {urn} in {location}; name another image in image_id")
    return max(numbers, key=lambda version: tuple(map(int, version.split("."))))
