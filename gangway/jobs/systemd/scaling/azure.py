"""Resizes Azure's scale sets: writes the number into a tag of the first rung's, and the head acts on it.

Only the head sets sizes (`gangway.images.node.azure.fallback`), since only it fills lower rungs; the caller only needs
permission to write tags. Azure chooses the nodes to remove, the newest, and notifies them; nodes of spot scale sets are
not notified, so none is removed there.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from gangway.components.core.findings import InputError
from gangway.components.core.http_session import Session
from gangway.images.node.azure.api import COMPUTE_VERSION
from gangway.images.node.azure.fallback import MOST_TAG, WANTED_TAG, nodes_wanted
from gangway.jobs.systemd.scaling.base import Change, GroupState, Rest, Scaler, get_tags, read_change_tags
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.program import get_program

SUSPENDS_LAUNCHES, AFTER_RESET = False, ""
API_URL = "https://management.azure.com"
TAGS_VERSION = "2021-04-01"
_FIX = "az login, with the rights that docs/controller.md lists, on the stack's resource group"
_SETS = "Microsoft.Compute/virtualMachineScaleSets"
_WITHOUT_NOTICE = (
    "Azure deletes nodes of a spot scale set without notice, so all progress since the last checkpoint would be lost"
)


class _ScaleSet(NamedTuple):
    """`size`: its current setting; `most`, `wanted`: nodes of the job, from its tags."""

    size: int
    most: int
    wanted: int
    running: int
    is_spot: bool
    tags: dict[str, str]


class AzureScaler:
    """The scale sets of one resource group; `together`: whether one job may have nodes of several."""

    def __init__(
        self,
        session: Session,
        subscription_id: str,
        resource_group: str,
        *,
        together: bool,
        is_held: bool,
        api_url: str = API_URL,
    ) -> None:
        self._rest = Rest(session, api_url, _FIX)
        self._place = f"/subscriptions/{subscription_id}/resourceGroups/{resource_group}/providers/{_SETS}"
        self._together, self._is_held = together, is_held

    def get_groups(self, names: Sequence[str]) -> list[GroupState]:
        """The first one's number comes from its tags, the others' from the size set by the head."""
        sets = [self._read(name) for name in names]
        first = sets[0]
        # The scale set that would shrink: if one at a time is filled, that one.
        filled = first if self._together else max(sets, key=lambda one: one.size)
        changed_at, changed_why = read_change_tags(first.tags)
        state = GroupState(
            name=names[0],
            most=first.most,
            # All at 0: the head requests none, or none are available; a number would mean nothing.
            asked=first.wanted if any(one.size for one in sets) else 0,
            in_service=first.running,
            is_held=self._is_held,
            changed_at=changed_at,
            changed_why=changed_why,
            why_not_in=_WITHOUT_NOTICE if filled.is_spot else "",
        )
        below = zip(names[1:], sets[1:], strict=True)
        return [state, *(GroupState(name, one.most, one.size, one.running, self._is_held) for name, one in below)]

    def carry_out(self, change: Change, now: datetime) -> str:
        """Sets tags of the first scale set, in one call."""
        tags = {WANTED_TAG: str(change.nodes), **get_tags(change, now)}
        # By the tags API: a PATCH of the scale set would need permission to change it.
        self._rest.call(
            f"scale set {change.group}, tags for {change.nodes} nodes",
            "PATCH",
            f"{self._place}/{change.group}/providers/Microsoft.Resources/tags/default",
            {"api-version": TAGS_VERSION},
            {"operation": "Merge", "properties": {"tags": tags}},
        )
        return "the head applies it within a minute"

    def _read(self, name: str) -> _ScaleSet:
        what, path = f"scale set {name}", f"{self._place}/{name}"
        found = self._rest.call(what, "GET", path, {"api-version": COMPUTE_VERSION})
        tags = {str(key): str(value) for key, value in (found.get("tags") or {}).items()}
        try:
            most, (_, wanted) = int(tags[MOST_TAG]), nodes_wanted(tags)
        except (KeyError, ValueError) as error:
            raise InputError(
                what, f"its tags do not say how many nodes the job has: {error}", fix="`pulumi up --refresh`"
            ) from None
        profile = found.get("properties", {}).get("virtualMachineProfile", {})
        running = sum(map(_runs, self.machines(name)))
        return _ScaleSet(int(found["sku"]["capacity"]), most, wanted, running, profile.get("priority") == "Spot", tags)

    def machines(self, name: str) -> Iterator[dict[str, Any]]:
        """The machines of a scale set, with their states. InputError: they cannot be read."""
        what, path = f"the machines of scale set {name}", f"{self._place}/{name}/virtualMachines"
        params = {"api-version": COMPUTE_VERSION, "$expand": "instanceView"}
        while True:
            page = self._rest.call(what, "GET", path, params)
            yield from page.get("value", [])
            if not (following := page.get("nextLink")):
                return
            # Only the link's query: the token must not go to another address.
            params = {**params, **dict(parse_qsl(urlsplit(following).query))}


def _runs(machine: dict[str, Any]) -> bool:
    statuses = machine["properties"].get("instanceView", {}).get("statuses", [])
    return any(status["code"] == "PowerState/running" for status in statuses)


def open_scaler(config: StackConfig, outputs: Mapping[str, Any], names: Sequence[str], *, is_held: bool) -> Scaler:
    """For a stack that is up. InputError: not logged in."""
    from gangway.components.core.http_session import open_session

    planned = get_program(config.provider).plan(config)
    return AzureScaler(
        open_session(planned.subscription_id),
        planned.subscription_id,
        str(outputs["resource_group"]),
        together=planned.machine.infiniband is None,
        is_held=is_held,
    )
