"""The watcher against a stand-in of Compute Engine's metadata server, which holds its answer back until it changes."""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from trainer.preemption.notices import read_notices
from trainer.preemption.watcher import CLOUDS, POLL_SEC, GceMetadata, Watcher, poll_sec_of


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Signals that the watcher would have sent."""
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr("trainer.preemption.watcher.os.kill", lambda pid, number: sent.append((pid, number)))
    return sent


def test_a_quiet_machine_has_no_notices(gce: Any) -> None:
    metadata = GceMetadata(gce.url, wait_sec=0)
    assert [list(metadata.poll()) for _ in range(2)] == [[], []]


@pytest.mark.parametrize(
    ("item", "text", "notices"),
    [
        ("instance/preempted", "TRUE", [("spot-interruption", "")]),
        ("instance/maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE", [("host-maintenance", "")]),
        ("instance/maintenance-event", "MIGRATE_ON_HOST_MAINTENANCE", []),
    ],
)
def test_each_item_is_a_notice_of_its_kind(gce: Any, item: str, text: str, notices: list[tuple[str, str]]) -> None:
    gce.items[item] = text
    assert list(GceMetadata(gce.url).poll()) == notices


def test_a_preemption_is_told_while_the_server_is_waited_for(gce: Any) -> None:
    metadata = GceMetadata(gce.url, wait_sec=60)
    assert list(metadata.poll()) == []
    threading.Timer(0.05, gce.items.__setitem__, ("instance/preempted", "TRUE")).start()
    assert list(metadata.poll()) == [("spot-interruption", "")], "long before the minute is over"


def test_a_machine_without_such_items_has_no_notices(gce: Any) -> None:
    gce.items.clear()
    assert list(GceMetadata(gce.url).poll()) == []


def test_an_answer_that_is_no_answer_is_an_error(gce: Any) -> None:
    gce.metadata_status = 503
    with pytest.raises(OSError, match="answers 503 for instance/maintenance-event"):
        list(GceMetadata(gce.url).poll())


def test_maintenance_saves_and_goes_on_until_the_machine_goes(
    gce: Any, signals: list[tuple[int, int]], tmp_path: Path
) -> None:
    path = tmp_path / "notices.jsonl"
    watcher = Watcher(path, GceMetadata(gce.url, wait_sec=1).poll, poll_sec=0.01)
    gce.items["instance/maintenance-event"] = "TERMINATE_ON_HOST_MAINTENANCE"
    watcher.start()
    deadline = time.monotonic() + 10
    while not read_notices(path):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert signals == []
    gce.items["instance/preempted"] = "TRUE"
    watcher.join(10)
    assert [notice.kind for notice in read_notices(path)] == ["host-maintenance", "spot-interruption"]
    assert [notice.stops for notice in read_notices(path)] == [False, True]
    assert signals == [(os.getpid(), signal.SIGTERM)]


def test_google_cloud_is_asked_more_often_than_aws(gce: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANGWAY_METADATA_URL", gce.url)
    gce.items["instance/preempted"] = "TRUE"
    assert list(CLOUDS["gcp"]()()) == [("spot-interruption", "")]
    assert poll_sec_of("gcp") < poll_sec_of("aws") == POLL_SEC
