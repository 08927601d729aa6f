"""Azure's notices, from a stand-in of its metadata service, which tells of events that are to come."""

from typing import Any

import pytest

from gangway.images.node.azure.api import AzureApi
from gangway.images.node.azure.notices import AzureNotices

WHEN = "Mon, 19 Sep 2026 18:29:47 GMT"


def asked(azure_vm: Any, timeout_sec: float = 2.0) -> AzureNotices:
    """Of a machine of the stand-in."""
    return AzureNotices(AzureApi("", azure_vm.url), timeout_sec)


def test_a_quiet_machine_has_no_notices(azure_vm: Any) -> None:
    metadata = asked(azure_vm)
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
    assert list(asked(azure_vm).poll()) == [(notice, WHEN)]


@pytest.mark.parametrize(
    ("kind", "notices"), [("Reboot", []), ("Freeze", []), ("Preempt", [("spot-interruption", "")])]
)
def test_what_has_begun_is_told_only_where_it_is_the_end(
    azure_vm: Any, kind: str, notices: list[tuple[str, str]]
) -> None:
    """A restart stays in the list for minutes after the machine is up again: it must not stop what has just begun."""
    azure_vm.schedule(kind, status="Started")
    assert list(asked(azure_vm).poll()) == notices


def test_a_restart_of_several_machines_saves_and_goes_on(azure_vm: Any) -> None:
    azure_vm.schedule("Redeploy", "demo-0-spot_3", "demo-0-spot_4")
    assert list(asked(azure_vm).poll()) == [("host-maintenance", WHEN)]


def test_what_is_about_other_machines_or_nothing_is_no_notice(azure_vm: Any) -> None:
    azure_vm.schedule("Preempt", "demo-0-spot_30", "demo-0-spot_4")
    azure_vm.schedule("Freeze", duration_sec=0)
    azure_vm.schedule("SomethingNew")
    metadata = asked(azure_vm)
    assert list(metadata.poll()) == []
    azure_vm.schedule("Freeze", "demo-0-spot_4", "demo-0-spot_3", duration_sec=5)
    assert list(metadata.poll()) == [("host-maintenance", WHEN)]


def test_the_first_answer_may_take_long_and_later_ones_may_not(azure_vm: Any) -> None:
    azure_vm.event_waits = [0.6, 0.6]
    metadata = asked(azure_vm, timeout_sec=0.2)
    assert list(metadata.poll()) == [], "the service is being turned on"
    with pytest.raises(OSError, match="timed out"):
        list(metadata.poll())


def test_an_answer_that_is_no_answer_is_an_error(azure_vm: Any) -> None:
    azure_vm.metadata_status = 503
    with pytest.raises(OSError, match=r"503: GET .*/metadata/"):
        list(asked(azure_vm).poll())
