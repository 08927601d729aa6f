"""The version of an image of Azure's Marketplace that is the newest now: Resource Manager's, for whoever runs `up`."""

import json
import os
import re
from urllib.parse import quote

from components.azure.launch import Image
from components.core.lookup import Lookup

API_URL = "GANGWAY_API_URL"
"""In tests: what stands before every host."""
API_VERSION = "2024-07-01"
TIMEOUT_SEC = 30.0
_VERSION = re.compile(r"[0-9]+(\.[0-9]+){2}")


def newest_version(subscription_id: str, location: str, image: Image, token: str) -> str:
    """The newest version of an image by its publisher, offer and SKU. LookupFailedError: nobody answers, or there is
    none. `token`: for Azure's Resource Manager; a plan has none, and names the version.
    """
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
    fix = "run `az login`, with the role Reader; or write a version, or another image, into gangway:cluster.image_id"
    lookup = Lookup(f"the newest version of {urn}", location, "gangway:cluster.image_id", fix)
    try:
        with urlopen(Request(place, headers={"Authorization": f"Bearer {token}"}), timeout=TIMEOUT_SEC) as answer:
            versions = [str(one["name"]) for one in json.load(answer)]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise lookup.failed(repr(error)) from None
    if not (numbers := [version for version in versions if _VERSION.fullmatch(version)]):
        raise lookup.failed("there is none")
    return max(numbers, key=lambda version: tuple(map(int, version.split("."))))
