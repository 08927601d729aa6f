"""The newest version of an image in Azure's Marketplace, from Resource Manager."""

import re
from urllib.parse import quote

from components.azure.launch import Image
from components.core.lookup import Lookup
from stacks.providers.azure.resource_manager import get_json

API_VERSION = "2024-07-01"
_VERSION = re.compile(r"[0-9]+(\.[0-9]+){2}")


def newest_version(subscription_id: str, location: str, image: Image, token: str) -> str:
    """The newest version of an image by its publisher, offer and SKU. LookupFailedError: no answer, or no version.
    `token`: for Resource Manager; a plan has none, and returns a placeholder.
    """
    if token.startswith("${"):
        return f"${{newest version of {image.offer}}}"
    names = [quote(name or "", safe="") for name in (location, image.publisher, image.offer, image.sku)]
    image_path = "locations/{}/publishers/{}/artifacttypes/vmimage/offers/{}/skus/{}/versions".format(*names)
    path = f"/subscriptions/{subscription_id}/providers/Microsoft.Compute/{image_path}"
    urn = f"{image.publisher}:{image.offer}:{image.sku}"
    fix = "run `az login` as a user with the role Reader; or set gangway:cluster.image_id to a version or another image"
    lookup = Lookup(f"the newest version of {urn}", location, "gangway:cluster.image_id", fix)
    try:
        versions = [str(one["name"]) for one in get_json(path, API_VERSION, token)]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise lookup.failed(repr(error)) from None
    if not (numbers := [version for version in versions if _VERSION.fullmatch(version)]):
        raise lookup.failed("no version found")
    return max(numbers, key=lambda version: tuple(map(int, version.split("."))))
