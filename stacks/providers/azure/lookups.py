"""The lookups of a stack on Azure: before its first resource, and before a change to a group of nodes."""

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pulumi
import pulumi_azure_native as azure

from gangway.components.azure.api import get_json
from gangway.components.azure.launch import Image
from gangway.components.azure.policies import RUNG_TAG
from gangway.components.core.lookup import Lookup, look_up
from gangway.stacks.base.ownership import Owner, built_identities, own_state
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.azure.existing import problems
from gangway.stacks.providers.azure.existing_facts import read_facts
from gangway.stacks.providers.azure.existing_outputs import GivenIdentity
from gangway.stacks.providers.azure.existing_settings import PLACE, ExistingConfig
from gangway.stacks.providers.azure.plan import AzurePlan
from gangway.stacks.providers.azure.settings import get_existing

IMAGES_API_VERSION = "2024-07-01"
_VERSION = re.compile(r"[0-9]+(\.[0-9]+){2}")
LOGIN = "run `az login`; `az account show` must answer"


@dataclass(frozen=True)
class Lookups:
    """The answers. `token`: for Resource Manager; `images`: newest Marketplace versions, by `nodes` or `head`."""

    token: pulumi.Output[str]
    tenant_id: str
    images: Mapping[str, str]
    given: "Given"


@dataclass(frozen=True)
class Given:
    """What only Azure knows of the existing resources; empty where there are none."""

    registry_host: str = ""
    file_system_address: str = ""
    node_identity: GivenIdentity | None = None
    head_identity: GivenIdentity | None = None


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
    return Lookups(pulumi.Output.secret(token), tenant, newest, check_existing(config, planned, token))


def check_existing(config: StackConfig, planned: AzurePlan, token: str) -> Given:
    """Reads the existing resources. ExceptionGroup of InputErrors: some do not fit; LookupFailedError: no answer.
    Without a `token`, in a plan, placeholders.
    """
    own = get_existing(config)
    if not own.ids:
        return Given()
    if token.startswith("${"):
        return _given(own, lambda setting, key: f"${{{setting}.{key}}}")

    def get(path: str, api_version: str, query: Mapping[str, str] | None = None, /) -> Any:
        try:
            return get_json(path, api_version, token, query)
        except (OSError, ValueError) as error:
            if getattr(error, "code", None) in (403, 404):
                return None
            fix = "run `az login` as a user with the role Reader there, and try again"
            raise Lookup(path, f"subscription {planned.subscription_id}", PLACE, fix).failed(repr(error)) from None

    facts = read_facts(own, get)
    is_built = bool(built_identities(own_state()))
    found = [one.to_error(own) for one in problems(config, planned, facts) if not (one.only_new and is_built)]
    if found:
        raise ExceptionGroup("existing resources do not fit", found)
    return _given(own, lambda setting, key: facts.text(setting, "properties", *key.split(".")))


def _given(own: ExistingConfig, text: Callable[[str, str], str]) -> Given:
    """`text`: of a setting's resource, by its key in Azure's answer."""
    node, head = (
        GivenIdentity(own.ids[name], pulumi.Output.from_input(text(name, "clientId"))) if name in own.ids else None
        for name in ("node_identity_id", "head_identity_id")
    )
    return Given(text("registry_id", "loginServer"), text("file_system_id", "clientInfo.mgsAddress"), node, head)


def _lookup(planned: AzurePlan, subject: str) -> Lookup:
    fix = f"{LOGIN}, and gangway:azure.subscription_id must be a subscription that you may use"
    return Lookup(subject, f"subscription {planned.subscription_id}", "gangway:azure.subscription_id", fix)


def newest_version(subscription_id: str, location: str, image: Image, token: str) -> str:
    """The newest version of an image. LookupFailedError: no answer, or no version. Without a `token` a placeholder."""
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


NETWORKS_API_VERSION = "2021-04-01"
NETWORKS = ("microsoft.network/virtualnetworks", "microsoft.compute/virtualmachinescalesets")
"""A destroyed stack leaves its resource group, storage account and vault behind, but neither network nor scale set."""


def find_owner(stack: str, subscription_id: str, provider: azure.Provider) -> Owner | None:
    """The stack whose network or scale set has the tag. LookupFailedError: the lookup failed."""
    fix = f"{LOGIN}, and you need the role Reader"
    lookup = Lookup(f"the networks of {stack}", f"subscription {subscription_id}", "gangway:identity", fix)
    opts = pulumi.InvokeOptions(provider=provider)
    token = look_up(lookup, azure.authorization.get_client_token, opts=opts).token
    tagged = {"$filter": f"tagName eq 'gangway-stack' and tagValue eq '{stack}'"}
    try:
        found = get_json(f"/subscriptions/{subscription_id}/resources", NETWORKS_API_VERSION, token, tagged)["value"]
        networks = [one for one in found if str(one["type"]).lower() in NETWORKS]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise lookup.failed(repr(error)) from None
    return Owner(f"resource {networks[0]['id']}", networks[0].get("tags") or {}) if networks else None


SETS_VERSION, POOLS_VERSION = "2024-07-01", "2024-09-01"
SCALE_SET = "azure-native:compute:VirtualMachineScaleSet"
AGENT_POOL = "azure-native:containerservice:AgentPool"


def refuse_stale_sizes(token: pulumi.Output[str]) -> pulumi.ResourceTransformation:
    """Compare the size of each scale set and node pool with Azure's before a change. `token`: for Resource Manager."""

    async def check(args: pulumi.ResourceHookArgs) -> None:
        known = await token.future()
        seen = _size(args.old_inputs or {})
        live = await asyncio.to_thread(live_size, args.id, str(known))
        if live is not None and live != seen:
            raise pulumi.RunError(
                f"{args.name} has {live} nodes, but {seen} in Pulumi's state: this change would remove or add nodes; "
                "run `pulumi up --refresh`, which reads the size first"
            )

    hook = pulumi.ResourceHook("gangway-live-size", check, pulumi.ResourceHookOptions(on_dry_run=True))

    def transform(args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
        tags = args.props.get("tags")
        of_rung = args.type_ == SCALE_SET and isinstance(tags, dict) and RUNG_TAG in tags
        if not of_rung and args.type_ != AGENT_POOL:
            return None
        guarded = pulumi.ResourceOptions(hooks=pulumi.ResourceHookBinding(before_update=[hook]))
        return pulumi.ResourceTransformationResult(args.props, pulumi.ResourceOptions.merge(args.opts, guarded))

    return transform


def _size(known: Mapping[str, Any]) -> int:
    if "sku" in known:
        return int((known["sku"] or {}).get("capacity") or 0)
    # A pool's count is in `properties` in Azure's format, and at the top level in Pulumi's.
    return int((known.get("properties") or known).get("count") or 0)


def live_size(id_: str, token: str) -> int | None:
    """The current size of a scale set or pool; None if it is gone. pulumi.RunError: no answer, or no permission."""
    version = POOLS_VERSION if "/agentPools/" in id_ else SETS_VERSION
    try:
        return _size(get_json(id_, version, token))
    except (OSError, ValueError, TypeError) as error:
        if getattr(error, "code", None) == 404:
            return None
        raise pulumi.RunError(
            f"{id_}: cannot read the number of nodes ({error!r}), and this change would reset it to the one in "
            "Pulumi's state; run `az login`, then `pulumi up --refresh`"
        ) from None
