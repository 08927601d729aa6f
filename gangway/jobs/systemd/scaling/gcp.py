"""Resizes Google's managed instance groups: grows by a new size, shrinks by asking the newest nodes to leave.

A smaller size would end arbitrary nodes without notice. So each node to remove gets a network tag, visible on its
metadata server (`gangway.images.node.gcp.notices`): it saves, ends its trainer and removes itself from its group, which
shrinks by it (`images/templates/gcp/cloud.sh`). A tag rather than a metadata attribute, since permission to set those
allows running programs on the machine. Instances that do not run have nothing to save and are deleted first.

Groups have no tags for time and reason, so the time comes from Compute Engine's operations.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from gangway.components.core.findings import InputError
from gangway.components.core.http_session import Session
from gangway.images.node.gcp.notices import LEAVE_TAG
from gangway.jobs.systemd.scaling.base import Change, GroupState, Rest, Scaler, find_time
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.program import get_program

SUSPENDS_LAUNCHES, AFTER_RESET = False, "the first group is smaller by those that left it"
API_URL = "https://compute.googleapis.com"
_FIX = "gcloud auth application-default login, with the rights that docs/controller.md lists, on the project"
_RESIZED, _TAGGED = "compute.instanceGroupManagers.resize", "setTags"


class _Node(NamedTuple):
    """A running instance. `fingerprint`: of its tags, required to change them."""

    name: str
    created: str
    tags: tuple[str, ...]
    fingerprint: str

    @property
    def leaves(self) -> bool:
        return LEAVE_TAG in self.tags


class _Group(NamedTuple):
    """`idle`: instances that do not run; `nodes`: those that do, oldest first."""

    size: int
    base_name: str
    idle: tuple[str, ...]
    nodes: tuple[_Node, ...]

    @property
    def leaving(self) -> int:
        return sum(node.leaves for node in self.nodes)

    @property
    def asked(self) -> int:
        """Its number once those have left."""
        return self.size - self.leaving


class GcpScaler:
    """`zones`: by group; `most`: nodes that the first group may have; `is_held`: by the circuit breaker."""

    def __init__(
        self,
        session: Session,
        project: str,
        zones: Mapping[str, str],
        *,
        most: int,
        is_held: bool,
        api_url: str = API_URL,
    ) -> None:
        self._rest = Rest(session, api_url, _FIX)
        self._project, self.zones, self._most, self._is_held = project, dict(zones), most, is_held

    def get_groups(self, names: Sequence[str]) -> list[GroupState]:
        """Without nodes that were asked to leave."""
        first = self._read(names[0])
        changed_at, changed_why = self._last_change(names[0], first.base_name)
        running = len(first.nodes) - first.leaving
        state = GroupState(names[0], self._most, first.asked, running, self._is_held, changed_at, changed_why)
        return [state, *map(self._read_lower, names[1:])]

    def carry_out(self, change: Change, now: datetime) -> str:
        """Grows by size; shrinks by tagging the nodes that have to leave."""
        group = self._read(change.group)
        if change.nodes >= group.asked:
            # Leaving nodes shrink the group themselves.
            size = str(change.nodes + group.leaving)
            self._of_group(f"{change.nodes} nodes of", change.group, "POST", "/resize", {"size": size})
            return ""
        too_many = group.asked - change.nodes
        if idle := group.idle[:too_many]:
            self._delete(change.group, idle)
        staying = [node for node in group.nodes if not node.leaves]
        # Keep as many running nodes as wanted, however many the group still lacks.
        going = staying[max(change.nodes, len(staying) - (too_many - len(idle))) :]
        for node in going:
            self._ask_to_leave(self.zones[change.group], node)
        names = ", ".join(node.name for node in going)
        return f"{names} save and then leave, within minutes" if going else ""

    def _read_lower(self, name: str) -> GroupState:
        size = int(self._of_group("the size of", name, "GET")["targetSize"])
        running = sum(one.get("instanceStatus") == "RUNNING" for one in self.managed(name))
        return GroupState(name, size, size, running, self._is_held)

    def _read(self, name: str) -> _Group:
        known = self._of_group("the size of", name, "GET")
        managed = [one for one in self.managed(name) if one.get("currentAction") not in ("DELETING", "ABANDONING")]
        runs = [one["name"] for one in managed if one.get("instanceStatus") == "RUNNING"]
        idle = tuple(one["name"] for one in managed if one.get("instanceStatus") != "RUNNING")
        nodes = [self._node(self.zones[name], instance) for instance in runs]
        oldest_first = sorted(nodes, key=lambda node: (datetime.fromisoformat(node.created), node.name))
        return _Group(int(known["targetSize"]), str(known["baseInstanceName"]), idle, tuple(oldest_first))

    def _node(self, zone: str, name: str) -> _Node:
        found = self._rest.call(f"instance {name}", "GET", f"{self._place(zone)}/instances/{name}")
        tags = found.get("tags", {})
        return _Node(name, found["creationTimestamp"], tuple(tags.get("items", ())), tags.get("fingerprint", ""))

    def managed(self, name: str) -> Iterator[dict[str, Any]]:
        """The instances of a group, with their states. InputError: they cannot be read."""
        params: dict[str, str] = {}
        while True:
            page = self._of_group("the instances of", name, "POST", "/listManagedInstances", params)
            yield from page.get("managedInstances", [])
            if not page.get("nextPageToken"):
                return
            params = {"pageToken": page["nextPageToken"]}

    def _last_change(self, name: str, base_name: str) -> tuple[datetime | None, str]:
        params = {
            "filter": f'(operationType = "{_RESIZED}") OR (operationType = "{_TAGGED}")',
            "orderBy": "creationTimestamp desc",
        }
        while True:
            page = self._rest.call(
                f"the operations on {name}", "GET", f"{self._place(self.zones[name])}/operations", params
            )
            for one in page.get("items", []):
                kind, _, target = one.get("targetLink", "").rpartition("/")
                is_group = kind.endswith("/instanceGroupManagers") and target == name
                if is_group or (kind.endswith("/instances") and target.startswith(f"{base_name}-")):
                    what = "resized" if is_group else "nodes were asked to leave"
                    return find_time(one.get("insertTime", "")), f"{what}, by {one.get('user', 'an unknown user')}"
            if not page.get("nextPageToken"):
                return None, ""
            params = {**params, "pageToken": page["nextPageToken"]}

    def _delete(self, name: str, instances: Sequence[str]) -> None:
        zone = self.zones[name]
        body = {
            "instances": [f"zones/{zone}/instances/{instance}" for instance in instances],
            # An instance removed meanwhile must not keep the others.
            "skipInstancesOnValidationError": True,
        }
        self._of_group(f"{len(instances)} idle instances of", name, "POST", "/deleteInstances", body=body)

    def _ask_to_leave(self, zone: str, node: _Node) -> None:
        body = {"items": [*node.tags, LEAVE_TAG], "fingerprint": node.fingerprint}
        path = f"{self._place(zone)}/instances/{node.name}/setTags"
        self._rest.call(f"asking instance {node.name} to leave", "POST", path, body=body)

    def _of_group(
        self,
        what: str,
        name: str,
        method: str,
        verb: str = "",
        params: Mapping[str, str] | None = None,
        body: Any = None,
    ) -> dict[str, Any]:
        path = f"{self._place(self.zones[name])}/instanceGroupManagers/{name}{verb}"
        return self._rest.call(f"{what} instance group {name}", method, path, params, body)

    def _place(self, zone: str) -> str:
        return f"/compute/v1/projects/{self._project}/zones/{zone}"


def open_scaler(config: StackConfig, outputs: Mapping[str, Any], names: Sequence[str], *, is_held: bool) -> Scaler:
    """For a stack that is up. InputError: not logged in."""
    from gangway.components.gcp.capacity import rung_zone
    from gangway.components.gcp.tpu.api import TpuError, open_session

    planned = get_program(config.provider).plan(config)
    try:
        session = open_session(API_URL)
    except TpuError as problem:
        raise InputError(
            f"Google Cloud, project {planned.project}", str(problem), fix="gcloud auth application-default login"
        ) from None
    rungs = zip(names, config.cluster.capacity, strict=True)
    zones = {name: rung_zone(rung, planned.zone) for name, rung in rungs}
    return GcpScaler(session, planned.project, zones, most=config.cluster.nodes.max, is_held=is_held)
