"""Refuses an `up` that would remove running nodes. The head resizes scale sets, and AKS its pools, but Pulumi's
provider sends the size in its state, 0 without a refresh, with every change.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import pulumi

from gangway.components.azure.names import RUNG_TAG
from gangway.stacks.providers.azure.resource_manager import get_json

API_VERSION, POOLS_VERSION = "2024-07-01", "2024-09-01"
SCALE_SET = "azure-native:compute:VirtualMachineScaleSet"
AGENT_POOL = "azure-native:containerservice:AgentPool"


def refuse_stale_sizes(token: pulumi.Output[str]) -> pulumi.ResourceTransformation:
    """Compares the size of each scale set and node pool with Azure's before it is changed. `token`: for Resource
    Manager, of the user who runs `up`.
    """

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
    """The size of a scale set or a pool, in the engine's or Azure's format."""
    if "sku" in known:
        return int((known["sku"] or {}).get("capacity") or 0)
    # A pool's count is in `properties` in Azure's format, and at the top level in Pulumi's.
    return int((known.get("properties") or known).get("count") or 0)


def live_size(id_: str, token: str) -> int | None:
    """The current size of a scale set or a pool; None if it no longer exists. pulumi.RunError: no answer, or no
    permission.
    """
    version = POOLS_VERSION if "/agentPools/" in id_ else API_VERSION
    try:
        return _size(get_json(id_, version, token))
    except (OSError, ValueError, TypeError) as error:
        if getattr(error, "code", None) == 404:
            return None
        raise pulumi.RunError(
            f"{id_}: cannot read the number of nodes ({error!r}), and this change would reset it to the one in "
            "Pulumi's state; run `az login`, then `pulumi up --refresh`"
        ) from None
