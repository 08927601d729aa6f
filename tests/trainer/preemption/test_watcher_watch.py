"""The watcher against a stand-in of EC2's metadata service: tokens required, 404 until there is a notice."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from trainer.preemption.notices import read_notices
from trainer.preemption.watcher import CLOUDS, AwsMetadata, Watcher

SPOT = json.dumps({"action": "terminate", "time": "2026-11-21T08:22:00Z"})
REBALANCE = json.dumps({"noticeTime": "2026-11-21T08:00:00Z"})


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Signals that the watcher would have sent."""
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr("trainer.preemption.watcher.os.kill", lambda pid, number: sent.append((pid, number)))
    return sent


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_quiet_node_has_no_notices(imds: Any) -> None:
    assert list(AwsMetadata(imds.url).poll()) == []
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
    assert list(AwsMetadata(imds.url).poll()) == [notice]


def test_an_expired_token_is_replaced(imds: Any) -> None:
    metadata = AwsMetadata(imds.url)
    assert metadata.get("autoscaling/target-lifecycle-state") == "InService"
    imds.tokens.clear()
    assert metadata.get("autoscaling/target-lifecycle-state") == "InService"
    assert len(imds.tokens) == 1


def test_an_answer_that_is_no_answer_is_an_error(imds: Any) -> None:
    imds.status = 503
    with pytest.raises(OSError, match="answers 503 for /latest/meta-data/autoscaling"):
        AwsMetadata(imds.url).get("autoscaling/target-lifecycle-state")


def test_tokens_that_are_refused_are_an_error(imds: Any) -> None:
    imds.tokens = _NoTokens()
    with pytest.raises(OSError, match="refuses its own tokens"):
        AwsMetadata(imds.url).get("instance-id")


class _NoTokens(list[str]):
    """Forgets every token it has handed out."""

    def __contains__(self, token: object) -> bool:
        return False


def test_an_interruption_stops_the_launcher_once(
    imds: Any, signals: list[tuple[int, int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "notices.jsonl"
    watcher = Watcher(path, AwsMetadata(imds.url).poll, poll_sec=0.01)
    watcher.start()
    wait_until(lambda: len(imds.requests) > 6)
    assert read_notices(path) == []
    imds.items["events/recommendations/rebalance"] = REBALANCE
    wait_until(lambda: read_notices(path))
    asked = len(imds.requests)
    wait_until(lambda: len(imds.requests) > asked + 6)
    assert signals == [], "a rebalance recommendation stops nothing"
    imds.items["spot/instance-action"] = SPOT
    watcher.join(10)
    assert not watcher.is_alive()
    assert signals == [(os.getpid(), signal.SIGTERM)]
    assert [notice.kind for notice in read_notices(path)] == ["rebalance", "spot-interruption"]
    assert capsys.readouterr().err.splitlines() == [
        "gangway: rebalance at 2026-11-21T08:00:00Z: saving once, and going on",
        "gangway: spot-interruption at 2026-11-21T08:22:00Z: saving and leaving",
    ]


def test_the_jobs_deadline_is_a_notice_too(signals: list[tuple[int, int]], tmp_path: Path) -> None:
    over_at = time.monotonic() + 0.05
    watcher = Watcher(tmp_path / "notices.jsonl", None, lambda: over_at - time.monotonic())
    watcher.start()
    watcher.join(10)
    assert signals == [(os.getpid(), signal.SIGTERM)]
    assert [notice.kind for notice in read_notices(tmp_path / "notices.jsonl")] == ["max-hours"]


def test_a_cloud_that_does_not_answer_is_told_once_and_asked_again(
    imds: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    imds.status = 503
    watcher = Watcher(tmp_path / "notices.jsonl", AwsMetadata(imds.url).poll, poll_sec=0.01)
    watcher.start()
    wait_until(lambda: imds.requests.count("autoscaling/target-lifecycle-state") > 3)
    imds.status = 200
    wait_until(lambda: "events/recommendations/rebalance" in imds.requests)
    watcher.close()
    assert not watcher.is_alive()
    assert capsys.readouterr().err.count("cannot ask for notices, trying on") == 1


def test_an_answer_of_no_known_form_ends_no_watch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without its thread nobody hears of notices, or of the end of the job's hours."""
    asked = []

    def poll() -> list[Any]:
        asked.append(1)
        raise KeyError("Events")

    watcher = Watcher(tmp_path / "notices.jsonl", poll, poll_sec=0.01)
    watcher.start()
    wait_until(lambda: len(asked) > 3)
    assert watcher.is_alive()
    watcher.close()
    assert capsys.readouterr().err.count("cannot ask for notices, trying on: KeyError: 'Events'") == 1


def test_aws_asks_the_address_that_every_instance_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[Any, ...]] = []

    class Connection:
        def __init__(self, *address: Any, timeout: float) -> None:
            made.append((*address, timeout))

        def request(self, *_: Any, **__: Any) -> None:
            raise TimeoutError("timed out")

        def close(self) -> None:
            pass

    monkeypatch.setattr("trainer.preemption.watcher.http.client.HTTPConnection", Connection)
    with pytest.raises(OSError, match="timed out"):
        list(CLOUDS["aws"]()())
    assert made == [("169.254.169.254", 80, 2.0)]
