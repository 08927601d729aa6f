"""What Azure says of this machine's end, kept in FILE: `python3 -m images.node.azure.notices FILE`."""

import sys
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from images.node.azure.api import AzureApi, is_waiting
from images.node.azure.heartbeat import FIRST_EVENTS_SEC
from images.node.notices import TIMEOUT_SEC, keep

# Azure's own advice: a preemption is told 30 s before.
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
    """The very first question turns the service on, which takes up to two minutes; later ones are answered at once."""

    def __init__(self, azure: AzureApi, timeout_sec: float = TIMEOUT_SEC) -> None:
        self._azure, self._timeout_sec, self._waits_sec = azure, timeout_sec, FIRST_EVENTS_SEC

    def poll(self) -> Iterator[tuple[str, str]]:
        """The notices that hold now, of events that name this machine. OSError: no answer; ValueError: no JSON."""
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
    # One that has begun is over soon, or was when this machine came up again. 0: the machine will not notice.
    if event["EventStatus"] != "Scheduled" or event.get("DurationInSeconds") == 0:
        return None
    # Together with other machines it may be days away, and begins at nobody's word alone.
    return kind if is_waiting(event) else "host-maintenance"


if __name__ == "__main__":
    keep(sys.argv[1], AzureNotices(AzureApi.from_environment()).poll, POLL_SEC)
