"""EC2's notices, from a stand-in of its metadata service: tokens required, 404 until there is a notice."""

import json
from typing import Any

import pytest

from gangway.images.node.aws.notices import AwsNotices
from gangway.images.node.notices import METADATA_URL

SPOT = json.dumps({"action": "terminate", "time": "2026-11-21T08:22:00Z"})
REBALANCE = json.dumps({"noticeTime": "2026-11-21T08:00:00Z"})


def test_a_quiet_node_has_no_notices(imds: Any) -> None:
    assert list(AwsNotices(imds.url).poll()) == []
    assert imds.requests == [
        "spot/instance-action", "autoscaling/target-lifecycle-state", "events/recommendations/rebalance",
    ]  # fmt: skip
    assert len(imds.tokens) == 1, "one token serves them all"


@pytest.mark.parametrize(
    ("item", "text", "notice"),
    [
        ("spot/instance-action", SPOT, ("spot-interruption", "2026-11-21T08:22:00Z")),
        ("autoscaling/target-lifecycle-state", "Terminated", ("lifecycle-terminate", "")),
        ("events/recommendations/rebalance", REBALANCE, ("rebalance", "2026-11-21T08:00:00Z")),
    ],
)
def test_each_item_is_a_notice_of_its_kind(imds: Any, item: str, text: str, notice: tuple[str, str]) -> None:
    imds.items[item] = text
    assert list(AwsNotices(imds.url).poll()) == [notice]


def test_an_answer_that_is_no_answer_is_an_error(imds: Any) -> None:
    imds.status = 503
    with pytest.raises(OSError, match="answers 503 for meta-data/autoscaling"):
        list(AwsNotices(imds.url).poll())


def test_tokens_that_are_refused_are_an_error(imds: Any) -> None:
    imds.tokens = _NoTokens()
    with pytest.raises(OSError, match="answers 401 for meta-data/spot"):
        list(AwsNotices(imds.url).poll())


class _NoTokens(list[str]):
    """Forgets every token it has handed out."""

    def __contains__(self, token: object) -> bool:
        return False


def test_aws_is_asked_at_the_address_that_every_instance_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[Any, ...]] = []

    class Connection:
        def __init__(self, *address: Any, timeout: float) -> None:
            made.append((*address, timeout))

        def request(self, *_: Any, **__: Any) -> None:
            raise TimeoutError("timed out")

        def close(self) -> None:
            pass

    monkeypatch.setattr("gangway.images.node.aws.notices.http.client.HTTPConnection", Connection)
    with pytest.raises(OSError, match="timed out"):
        list(AwsNotices(METADATA_URL).poll())
    assert made == [("169.254.169.254", 2.0)]
