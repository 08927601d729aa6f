"""Compute Engine's notices, from a stand-in of its metadata server, which holds its answer back until it changes."""

import threading
from typing import Any

import pytest

from gangway.images.node.gcp.notices import GcpNotices


def test_a_quiet_machine_has_no_notices(gce: Any) -> None:
    metadata = GcpNotices(gce.url, wait_sec=0)
    assert [list(metadata.poll()) for _ in range(2)] == [[], []]


@pytest.mark.parametrize(
    ("item", "text", "notices"),
    [
        ("instance/preempted", "TRUE", [("spot-interruption", "")]),
        ("instance/maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE", [("host-maintenance", "")]),
        ("instance/maintenance-event", "MIGRATE_ON_HOST_MAINTENANCE", []),
        ("instance/tags", '["gangway-node", "gangway-leave"]', [("lifecycle-terminate", "")]),
        ("instance/tags", '["gangway-node", "gangway-leave-me"]', []),
    ],
)
def test_each_item_is_a_notice_of_its_kind(gce: Any, item: str, text: str, notices: list[tuple[str, str]]) -> None:
    gce.items[item] = text
    assert list(GcpNotices(gce.url).poll()) == notices


def test_a_preemption_is_told_while_the_server_is_waited_for(gce: Any) -> None:
    metadata = GcpNotices(gce.url, wait_sec=60)
    assert list(metadata.poll()) == []
    threading.Timer(0.05, gce.items.__setitem__, ("instance/preempted", "TRUE")).start()
    assert list(metadata.poll()) == [("spot-interruption", "")], "long before the minute is over"


def test_a_machine_without_such_items_has_no_notices(gce: Any) -> None:
    gce.items.clear()
    assert list(GcpNotices(gce.url).poll()) == []


def test_an_answer_that_is_no_answer_is_an_error(gce: Any) -> None:
    gce.metadata_status = 503
    with pytest.raises(OSError, match=r"503: GET .*instance/maintenance-event"):
        list(GcpNotices(gce.url).poll())
