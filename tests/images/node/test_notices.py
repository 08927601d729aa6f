"""The file in which a machine keeps its notices: what holds now, whole, and as old as the cloud's last answer."""

import json
import os
import threading
from pathlib import Path
from typing import Any, get_args

import pytest

from gangway.images.node.aws.notices import POLL_SEC, AwsNotices
from gangway.images.node.azure.api import AzureApi
from gangway.images.node.azure.notices import _KINDS, AzureNotices
from gangway.images.node.gcp.notices import GcpNotices
from gangway.images.node.notices import METADATA_URL, NoticeFile
from gangway.trainer.preemption.notices import STALE_SEC, HeldNotices, Kind


def test_what_a_machine_keeps_is_what_the_job_reads(tmp_path: Path) -> None:
    held = [
        [("host-maintenance", "Mon, 19 Sep 2026 18:29 GMT")],
        [("rebalance", ""), ("spot-interruption", "x")],
        [],
    ]
    answers = iter(held)
    notice_file = NoticeFile(tmp_path / "held", lambda: next(answers))
    for notices in held:
        notice_file.update()
        assert list(HeldNotices(tmp_path / "held").poll()) == notices
    assert [path.name for path in tmp_path.iterdir()] == ["held"]


def test_kinds_are_those_that_the_job_knows(imds: Any) -> None:
    imds.items |= {
        "spot/instance-action": "{}",
        "autoscaling/target-lifecycle-state": "Terminated",
        "events/recommendations/rebalance": "{}",
    }
    kinds = {kind for kind, _ in AwsNotices(imds.url).poll()} | set(_KINDS.values())
    assert kinds == {*get_args(Kind)} - {"max-hours"}


def test_a_cloud_that_does_not_answer_leaves_the_file_to_age(
    imds: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notice_file = NoticeFile(tmp_path / "held", AwsNotices(imds.url).poll)
    notice_file.update()
    os.utime(tmp_path / "held", (1, 1))
    imds.status = 503
    notice_file.update()
    notice_file.update()
    assert (tmp_path / "held").stat().st_mtime == 1
    assert capsys.readouterr().err.count("cannot read interruption notices, will retry: ConnectionError") == 1
    imds.status = 200
    notice_file.update()
    assert (tmp_path / "held").stat().st_mtime > 1
    assert POLL_SEC < STALE_SEC / 10


def test_an_answer_of_no_known_form_ends_no_watch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def poll() -> Any:
        raise KeyError("Events")

    notice_file = NoticeFile(tmp_path / "held", poll)
    notice_file.update()
    notice_file.update()
    assert not (tmp_path / "held").exists()
    assert capsys.readouterr().err.count("will retry: KeyError: 'Events'") == 1


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


def test_an_answer_that_is_no_answer_is_an_error_notices(azure_vm: Any) -> None:
    azure_vm.metadata_status = 503
    with pytest.raises(OSError, match=r"503: GET .*/metadata/"):
        list(asked(azure_vm).poll())


def test_a_quiet_machine_has_no_notices_of_google(gce: Any) -> None:
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
def test_each_item_is_a_notice_of_its_kind_of_google(
    gce: Any, item: str, text: str, notices: list[tuple[str, str]]
) -> None:
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


def test_an_answer_that_is_no_answer_is_an_error_of_google(gce: Any) -> None:
    gce.metadata_status = 503
    with pytest.raises(OSError, match=r"503: GET .*instance/maintenance-event"):
        list(GcpNotices(gce.url).poll())
