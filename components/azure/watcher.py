"""Which network watcher a flow log belongs to: Azure's own of the region, or the one that somebody names.

Pure, without the SDK, so that a stack file is checked in no time.
"""

import re
from dataclasses import dataclass

from components.findings import InputError

__all__ = ["OWN_GROUP", "Watcher", "plan_watcher"]

OWN_GROUP = "NetworkWatcherRG"
"""The resource group of those that Azure makes by itself, one a region ("Enable or disable Azure Network Watcher")."""

_ID = re.compile(
    r"/subscriptions/(?P<subscription>[0-9a-f-]{36})/resourceGroups/(?P<group>[-\w.()]{1,90})"
    r"/providers/Microsoft\.Network/networkWatchers/(?P<name>[-\w.]{1,80})",
    re.IGNORECASE | re.ASCII,
)
_SHORT = re.compile(r"(?P<group>[-\w.()]{1,90})/(?P<name>[-\w.]{1,80})", re.ASCII)


@dataclass(frozen=True)
class Watcher:
    """A network watcher.

    Attributes:
        resource_group_name: its group.
        name: its name.
        by_azure: whether Azure makes it by itself, some time after the region's first network.
    """

    resource_group_name: str
    name: str
    by_azure: bool


def plan_watcher(
    written: str | None,
    region: str,
    subscription_id: str | None = None,
    place: str = "gangway:azure.network_watcher",
) -> Watcher:
    """The watcher of a region.

    Args:
        written: its resource id, or GROUP/NAME; None for the one that Azure makes.
        region: of the network.
        subscription_id: of the network, which a watcher's id must have as well; None where it is not looked at.
        place: config path, for messages.

    Raises:
        InputError: neither, or in another subscription.
    """
    if written is None:
        return Watcher(OWN_GROUP, f"NetworkWatcher_{region}", by_azure=True)
    found = _ID.fullmatch(written) or _SHORT.fullmatch(written)
    if found is None:
        raise InputError(
            place,
            "not a network watcher",
            value=written,
            allowed="its resource id, or GROUP/NAME",
            fix='copy its id from `az network watcher list --query "[].{region: location, id: id}"`, or leave it out '
            f"for {OWN_GROUP}/NetworkWatcher_{region}",
        )
    other = found.groupdict().get("subscription")
    if subscription_id is not None and other is not None and other.lower() != subscription_id.lower():
        raise InputError(
            place,
            "a flow log belongs to a watcher of its network's own subscription",
            value=written,
            allowed=f"a watcher in the subscription {subscription_id}",
            fix=f"make one: `az network watcher configure --locations {region} --enabled true --resource-group GROUP`",
        )
    return Watcher(found["group"], found["name"], by_azure=False)
