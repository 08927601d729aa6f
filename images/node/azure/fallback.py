"""Keeps the order of the capacity ladder on Azure: asks for the nodes of every scale set. One look; a timer repeats it.

    python3 -m images.node.azure.fallback CONFIG_FILE https://ACCOUNT.blob.core.windows.net/runs/STACK/JOB/ended-KEY \
        https://ACCOUNT.blob.core.windows.net/runs/STACK/JOB/breaker/held.json

What is decided is `reconcile` of `images.node.fill_order`; here Resource Manager is asked and told. How many nodes the
job wants stands in the scale sets' tags, so that another number is no other head: also a smaller one that is asked for
while it runs (`gangway job --scale`), by a tag of the first. Machines that were never made, or that have stopped by
themselves, count in a scale set's size and never run: they are deleted, so that others come.
Nothing is filled for a job that has ended: the node on which it ends says so by a blob. Nor while held.json is
there, which a node puts that gave itself up as one too many, until somebody takes it away (`gangway breaker reset`):
then machines are only taken away. What a look has seen and done are lines of JSON, which the stack's table has as
events: `ladder-looked`, with how many nodes are wanted and run; `ladder-changed`, one for each change, also where there
are no machines now; `ladder-refused`, with Azure's words, where it refuses them for another reason (a quota, a policy),
which takes no other group its turn; `ladder-not-kept`.
"""

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from images.node.azure.api import ARM, COMPUTE_VERSION, AzureApi, blob_exists
from images.node.fill_order import reconcile
from images.node.web import RefusedError

# "Troubleshoot the ZonalAllocationFailed, AllocationFailed, or OverconstrainedAllocationRequest error code"; "Error
# messages for Azure Spot Virtual Machines and scale sets": too few machines, or none at the price that is the cap.
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
# Codes that say only that there are others in their details.
WRAPPERS = frozenset({"Conflict", "DeploymentFailed", "ResourceDeploymentFailure", "ResourceOperationFailure"})
# In an answer, or in one that stands in another's text.
_CODE = re.compile(r'\\*"code\\*"\s*:\s*\\*"(\w+)', re.IGNORECASE)
# A machine's status where it could not be made: with the reason at the end, where there is one.
_NEVER_MADE = "ProvisioningState/failed/"
CHANGED, LOOKED, NOT_KEPT, REFUSED = "ladder-changed", "ladder-looked", "ladder-not-kept", "ladder-refused"
# Of a scale set: how many nodes the job has at least, and at most (`components.azure.names`). Of the first: how many
# somebody asks for now; no program declares it, so that an `up` that changes the scale set takes it away.
LEAST_TAG, MOST_TAG, WANTED_TAG = "gangway-nodes-min", "gangway-nodes", "gangway-nodes-wanted"


class Count(NamedTuple):
    """A scale set's machines: how many run, and those that never will, by id: why, where Azure says it."""

    running: int
    dead: dict[str, str]


class Asked(NamedTuple):
    """What a scale set is set to, and how many nodes the job wants, least and most."""

    size: int
    num_nodes: tuple[int, int]


class State(NamedTuple):
    """What is kept from one look to the next: the group that is filled (-1: not known yet), and the last counts."""

    active: int
    history: list[list[int]]


class Report(NamedTuple):
    """A line: its event, and what is to be read in it."""

    event: str
    reason: str


def nodes_wanted(tags: Mapping[str, str]) -> tuple[int, int]:
    """How many nodes the job wants by a scale set's tags, least and most: what is asked for now counts between the two.
    KeyError, ValueError: a tag is gone, or no number.

    >>> nodes_wanted({"gangway-nodes-min": "2", "gangway-nodes": "8", "gangway-nodes-wanted": "3"})
    (2, 3)
    """
    least, most = int(tags[LEAST_TAG]), int(tags[MOST_TAG])
    return least, max(least, min(most, int(tags.get(WANTED_TAG, most))))


