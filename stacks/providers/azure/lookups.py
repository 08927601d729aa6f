"""The lookups of a stack on Azure, made before its first resource."""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_azure_native as azure

from components.azure.launch import Image
from components.core.lookup import Lookup, look_up
from stacks.config.stack_config import StackConfig
from stacks.providers.azure.newest_image import newest_version
from stacks.providers.azure.plan import AzurePlan

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
