"""Keeps the order of the capacity ladder on Azure: asks for the nodes of every scale set. One look; a timer repeats it.

    python3 -m images.on_node.azure_fill CONFIG_FILE https://ACCOUNT.blob.core.windows.net/runs/STACK/JOB/ended-KEY

What is decided is `plan_look` of `components.azure.fallback`, whose source lies beside this file; here Resource Manager
is asked and told. How many nodes the job wants stands in the scale sets' tags, so that another number is no other head.
Machines that were never made, or that have stopped by themselves, count in a scale set's size and never run: they are
deleted, so that others come. Nothing is filled for a job that has ended: whoever ends it, a node or the head at the end
of its hours, says so by a blob. What a look has done is a line of JSON, which the stack's table has as an event:
`ladder-changed`, one for each change, or `ladder-not-kept`.
"""

import json
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from images.on_node import azure_blobs
from images.on_node.azure import ARM, COMPUTE_VERSION, Azure
from images.on_node.web import RefusedError

__all__ = ["Asked", "Count", "Ladder", "State", "look", "main"]

PLAN_FILE = Path(__file__).with_name("plan_look.py")
NO_CAPACITY = 409
# Of a scale set: how many nodes the job has at least, and at most (`components.azure.machine`).
LEAST_TAG, MOST_TAG = "gangway-nodes-min", "gangway-nodes"


class Count(NamedTuple):
    """A scale set's machines: how many run, and the ids of those that never will."""

    running: int
    dead: list[str]


class Asked(NamedTuple):
    """What a scale set is set to, and how many nodes the job wants, least and most."""

    size: int
    num_nodes: tuple[int, int]


class State(NamedTuple):
    """What is kept from one look to the next: the group that is filled (-1: not known yet), and the last counts."""

    active: int
    history: list[list[int]]


class Ladder:
    """The scale sets of one stack, as Azure holds them.

    Args:
        azure: the APIs.
        config: `components.azure.fallback.FallbackConfig` as JSON data.
    """

    def __init__(self, azure: Azure, config: dict[str, Any]) -> None:
        self._azure, self._config = azure, config
        self.groups: list[dict[str, Any]] = config["groups"]

    def count(self, group: dict[str, Any]) -> Count:
        """Looks at every machine of a scale set."""
        running, dead = 0, []
        for machine in self._azure.pages(self._url(group, "/virtualMachines", "&$expand=instanceView")):
            properties = machine["properties"]
            codes = [status["code"] for status in properties.get("instanceView", {}).get("statuses", [])]
            if "PowerState/running" in codes:
                running += 1
            elif properties.get("provisioningState") == "Failed" or "PowerState/stopped" in codes:
                dead.append(machine["instanceId"])
        return Count(running, dead)

    def asked(self, group: dict[str, Any]) -> Asked:
        """What is asked for. Raises OSError where somebody took the tags away."""
        known = self._azure.call("GET", self._url(group))
        tags = known.get("tags", {})
        try:
            wanted = int(tags[LEAST_TAG]), int(tags[MOST_TAG])
        except (KeyError, ValueError):
            raise OSError(f"{group['name']} has no number in its tags {LEAST_TAG} and {MOST_TAG}") from None
        return Asked(int(known["sku"]["capacity"]), wanted)

    def set_size(self, group: dict[str, Any], size: int) -> bool:
        """Sets it; False where Azure has too few machines now."""
        sku = {"name": group["machine_type"], "tier": "Standard", "capacity": size}
        try:
            self._azure.call("PATCH", self._url(group), {"sku": sku})
        except RefusedError as error:
            if error.status == NO_CAPACITY or "AllocationFailed" in str(error):
                return False
            raise
        return True

    def delete(self, group: dict[str, Any], identity: str) -> None:
        """Takes a machine away, and makes the scale set smaller by it."""
        self._azure.call("DELETE", self._url(group, f"/virtualMachines/{identity}"))

    def _url(self, group: dict[str, Any], below: str = "", more: str = "") -> str:
        place = f"subscriptions/{self._config['subscription_id']}/resourceGroups/{self._config['resource_group_name']}"
        path = f"{place}/providers/Microsoft.Compute/virtualMachineScaleSets/{group['name']}{below}"
        return f"{ARM}{path}?api-version={COMPUTE_VERSION}{more}"


def look(azure: Azure, config: dict[str, Any], state_file: Path) -> list[str]:
    """Counts once, and changes what the plan says. Returns what was changed, in words."""
    ladder = Ladder(azure, config)
    state = _read_state(state_file, len(ladder.groups))
    counts, said = [ladder.count(group) for group in ladder.groups], []
    for group, count in zip(ladder.groups, counts, strict=True):
        for identity in count.dead:
            ladder.delete(group, identity)
            said.append(f"{group['name']}: {identity} never ran, or has stopped: deleted")
    asked = [ladder.asked(group) for group in ladder.groups]
    sizes = [one.size for one in asked]
    history = [*state.history, [count.running for count in counts]][-config["window"] :]
    active = sizes.index(max(sizes)) if state.active < 0 else state.active
    plan = runpy.run_path(str(PLAN_FILE))["plan_look"](
        SimpleNamespace(**config), asked[0].num_nodes, history, sizes, active
    )
    # First, so that a change that fails is not decided anew from counts before it.
    state_file.parent.mkdir(parents=True, exist_ok=True)
    state_file.write_text(json.dumps({"active": plan.active, "history": [] if plan.forget else history}))
    return said + _resize(ladder, sizes, plan.sizes)


def _resize(ladder: Ladder, sizes: Sequence[int], planned: Sequence[int]) -> list[str]:
    """Makes groups smaller, or else others larger: they are emptied before one is filled."""
    changes = list(zip(ladder.groups, sizes, planned, strict=True))
    smaller = [change for change in changes if change[2] < change[1]]
    said = []
    for group, size, new in smaller or [change for change in changes if change[2] > change[1]]:
        done = ladder.set_size(group, new)
        words = f"{group['name']} ({group['kind']}): {size} -> {new} nodes"
        said.append(words if done else f"{words}: none to be had now")
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
    config_file, ended_url = argv
    state_file = Path(os.environ.get("GANGWAY_STATE_DIR", "/run/gangway"), "fill.json")
    try:
        azure = Azure.from_environment()
        if azure_blobs.exists(azure, ended_url):
            print(f"gangway: the job has ended ({ended_url} is there): no group is filled", file=sys.stderr, flush=True)
            return 0
        for change in look(azure, json.loads(Path(config_file).read_text("utf-8")), state_file):
            _tell("ladder-changed", change)
    except OSError as error:
        what = "may not" if isinstance(error, RefusedError) and error.status == 403 else "cannot"
        _tell("ladder-not-kept", f"{what} look after the groups, trying again in a minute: {error}")
        return 1
    return 0


def _tell(event: str, reason: str) -> None:
    """A line that is shipped with its fields."""
    print(json.dumps({"event": event, "reason": reason}), file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
