"""Sizes the scale sets of the capacity ladder on Azure. A timer runs it repeatedly.

    python3 -m gangway.images.node.azure.fallback CONFIG_FILE https://ACCOUNT.blob.core.windows.net/runs/STACK \
        https://ACCOUNT.blob.core.windows.net/runs/STACK/JOB/breaker/held.json

`reconcile` of `gangway.images.node.fill_order` plans the sizes; this module calls Resource Manager. The job's numbers
of nodes and the mark of its end, JOB/ended-KEY, are tags of the scale sets, so that a change does not replace the head;
`gangway job --scale` sets a tag of the first. Machines that failed to start or stopped themselves count in a scale
set's size; they are deleted, to be replaced. It fills nothing once the job's last node has written ended-KEY. While
held.json exists (the circuit breaker, which `gangway breaker reset` deletes), it only removes machines. JSON lines are
events of the stack's table: `ladder-looked`, with requested and running nodes; `ladder-changed`, for each change, also
without capacity; `ladder-refused`, for other errors, such as quota or policy, which do not stop other groups;
`ladder-not-kept`.
"""

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from gangway.images.node.azure.api import ARM, COMPUTE_VERSION, AzureApi, blob_exists
from gangway.images.node.fill_order import reconcile
from gangway.images.node.web import RefusedError

# No capacity, or not at the maximum price: "Troubleshoot the ZonalAllocationFailed, AllocationFailed, or
# OverconstrainedAllocationRequest error code"; "Error messages for Azure Spot Virtual Machines and scale sets".
NO_CAPACITY = frozenset(
    {
        "AllocationFailed",
        "OverconstrainedAllocationRequest",
        "OverconstrainedZonalAllocationRequest",
        "SkuNotAvailable",
        "SpotPriceGreaterThanProvidedMaxPrice",
        "ZonalAllocationFailed",
    }
)
# Codes with the actual ones in their details.
WRAPPERS = frozenset({"Conflict", "DeploymentFailed", "ResourceDeploymentFailure", "ResourceOperationFailure"})
# Also in JSON that is quoted in JSON.
_CODE = re.compile(r'\\*"code\\*"\s*:\s*\\*"(\w+)', re.IGNORECASE)
# The status of a machine that failed to start, followed by the reason, if any.
_START_FAILED = "ProvisioningState/failed/"
CHANGED, LOOKED, NOT_KEPT, REFUSED = "ladder-changed", "ladder-looked", "ladder-not-kept", "ladder-refused"
# Tags: the job's least and most nodes, and the blob that exists once it has ended
# (`gangway.components.azure.policies`); on the first scale set, the number set by `gangway job --scale`, which a
# `pulumi up` that changes the scale set removes.
LEAST_TAG, MOST_TAG, WANTED_TAG = "gangway-nodes-min", "gangway-nodes", "gangway-nodes-wanted"
ENDED_TAG = "gangway-ended"


class Count(NamedTuple):
    """A scale set's machines: the number running, and the reasons of dead ones by id (may be empty)."""

    running: int
    dead: dict[str, str]


class Target(NamedTuple):
    """A scale set's size, and the job's least and most nodes."""

    size: int
    num_nodes: tuple[int, int]


class State(NamedTuple):
    """Kept between runs: the group being filled (-1: unknown), and the last counts."""

    active: int
    history: list[list[int]]


class Report(NamedTuple):
    """A log line: event and reason."""

    event: str
    reason: str


def nodes_wanted(tags: Mapping[str, str]) -> tuple[int, int]:
    """The job's least and most nodes by a scale set's tags; WANTED_TAG lowers the most. Raises KeyError or ValueError
    for a bad tag.

    >>> nodes_wanted({"gangway-nodes-min": "2", "gangway-nodes": "8", "gangway-nodes-wanted": "3"})
    (2, 3)
    """
    least, most = int(tags[LEAST_TAG]), int(tags[MOST_TAG])
    return least, max(least, min(most, int(tags.get(WANTED_TAG, most))))


