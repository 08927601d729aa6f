"""Writes Azure's interruption notices to FILE: `python3 -m gangway.images.node.azure.notices FILE`."""

import sys
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from gangway.images.node.azure.api import AzureApi, can_start
from gangway.images.node.azure.heartbeat import FIRST_EVENTS_SEC
from gangway.images.node.notices import TIMEOUT_SEC, write_notices

# Azure recommends it: the notice of a preemption comes 30 s before.
POLL_SEC = 1.0
_KINDS: Mapping[str, str] = MappingProxyType(
    {
        "Preempt": "spot-interruption",
        "Terminate": "lifecycle-terminate",
        "Reboot": "host-restart",
        "Redeploy": "host-restart",
        "Freeze": "host-maintenance",
    }
)
_ENDS = ("spot-interruption", "lifecycle-terminate")


class AzureNotices:
    """From scheduled events. The first request enables the service, which takes up to two minutes."""

    def __init__(self, azure: AzureApi, timeout_sec: float = TIMEOUT_SEC) -> None:
        self._azure, self._timeout_sec, self._waits_sec = azure, timeout_sec, FIRST_EVENTS_SEC

    def poll(self) -> Iterator[tuple[str, str]]:
        """The current notices for this machine. Raises OSError or ValueError."""
        events = self._azure.events(self._waits_sec)
        self._waits_sec = self._timeout_sec
        for event in events:
            kind = _kind(event)
            if kind is not None:
                yield kind, str(event.get("NotBefore", ""))


def _kind(event: Mapping[str, Any]) -> str | None:
    kind = _KINDS.get(event["EventType"])
    if kind in _ENDS:
        return kind
    # One that has started is soon over, or was before this boot. Duration 0: no effect on the machine.
    if event["EventStatus"] != "Scheduled" or event.get("DurationInSeconds") == 0:
        return None
    # With other machines it may be days away, and this machine cannot start it.
    return kind if can_start(event) else "host-maintenance"


if __name__ == "__main__":
    write_notices(sys.argv[1], AzureNotices(AzureApi.from_environment()).poll, POLL_SEC)
