"""Azure's Scheduled Events for this virtual machine, polled as notices ("Azure Metadata Service: Scheduled Events for
Linux VMs"). An acknowledged event may begin at once: only the node's own scripts do that, after the trainer has saved
and gone (`images.on_node.azure`).
"""

import http.client
import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from trainer.interruptions.notices import Kind

__all__ = ["AzureMetadata"]

_EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
_NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
_TIMEOUT_SEC = 2.0
# The very first question turns the service on, which takes up to two minutes.
_FIRST_TIMEOUT_SEC = 130.0
_ENDS = ("spot-interruption", "lifecycle-terminate")
_KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "Preempt": "spot-interruption",
        "Terminate": "lifecycle-terminate",
        "Reboot": "host-restart",
        "Redeploy": "host-restart",
        "Freeze": "host-maintenance",
    }
)


class AzureMetadata:
    """The metadata service of one virtual machine."""

    def __init__(self, url: str = "http://169.254.169.254") -> None:
        parts = urlsplit(url)
        self._address = (parts.hostname or "", parts.port or 80)
        self._name = ""
        self._timeout_sec = _FIRST_TIMEOUT_SEC

    def poll(self) -> Iterable[tuple[Kind, str]]:
        """The notices that hold now, of events that name this machine. OSError: no answer; ValueError: no JSON."""
        self._name = self._name or self._get(_NAME, _TIMEOUT_SEC)
        document = json.loads(self._get(_EVENTS, self._timeout_sec))
        self._timeout_sec = _TIMEOUT_SEC
        for event in document["Events"]:
            kind = _kind(event) if self._name in event["Resources"] else None
            if kind is not None:
                yield kind, str(event.get("NotBefore", ""))

    def _get(self, path: str, timeout_sec: float) -> str:
        # http.client, not urllib: no proxy of the environment stands between a machine and its metadata.
        connection = http.client.HTTPConnection(*self._address, timeout=timeout_sec)
        try:
            connection.request("GET", path, headers={"Metadata": "true"})
            response = connection.getresponse()
            text = response.read().decode()
        except http.client.HTTPException as error:
            raise ConnectionError(f"the metadata service answers no HTTP: {error!r}") from None
        finally:
            connection.close()
        if response.status != http.HTTPStatus.OK:
            raise ConnectionError(f"the metadata service answers {response.status} for {path.partition('?')[0]}")
        return text.strip()


def _kind(event: Mapping[str, Any]) -> Kind | None:
    kind = _KINDS.get(event["EventType"])
    if kind in _ENDS:
        return kind
    # One that has begun is over soon, or was when this machine came up again. 0: the machine will not notice.
    if event["EventStatus"] != "Scheduled" or event.get("DurationInSeconds") == 0:
        return None
    # Together with other machines it may be days away, and begins at nobody's word alone.
    return "host-maintenance" if len(event["Resources"]) > 1 else kind