def is_capacity_error(text: str) -> bool:
    """Whether an error of Azure's means only a lack of capacity, not a used up quota (409 too, OperationNotAllowed).

    >>> is_capacity_error('{"error": {"code": "OperationNotAllowed", "message": "... exceeding approved ... quota"}}')
    False
    """
    codes = set(_CODE.findall(text)) - WRAPPERS
    return bool(codes) and codes <= NO_CAPACITY


class Ladder:
    """The scale sets of one stack in Azure.

    Args:
        azure: the APIs.
        config: `gangway.components.azure.capacity.FallbackConfig` as JSON data.
    """

    def __init__(self, azure: AzureApi, config: dict[str, Any]) -> None:
        self._azure, self._config = azure, config
        self.groups: list[dict[str, Any]] = config["groups"]

    def count(self, group: dict[str, Any]) -> Count:
        """Counts a scale set's machines."""
        running, dead = 0, {}
        for machine in self._azure.pages(self._url(group, "/virtualMachines", "&$expand=instanceView")):
            properties = machine["properties"]
            statuses = properties.get("instanceView", {}).get("statuses", [])
            codes = [status["code"] for status in statuses]
            if "PowerState/running" in codes:
                running += 1
            elif properties.get("provisioningState") == "Failed" or "PowerState/stopped" in codes:
                dead[machine["instanceId"]] = next(filter(None, map(_start_error, statuses)), "")
        return Count(running, dead)

    def target(self, group: dict[str, Any]) -> Target:
        """The scale set's size and tags. Raises OSError for bad tags."""
        known = self._azure.call("GET", self._url(group))
        try:
            wanted = nodes_wanted(known.get("tags", {}))
        except (KeyError, ValueError):
            raise OSError(
                f"{group['name']}: the tags {LEAST_TAG}, {MOST_TAG} and {WANTED_TAG} must be numbers; fix: pulumi up"
            ) from None
        return Target(int(known["sku"]["capacity"]), wanted)

    def ended_key(self) -> str:
        """The blob that exists once the job has ended. Raises OSError without the tag."""
        group = self.groups[0]
        try:
            key: str = self._azure.call("GET", self._url(group))["tags"][ENDED_TAG]
        except KeyError:
            raise OSError(f"{group['name']}: has no tag {ENDED_TAG}; fix: pulumi up") from None
        return key

    def set_size(self, group: dict[str, Any], size: int) -> None:
        """Raises RefusedError, also without capacity."""
        sku = {"name": group["machine_type"], "tier": "Standard", "capacity": size}
        self._azure.call("PATCH", self._url(group), {"sku": sku})

    def delete(self, group: dict[str, Any], identity: str) -> None:
        """Deletes a machine; the scale set shrinks by one."""
        self._azure.call("DELETE", self._url(group, f"/virtualMachines/{identity}"))

    def _url(self, group: dict[str, Any], below: str = "", more: str = "") -> str:
        place = f"subscriptions/{self._config['subscription_id']}/resourceGroups/{self._config['resource_group_name']}"
        path = f"{place}/providers/Microsoft.Compute/virtualMachineScaleSets/{group['name']}{below}"
        return f"{ARM}{path}?api-version={COMPUTE_VERSION}{more}"


def _start_error(status: dict[str, Any]) -> str:
    """Code and text of the status of a machine that failed to start; else empty."""
    code, text = status["code"], status.get("message", "")
    return f'"code": "{code[len(_START_FAILED) :]}", {text}' if code.startswith(_START_FAILED) else ""


