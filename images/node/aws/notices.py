"""What EC2 says of this machine's end, kept in FILE: `python3 -m images.node.aws.notices FILE`. Python 3.9 alone."""

import http.client
import json
import os
import sys
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

from images.node.notices import METADATA_URL, TIMEOUT_SEC, keep

POLL_SEC = 5.0


class AwsNotices:
    """By EC2's instance metadata, version 2 only; each look has a token of its own."""

    def __init__(self, url: str = METADATA_URL) -> None:
        self._host = urlsplit(url).netloc

    def poll(self) -> Iterator[tuple[str, str]]:
        """The notices that hold now."""
        # http.client, not urllib: no proxy of the environment stands between a machine and its metadata.
        with closing(http.client.HTTPConnection(self._host, timeout=TIMEOUT_SEC)) as imds:
            token = _ask(imds, "PUT", "api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"})
            action, state, advice = (
                _ask(imds, "GET", f"meta-data/{item}", {"X-aws-ec2-metadata-token": token})
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


def _ask(imds: http.client.HTTPConnection, method: str, path: str, headers: dict[str, str]) -> str:
    """One item of metadata; empty where there is no such item. OSError: no answer, or neither the item nor 404."""
    imds.request(method, f"/latest/{path}", headers=headers)
    answer = imds.getresponse()
    text = answer.read().decode()
    if answer.status not in (200, 404):
        raise ConnectionError(f"instance metadata answers {answer.status} for {path}")
    return text.strip() if answer.status == 200 else ""


if __name__ == "__main__":
    keep(sys.argv[1], AwsNotices(os.environ.get("GANGWAY_IMDS_URL", METADATA_URL)).poll, POLL_SEC)
