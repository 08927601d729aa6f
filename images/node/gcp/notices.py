"""What Compute Engine says of this machine's end, kept in FILE: `python3 -m images.node.gcp.notices FILE`."""

import json
import os
import sys
import urllib.request
from collections.abc import Iterator

from images.node.notices import METADATA_URL, TIMEOUT_SEC, keep
from images.node.web import RefusedError, open_url

# Google gives 30 s in all, so it is asked all the time: each question waits for its answer.
POLL_SEC = 0.5
WAIT_SEC = 4
# A network tag of this machine's own: whoever scales the job in asks it to leave by it (`gangway job --scale`). The
# scripts' cloud.sh looks for it too.
LEAVE_TAG = "gangway-leave"


class GcpNotices:
    """By the metadata server. `wait_sec`: for how long it may hold back its answer until there is a preemption."""

    def __init__(self, url: str = METADATA_URL, wait_sec: int = WAIT_SEC) -> None:
        self._url, self._wait_sec, self._etag = url, wait_sec, ""

    def poll(self) -> Iterator[tuple[str, str]]:
        """The notices that hold now, after a wait for a preemption, without times."""
        # MIGRATE_ON_HOST_MAINTENANCE needs nothing, and machines with GPUs or TPUs never migrate.
        if self._get("instance/maintenance-event") == "TERMINATE_ON_HOST_MAINTENANCE":
            yield "host-maintenance", ""
        if LEAVE_TAG in json.loads(self._get("instance/tags") or "[]"):
            yield "lifecycle-terminate", ""
        if self._get("instance/preempted", waits=True) == "TRUE":
            yield "spot-interruption", ""

    def _get(self, item: str, *, waits: bool = False) -> str:
        """One item of metadata; empty where there is none, as on a machine that is no spot one (OSError: neither that
        nor 404).

        With `waits` the server answers when the item is another than at the last such call, or after `wait_sec`.
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
    keep(sys.argv[1], GcpNotices(os.environ.get("GANGWAY_METADATA_URL", METADATA_URL)).poll, POLL_SEC)