def reconcile_once(azure: AzureApi, config: dict[str, Any], state_file: Path, *, held: bool = False) -> list[Report]:
    """Counts once, and applies the plan. Returns changes and errors. `held`: only deletes dead machines, which still
    cost money, and shrinks.
    """
    ladder = Ladder(azure, config)
    state = _read_state(state_file, len(ladder.groups))
    counts = [ladder.count(group) for group in ladder.groups]
    reports = _delete_dead(ladder, counts)
    targets = [ladder.target(group) for group in ladder.groups]
    sizes = [target.size for target in targets]
    least, most = targets[0].num_nodes
    if held:
        return reports + _resize(ladder, sizes, [min(size, most) for size in sizes])
    _log_event(LOOKED, f"requested: {least} to {most} nodes", running=[count.running for count in counts], asked=sizes)
    history = [*state.history, [count.running for count in counts]][-config["window"] :]
    active = sizes.index(max(sizes)) if state.active < 0 else state.active
    plan = reconcile(SimpleNamespace(**config), targets[0].num_nodes, history, sizes, active)
    # Before the changes, so that a failed one is not planned again from the same counts.
    state_file.parent.mkdir(parents=True, exist_ok=True)
    state_file.write_text(json.dumps({"active": plan.active, "history": [] if plan.forget else history}))
    return reports + _resize(ladder, sizes, plan.sizes)


def _delete_dead(ladder: Ladder, counts: Sequence[Count]) -> list[Report]:
    """Deletes machines that will never run. Only a lack of capacity is not reported as refused."""
    reports = []
    for group, count in zip(ladder.groups, counts, strict=True):
        for identity, why in count.dead.items():
            ladder.delete(group, identity)
            event = REFUSED if why and not is_capacity_error(why) else CHANGED
            reason = f" ({why})" if why else ""
            reports.append(Report(event, f"{group['name']}: deleted {identity}, failed to start or stopped{reason}"))
    return reports


def _resize(ladder: Ladder, sizes: Sequence[int], planned: Sequence[int]) -> list[Report]:
    """Shrinks groups; grows others only if none shrinks, so that one is empty before the next is filled."""
    changes = list(zip(ladder.groups, sizes, planned, strict=True))
    shrinking = [change for change in changes if change[2] < change[1]]
    reports = []
    for group, size, new in shrinking or [change for change in changes if change[2] > change[1]]:
        change = f"{group['name']} ({group['kind']}): {size} -> {new} nodes"
        try:
            ladder.set_size(group, new)
        except RefusedError as error:
            if is_capacity_error(str(error)):
                reports.append(Report(CHANGED, f"{change}: no capacity now"))
            else:
                reports.append(Report(REFUSED, f"{change}: {error}"))
        else:
            reports.append(Report(CHANGED, change))
    return reports


def _read_state(file: Path, groups: int) -> State:
    """The previous state; empty after a boot or if the groups differ."""
    try:
        found = json.loads(file.read_text("utf-8"))
        state = State(found["active"], found["history"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return State(-1, [])
    is_valid = state.active < groups and all(len(count) == groups for count in state.history)
    return state if is_valid else State(-1, [])


def main(argv: Sequence[str]) -> int:
    """Runs once."""
    config_file, runs_url, held_url = argv
    state_file = Path(os.environ.get("GANGWAY_STATE_DIR", "/run/gangway"), "fill.json")
    try:
        azure = AzureApi.from_environment()
        config = json.loads(Path(config_file).read_text("utf-8"))
        ended_url = f"{runs_url}/{Ladder(azure, config).ended_key()}"
        if blob_exists(azure, ended_url):
            print(f"gangway: the job has ended ({ended_url} exists): no groups are filled", file=sys.stderr, flush=True)
            return 0
        held = blob_exists(azure, held_url)
        if held:
            print(f"gangway: launches are held ({held_url} exists): requesting no nodes", file=sys.stderr, flush=True)
        reports = reconcile_once(azure, config, state_file, held=held)
    except OSError as error:
        what = "not allowed" if isinstance(error, RefusedError) and error.status == 403 else "unable"
        _log_event(NOT_KEPT, f"{what} to size the groups, will retry in a minute: {error}")
        return 1
    for event, reason in reports:
        _log_event(event, reason)
    return 1 if any(report.event == REFUSED for report in reports) else 0


def _log_event(event: str, reason: str, **fields: Any) -> None:
    print(json.dumps({"event": event, "reason": reason, **fields}), file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
