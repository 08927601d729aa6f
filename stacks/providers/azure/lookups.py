"""The lookups of a stack on Azure, made before its first resource."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

import pulumi
import pulumi_azure_native as azure

from gangway.components.azure.launch import Image
from gangway.components.core.lookup import Lookup, look_up
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.azure.plan import AzurePlan
from gangway.stacks.providers.azure.resource_manager import get_json

IMAGES_API_VERSION = "2024-07-01"
_VERSION = re.compile(r"[0-9]+(\.[0-9]+){2}")
LOGIN = "run `az login`; `az account show` must answer"


@dataclass(frozen=True)
class Lookups:
    """The answers.

    Attributes:
        token: for Resource Manager, of the user who runs `up`.
        tenant_id: the directory of the subscription.
        images: the newest versions of Marketplace images without a fixed version, by `nodes` or `head`.
    """

    token: pulumi.Output[str]
    tenant_id: str
    images: Mapping[str, str]


def look_up_all(
    config: StackConfig, planned: AzurePlan, provider: azure.Provider, images: Mapping[str, Image]
) -> Lookups:
    """Makes all lookups. LookupFailedError: the first that fails."""
    opts = pulumi.InvokeOptions(provider=provider)
    token = look_up(_lookup(planned, "an access token"), azure.authorization.get_client_token, opts=opts).token
    tenant = look_up(_lookup(planned, "the tenant"), azure.authorization.get_client_config, opts=opts).tenant_id
    newest = {
        what: newest_version(planned.subscription_id, config.region, image, token)
        for what, image in images.items()
        if image.floats
    }
    return Lookups(pulumi.Output.secret(token), tenant, newest)


def _lookup(planned: AzurePlan, subject: str) -> Lookup:
    fix = f"{LOGIN}, and gangway:azure.subscription_id must be a subscription that you may use"
    return Lookup(subject, f"subscription {planned.subscription_id}", "gangway:azure.subscription_id", fix)


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
        versions = [str(one["name"]) for one in get_json(path, IMAGES_API_VERSION, token)]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise lookup.failed(repr(error)) from None
    if not (numbers := [version for version in versions if _VERSION.fullmatch(version)]):
        raise lookup.failed("no version found")
    return max(numbers, key=lambda version: tuple(map(int, version.split("."))))
