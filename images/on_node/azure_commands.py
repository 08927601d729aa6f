"""What the scripts of a machine on Azure call; GANGWAY_CLIENT_ID names the identity it runs as.

    python3 -m images.on_node.azure_commands event INGESTION_URL ROLE job-ended exit_status 0 reason done
    python3 -m images.on_node.azure_commands leaving | waiting | let-go: of events that end this machine
    python3 -m images.on_node.azure_commands outlast: until no restart of this machine is to come
    python3 -m images.on_node.azure_commands leave | scale-set | capacity
    python3 -m images.on_node.azure_commands put FILE URL, or: put-folder FOLDER URL, or: exists URL
    python3 -m images.on_node.azure_commands registry-token REGISTRY

Exit code 0, or 1 with one line that says why; of `leaving`, `waiting` and `exists` 1 also says no.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from images.on_node import azure_blobs
from images.on_node.azure import RESTARTS, Azure, row, waits
from images.on_node.web import MAX_VALUE_CHARS

__all__ = ["main"]

# Longer than Azure takes for one, and no reason to stand still for ever.
RESTART_SEC = 1800.0


def _event(azure: Azure, ingestion_url: str, role: str, event: str, *pairs: str) -> bool:
    """`pairs`: names and values, one after the other; exit_status is a number."""
    values = [os.fsencode(word).decode(errors="replace")[:MAX_VALUE_CHARS] for word in pairs]
    line: dict[str, Any] = {"event": event, "instance_id": azure.name()}
    for name, value in zip(values[::2], values[1::2], strict=True):
        line[name] = int(value) if name == "exit_status" else value
    azure.write_rows(ingestion_url, [row(azure.name(), role, "gangway-node", line)])
    return True


def _let_go(azure: Azure) -> bool:
    azure.let_begin([event for event in azure.endings() if waits(event)])
    return True


def _outlast(azure: Azure) -> bool:
    """Has restarts begin that wait for this machine's word, and waits for them: they end this process too.

    A restart that is called off leaves the list, and so does one whose time was over when this machine was up again.
    """
    poll_sec, until = float(os.environ.get("GANGWAY_POLL_SEC", "5")), time.monotonic() + RESTART_SEC
    told: set[str] = set()
    while time.monotonic() < until:
        restarts = [event for event in azure.events() if event["EventType"] in RESTARTS]
        mine = [event for event in restarts if waits(event) and event["EventId"] not in told]
        if mine:
            print(
                "gangway: this machine is about to be restarted, and need not wait for it", file=sys.stderr, flush=True
            )
            azure.let_begin(mine)
            told |= {event["EventId"] for event in mine}
        if not told & {event["EventId"] for event in restarts}:
            return True
        time.sleep(poll_sec)
    return False


def _leave(azure: Azure) -> bool:
    azure.delete_itself()
    return True


def _scale_set(azure: Azure) -> bool:
    print(azure.compute()["vmScaleSetName"])
    return True


def _capacity(azure: Azure) -> bool:
    priority = azure.compute().get("priority")
    # "Low" is what Spot was called before; a machine that is not taken back says Regular, or nothing.
    print("" if priority is None else "spot" if priority in ("Spot", "Low") else "on-demand")
    return True


def _put(azure: Azure, file: str, url: str) -> bool:
    azure_blobs.put(azure, Path(file), url)
    return True


def _put_folder(azure: Azure, folder: str, url: str) -> bool:
    azure_blobs.put_folder(azure, Path(folder), url)
    return True


def _registry_token(azure: Azure, registry: str) -> bool:
    print(azure.registry_token(registry))
    return True


COMMANDS: dict[str, Callable[..., bool]] = {
    "capacity": _capacity,
    "event": _event,
    "exists": azure_blobs.exists,
    "leave": _leave,
    "leaving": lambda azure: bool(azure.endings()),
    "let-go": _let_go,
    "outlast": _outlast,
    "put": _put,
    "put-folder": _put_folder,
    "registry-token": _registry_token,
    "scale-set": _scale_set,
    "waiting": lambda azure: any(waits(event) for event in azure.endings()),
}


def main(argv: Sequence[str]) -> int:
    """Runs one command."""
    try:
        return 0 if COMMANDS[argv[0]](Azure.from_environment(), *argv[1:]) else 1
    except OSError as error:
        print(f"gangway: {argv[0]}: {error}", file=sys.stderr, flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
