"""Writes EC2's interruption notices to FILE: `python3 -m gangway.images.node.aws.notices FILE`. Needs only Python
3.9."""

import http.client
import json
import os
import sys
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

from gangway.images.node.notices import METADATA_URL, TIMEOUT_SEC, write_notices

POLL_SEC = 5.0


class AwsNotices:
    """From EC2's instance metadata, version 2, with a new token for each poll."""

    def __init__(self, url: str = METADATA_URL) -> None:
        self._host = urlsplit(url).netloc

    def poll(self) -> Iterator[tuple[str, str]]:
        """The current notices."""
        # http.client, not urllib, which would use the environment's proxy.
        with closing(http.client.HTTPConnection(self._host, timeout=TIMEOUT_SEC)) as imds:
            token = _request(imds, "PUT", "api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"})
            action, state, advice = (
                _request(imds, "GET", f"meta-data/{item}", {"X-aws-ec2-metadata-token": token})
                for item in (
                    "spot/instance-action",
                    "autoscaling/target-lifecycle-state",
                    "events/recommendations/rebalance",
                )
            )
        if action:
            yield "spot-interruption", str(json.loads(action).get("time", ""))
        if state == "Terminated":
            yield "lifecycle-terminate", ""
        if advice:
            yield "rebalance", str(json.loads(advice).get("noticeTime", ""))


def _request(imds: http.client.HTTPConnection, method: str, path: str, headers: dict[str, str]) -> str:
    """One item of metadata; empty for 404. Raises OSError."""
    imds.request(method, f"/latest/{path}", headers=headers)
    answer = imds.getresponse()
    text = answer.read().decode()
    if answer.status not in (200, 404):
        raise ConnectionError(f"instance metadata answers {answer.status} for {path}")
    return text.strip() if answer.status == 200 else ""


if __name__ == "__main__":
    write_notices(sys.argv[1], AwsNotices(os.environ.get("GANGWAY_IMDS_URL", METADATA_URL)).poll, POLL_SEC)
