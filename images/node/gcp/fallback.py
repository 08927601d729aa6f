"""Fills the groups of the capacity ladder with what those above them lack. A timer runs it repeatedly.

    python3 -m gangway.images.node.gcp.fallback gs://BUCKET/fallback.json gs://BUCKET/STACK/JOB/breaker/held.json

The head reads the groups from the bucket, since they are created after it, and the mark of the job's end, which its
hours change. `plan_fill` of `gangway.images.node.fill_order` plans the sizes; this module calls Compute Engine. It
fills nothing once the job's last node has written that mark, or while held.json exists: the circuit breaker, which
`gangway breaker reset` deletes. JSON lines are events of the stack's log: `ladder-changed`, one for each group, or
`ladder-not-kept`.
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gangway.images.node.fill_order import plan_fill
from gangway.images.node.gcp.api import GoogleApi
from gangway.images.node.web import RefusedError

# States of a request that is still pending.
WAITING = ("CREATING", "ACCEPTED")


class Ladder:
    """The groups of one stack in Compute Engine.

    Args:
        google: the APIs.
        config: `gangway.components.gcp.node_pool.FallbackConfig` as JSON data.
    """

    def __init__(self, google: GoogleApi, config: dict[str, Any]) -> None:
        self._google, self._project = google, config["project"]
        self.groups: list[dict[str, Any]] = config["groups"]

    def running(self) -> list[int]:
        """The number of running instances of each group."""
        urls = [f"{self._url(group)}/listManagedInstances" for group in self.groups]
        return [
            sum(one.get("instanceStatus") == "RUNNING" for one in self._google.pages("POST", url, "managedInstances"))
            for url in urls
        ]

    def sizes(self) -> list[int]:
        """The size of each group, with pending requests."""
        return [
            int(self._google.call("GET", self._url(group))["targetSize"])
            + sum(int(request["resizeBy"]) for request in self._waiting(group))
            for group in self.groups
        ]

    def set_size(self, group: dict[str, Any], size: int, planned: int) -> None:
        """Changes a group from `size`, as in `sizes`, to `planned`."""
        if group["fill"] == "resize-request":
            if planned > size:
                self._request(group, planned - size)
                return
            for request in self._waiting(group):
                if size > planned:
                    self._google.call("POST", f"{self._url(group)}/resizeRequests/{request['name']}/cancel")
                    size -= int(request["resizeBy"])
            # Requests are cancelled as a whole; a later run requests again what is missing.
            if size <= planned:
                return
        self._google.call("POST", f"{self._url(group)}/resize?size={planned}")

    def _request(self, group: dict[str, Any], number: int) -> None:
        body = {
            "name": f"gangway-{int(time.time())}",
            "resizeBy": number,
            "requestedRunDuration": {"seconds": str(group["run_duration_sec"])},
        }
        self._google.call("POST", f"{self._url(group)}/resizeRequests", body)

    def _waiting(self, group: dict[str, Any]) -> list[dict[str, Any]]:
        if group["fill"] != "resize-request":
            return []
        requests = self._google.pages("GET", f"{self._url(group)}/resizeRequests", "items")
        return [request for request in requests if request["state"] in WAITING]

    def _url(self, group: dict[str, Any]) -> str:
        zone = f"https://compute.googleapis.com/compute/v1/projects/{self._project}/zones/{group['zone']}"
        return f"{zone}/instanceGroupManagers/{group['name']}"


def reconcile_once(google: GoogleApi, config: dict[str, Any], history_file: Path) -> list[str]:
    """Counts once, and resizes groups if enough counts agree. Returns a line for each change."""
    ladder = Ladder(google, config)
    history = _read_history(history_file, len(ladder.groups))
    history = [*history, ladder.running()][-config["window"] :]
    changed = []
    if len(history) == config["window"]:
        sizes = ladder.sizes()
        for group, size, planned in zip(
            ladder.groups, sizes, plan_fill(config["num_nodes_min"], history, sizes), strict=True
        ):
            if planned != size:
                ladder.set_size(group, size, planned)
                changed.append(f"{group['name']} ({group['kind']}): {size} -> {planned} nodes")
    history_file.parent.mkdir(parents=True, exist_ok=True)
    history_file.write_text(json.dumps([] if changed else history))
    return changed


def _read_history(file: Path, groups: int) -> list[list[int]]:
    """The previous counts; empty after a boot or if the groups differ."""
    try:
        history: list[list[int]] = json.loads(file.read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return []
    return history if all(len(count) == groups for count in history) else []


def main(argv: Sequence[str]) -> int:
    """Runs once."""
    config_uri, held_uri = argv
    google = GoogleApi.from_environment()
    history = Path(os.environ.get("GANGWAY_STATE_DIR", "/run/gangway"), "fill.json")
    try:
        content = google.get(config_uri)
        if content is None:
            _say(f"{config_uri} has no groups yet")
            return 0
        config = json.loads(content)
        if google.exists(config["ended_uri"]):
            _say(f"the job has ended ({config['ended_uri']} exists): no groups are filled")
            return 0
        if google.exists(held_uri):
            _say(f"launches are held ({held_uri} exists): no groups are filled")
            return 0
        for change in reconcile_once(google, config, history):
            _log_event("ladder-changed", change)
    except OSError as error:
        what = "not allowed" if isinstance(error, RefusedError) and error.status == 403 else "unable"
        _log_event("ladder-not-kept", f"{what} to fill the groups, will retry in a minute: {error}")
        return 1
    return 0


def _say(text: str) -> None:
    print(f"gangway: {text}", file=sys.stderr, flush=True)


def _log_event(event: str, reason: str) -> None:
    print(json.dumps({"event": event, "reason": reason}), file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
