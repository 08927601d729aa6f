"""An `up` that would take running nodes away is refused. The head sets the sizes of scale sets, and AKS those of its
pools, and Azure's provider sends the size that Pulumi last saw with every other change of one: without a refresh, 0.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import pulumi

from components.azure.names import RUNG_TAG
from stacks.providers.azure.resource_manager import get_json

API_VERSION, POOLS_VERSION = "2024-07-01", "2024-09-01"
SCALE_SET = "azure-native:compute:VirtualMachineScaleSet"
AGENT_POOL = "azure-native:containerservice:AgentPool"


def refuse_stale_sizes(token: pulumi.Output[str]) -> pulumi.ResourceTransformation:
    """Has every scale set and every pool of nodes compared with what it is set to now, before it is changed. `token`:
    for Azure's Resource Manager, of whoever runs `up`.
    """

    async def check(args: pulumi.ResourceHookArgs) -> None:
        known = await token.future()
        seen = _size(args.old_inputs or {})
        live = await asyncio.to_thread(live_size, args.id, str(known))
        if live is not None and live != seen:
            raise pulumi.RunError(
                f"{args.name} holds {live} nodes, and Pulumi last saw {seen}: this change would send that number, and "
                "nodes would be taken away or added; run `pulumi up --refresh`, which sees them first"
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
    """As the engine's words and Azure's have it: the size of a scale set, or of a pool."""
    if "sku" in known:
        return int((known["sku"] or {}).get("capacity") or 0)
    # Of a pool Azure has it among its properties, and Pulumi beside them.
    return int((known.get("properties") or known).get("count") or 0)


def live_size(id_: str, token: str) -> int | None:
    """What a scale set or a pool is set to; None where it is gone. pulumi.RunError: nobody answers, or it may not be
    read.
    """
    version = POOLS_VERSION if "/agentPools/" in id_ else API_VERSION
    try:
        return _size(get_json(id_, version, token))
    except (OSError, ValueError, TypeError) as error:
        if getattr(error, "code", None) == 404:
            return None
        raise pulumi.RunError(
            f"{id_}: how many nodes it holds cannot be read ({error!r}), and this change would send the number that "
            "Pulumi last saw; run `az login`, and then `pulumi up --refresh`"
        ) from None
