"""Writes Compute Engine's interruption notices to FILE: `python3 -m gangway.images.node.gcp.notices FILE`."""

import json
import os
import sys
import urllib.request
from collections.abc import Iterator

from gangway.images.node.notices import METADATA_URL, TIMEOUT_SEC, write_notices
from gangway.images.node.web import RefusedError, open_url

# Google gives only 30 s, so poll continuously.
POLL_SEC = 0.5
WAIT_SEC = 4
# A network tag by which `gangway job --scale` asks this machine to leave; cloud.sh checks it too.
LEAVE_TAG = "gangway-leave"


class GcpNotices:
    """From the metadata server. `wait_sec`: for how long it may delay its answer until a preemption."""

    def __init__(self, url: str = METADATA_URL, wait_sec: int = WAIT_SEC) -> None:
        self._url, self._wait_sec, self._etag = url, wait_sec, ""

    def poll(self) -> Iterator[tuple[str, str]]:
        """The current notices, without times, after a wait for a preemption."""
        # MIGRATE_ON_HOST_MAINTENANCE needs no action; machines with GPUs or TPUs never migrate.
        if self._get("instance/maintenance-event") == "TERMINATE_ON_HOST_MAINTENANCE":
            yield "host-maintenance", ""
        if LEAVE_TAG in json.loads(self._get("instance/tags") or "[]"):
            yield "lifecycle-terminate", ""
        if self._get("instance/preempted", waits=True) == "TRUE":
            yield "spot-interruption", ""

    def _get(self, item: str, *, waits: bool = False) -> str:
        """One item of metadata; empty for 404, as on a machine that is not spot. With `waits`, the server answers when
        the item has changed since the last such call, or after `wait_sec`. Raises OSError.
        """
        query = ""
        if waits and self._etag:
            query = f"?wait_for_change=true&timeout_sec={self._wait_sec}&last_etag={self._etag}"
        url = f"{self._url}/computeMetadata/v1/{item}{query}"
        request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})
        try:
            with open_url(request, TIMEOUT_SEC + self._wait_sec) as answer:
                text, etag = answer.read().decode(), answer.headers.get("ETag", "")
        except RefusedError as error:
            if error.status == 404:
                return ""
            raise
        if waits:
            self._etag = etag
        return str(text).strip()


if __name__ == "__main__":
    write_notices(sys.argv[1], GcpNotices(os.environ.get("GANGWAY_METADATA_URL", METADATA_URL)).poll, POLL_SEC)