def is_capacity_error(text: str) -> bool:
    """Whether an answer of Azure's says that there are too few machines now, and nothing else.

    A quota that is used up is 409 as well (OperationNotAllowed), and nobody gets machines by asking again.

    >>> none_to_be_had('{"error": {"code": "OperationNotAllowed", "message": "... exceeding approved ... quota"}}')
    False
    """
    codes = set(_CODE.findall(text)) - WRAPPERS
    return bool(codes) and codes <= NO_CAPACITY


class Ladder:
    """The scale sets of one stack, as Azure holds them.

    Args:
        azure: the APIs.
        config: `components.azure.fallback.FallbackConfig` as JSON data.
    """

    def __init__(self, azure: AzureApi, config: dict[str, Any]) -> None:
        self._azure, self._config = azure, config
        self.groups: list[dict[str, Any]] = config["groups"]

    def count(self, group: dict[str, Any]) -> Count:
        """Looks at every machine of a scale set."""
        running, dead = 0, {}
        for machine in self._azure.pages(self._url(group, "/virtualMachines", "&$expand=instanceView")):
            properties = machine["properties"]
            statuses = properties.get("instanceView", {}).get("statuses", [])
            codes = [status["code"] for status in statuses]
            if "PowerState/running" in codes:
                running += 1
            elif properties.get("provisioningState") == "Failed" or "PowerState/stopped" in codes:
                dead[machine["instanceId"]] = next(filter(None, map(_why_never_made, statuses)), "")
        return Count(running, dead)

    def asked(self, group: dict[str, Any]) -> Asked:
        """What is asked for. Raises OSError where somebody took the tags away."""
        known = self._azure.call("GET", self._url(group))
        try:
            wanted = nodes_wanted(known.get("tags", {}))
        except (KeyError, ValueError):
            raise OSError(
                f"{group['name']} has no number in its tags {LEAST_TAG} and {MOST_TAG}, or none in {WANTED_TAG}"
            ) from None
        return Asked(int(known["sku"]["capacity"]), wanted)

    def set_size(self, group: dict[str, Any], size: int) -> None:
        """Sets it. Raises RefusedError, also where Azure has too few machines now."""
        sku = {"name": group["machine_type"], "tier": "Standard", "capacity": size}
        self._azure.call("PATCH", self._url(group), {"sku": sku})

    def delete(self, group: dict[str, Any], identity: str) -> None:
        """Takes a machine away, and makes the scale set smaller by it."""
        self._azure.call("DELETE", self._url(group, f"/virtualMachines/{identity}"))

    def _url(self, group: dict[str, Any], below: str = "", more: str = "") -> str:
        place = f"subscriptions/{self._config['subscription_id']}/resourceGroups/{self._config['resource_group_name']}"
        path = f"{place}/providers/Microsoft.Compute/virtualMachineScaleSets/{group['name']}{below}"
        return f"{ARM}{path}?api-version={COMPUTE_VERSION}{more}"


def _why_never_made(status: dict[str, Any]) -> str:
    """The code and the text of a status of a machine that could not be made; empty for any other."""
    code, text = status["code"], status.get("message", "")
    return f'"code": "{code[len(_NEVER_MADE) :]}", {text}' if code.startswith(_NEVER_MADE) else ""


