"""The watcher against a stand-in of Azure's metadata service, which tells of events that are to come."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from trainer.preemption.notices import read_notices
from trainer.preemption.watcher import CLOUDS, AzureMetadata, Watcher, poll_sec_of

WHEN = "Mon, 19 Sep 2026 18:29:47 GMT"


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Signals that the watcher would have sent."""
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr("trainer.preemption.watcher.os.kill", lambda pid, number: sent.append((pid, number)))
    return sent


def test_a_quiet_machine_has_no_notices(azure_vm: Any) -> None:
    metadata = AzureMetadata(azure_vm.url)
    assert [list(metadata.poll()) for _ in range(2)] == [[], []]


@pytest.mark.parametrize(
    ("kind", "notice"),
    [
        ("Preempt", "spot-interruption"),
        ("Terminate", "lifecycle-terminate"),
        ("Reboot", "host-restart"),
        ("Redeploy", "host-restart"),
        ("Freeze", "host-maintenance"),
    ],
)
def test_each_event_is_a_notice_of_its_kind_with_its_time(azure_vm: Any, kind: str, notice: str) -> None:
    azure_vm.schedule(kind)
    assert list(AzureMetadata(azure_vm.url).poll()) == [(notice, WHEN)]


@pytest.mark.parametrize(
    ("kind", "notices"), [("Reboot", []), ("Freeze", []), ("Preempt", [("spot-interruption", "")])]
)
def test_what_has_begun_is_told_only_where_it_is_the_end(
    azure_vm: Any, kind: str, notices: list[tuple[str, str]]
) -> None:
    """A restart stays in the list for minutes after the machine is up again: it must not stop what has just begun."""
    azure_vm.schedule(kind, status="Started")
    assert list(AzureMetadata(azure_vm.url).poll()) == notices


def test_a_restart_of_several_machines_saves_and_goes_on(azure_vm: Any) -> None:
    azure_vm.schedule("Redeploy", "demo-0-spot_3", "demo-0-spot_4")
    assert list(AzureMetadata(azure_vm.url).poll()) == [("host-maintenance", WHEN)]


def test_what_is_about_other_machines_or_nothing_is_no_notice(azure_vm: Any) -> None:
    azure_vm.schedule("Preempt", "demo-0-spot_30", "demo-0-spot_4")
    azure_vm.schedule("Freeze", duration_sec=0)
    azure_vm.schedule("SomethingNew")
    metadata = AzureMetadata(azure_vm.url)
    assert list(metadata.poll()) == []
    azure_vm.schedule("Freeze", "demo-0-spot_4", "demo-0-spot_3", duration_sec=5)
    assert list(metadata.poll()) == [("host-maintenance", WHEN)]


def test_the_first_answer_may_take_long_and_later_ones_may_not(azure_vm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.preemption.watcher._TIMEOUT_SEC", 0.2)
    azure_vm.event_waits = [0.6, 0.6]
    metadata = AzureMetadata(azure_vm.url)
    assert list(metadata.poll()) == [], "the service is being turned on"
    with pytest.raises(OSError, match="timed out"):
        list(metadata.poll())


def test_an_answer_that_is_no_answer_is_an_error(azure_vm: Any) -> None:
    azure_vm.metadata_status = 503
    with pytest.raises(OSError, match="answers 503 for /metadata/scheduledevents"):
        list(AzureMetadata(azure_vm.url).poll())


def test_a_pause_saves_and_a_preemption_stops(azure_vm: Any, signals: list[tuple[int, int]], tmp_path: Path) -> None:
    path = tmp_path / "notices.jsonl"
    watcher = Watcher(path, AzureMetadata(azure_vm.url).poll, poll_sec=0.01)
    azure_vm.schedule("Freeze", duration_sec=9)
    watcher.start()
    deadline = time.monotonic() + 10
    while not read_notices(path):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert signals == []
    azure_vm.schedule("Preempt")
    watcher.join(10)
    assert [(notice.kind, notice.stops) for notice in read_notices(path)] == [
        ("host-maintenance", False),
        ("spot-interruption", True),
    ]
    assert signals == [(os.getpid(), signal.SIGTERM)]
    assert azure_vm.started == [], "the trainer acknowledges nothing: it has not saved yet"


def test_azure_is_asked_every_second(azure_vm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANGWAY_METADATA_URL", azure_vm.url)
    azure_vm.schedule("Terminate")
    assert list(CLOUDS["azure"]()()) == [("lifecycle-terminate", WHEN)]
    assert poll_sec_of("azure") == 1.0