def reconcile_once(azure: AzureApi, config: dict[str, Any], state_file: Path, *, held: bool = False) -> list[Report]:
    """Counts once, and changes what the plan says. Returns what was changed, or could not be. `held`: nothing is asked
    for; who has stopped by itself costs until it is deleted, and who is too many may go.
    """
    ladder = Ladder(azure, config)
    state = _read_state(state_file, len(ladder.groups))
    counts = [ladder.count(group) for group in ladder.groups]
    said = _take_away_dead(ladder, counts)
    asked = [ladder.asked(group) for group in ladder.groups]
    sizes = [one.size for one in asked]
    least, most = asked[0].num_nodes
    if held:
        # Nobody comes, but who is not wanted any more may go.
        return said + _resize(ladder, sizes, [min(size, most) for size in sizes])
    _log_event(LOOKED, f"{least} to {most} nodes are wanted", running=[count.running for count in counts], asked=sizes)
    history = [*state.history, [count.running for count in counts]][-config["window"] :]
    active = sizes.index(max(sizes)) if state.active < 0 else state.active
    plan = reconcile(SimpleNamespace(**config), asked[0].num_nodes, history, sizes, active)
    # First, so that a change that fails is not decided anew from counts before it.
    state_file.parent.mkdir(parents=True, exist_ok=True)
    state_file.write_text(json.dumps({"active": plan.active, "history": [] if plan.forget else history}))
    return said + _resize(ladder, sizes, plan.sizes)


def _take_away_dead(ladder: Ladder, counts: Sequence[Count]) -> list[Report]:
    """Deletes what will never run. What could not be made for another reason than too few machines is told as that."""
    said = []
    for group, count in zip(ladder.groups, counts, strict=True):
        for identity, why in count.dead.items():
            ladder.delete(group, identity)
            event = REFUSED if why and not is_capacity_error(why) else CHANGED
            reason = f" ({why})" if why else ""
            said.append(Report(event, f"{group['name']}: {identity} never ran, or has stopped{reason}: deleted"))
    return said


def _resize(ladder: Ladder, sizes: Sequence[int], planned: Sequence[int]) -> list[Report]:
    """Makes groups smaller, or else others larger: they are emptied before one is filled."""
    changes = list(zip(ladder.groups, sizes, planned, strict=True))
    smaller = [change for change in changes if change[2] < change[1]]
    said = []
    for group, size, new in smaller or [change for change in changes if change[2] > change[1]]:
        change = f"{group['name']} ({group['kind']}): {size} -> {new} nodes"
        try:
            ladder.set_size(group, new)
        except RefusedError as error:
            none = is_capacity_error(str(error))
            said.append(
                Report(CHANGED, f"{change}: none to be had now") if none else Report(REFUSED, f"{change}: {error}")
            )
        else:
            said.append(Report(CHANGED, change))
    return said


def _read_state(file: Path, groups: int) -> State:
    """As the last look left it; nothing after a start, or where it is of other groups."""
    try:
        found = json.loads(file.read_text("utf-8"))
        state = State(found["active"], found["history"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return State(-1, [])
    fits = state.active < groups and all(len(count) == groups for count in state.history)
    return state if fits else State(-1, [])


def main(argv: Sequence[str]) -> int:
    """Has one look."""
    config_file, ended_url, held_url = argv
    state_file = Path(os.environ.get("GANGWAY_STATE_DIR", "/run/gangway"), "fill.json")
    try:
        azure = AzureApi.from_environment()
        if blob_exists(azure, ended_url):
            print(f"gangway: the job has ended ({ended_url} is there): no group is filled", file=sys.stderr, flush=True)
            return 0
        held = blob_exists(azure, held_url)
        if held:
            print(f"gangway: launches are held ({held_url} is there): none is asked for", file=sys.stderr, flush=True)
        config = json.loads(Path(config_file).read_text("utf-8"))
        said = reconcile_once(azure, config, state_file, held=held)
    except OSError as error:
        what = "may not" if isinstance(error, RefusedError) and error.status == 403 else "cannot"
        _log_event(NOT_KEPT, f"{what} look after the groups, trying again in a minute: {error}")
        return 1
    for event, reason in said:
        _log_event(event, reason)
    return 1 if any(line.event == REFUSED for line in said) else 0


def _log_event(event: str, reason: str, **fields: Any) -> None:
    """A line that is shipped with its fields."""
    print(json.dumps({"event": event, "reason": reason, **fields}), file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
