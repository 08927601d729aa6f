"""The file in which a machine keeps its notices: what holds now, whole, and as old as the cloud's last answer."""

import os
from pathlib import Path
from typing import Any, get_args

import pytest

from gangway.images.node.aws.notices import POLL_SEC, AwsNotices
from gangway.images.node.azure.notices import _KINDS
from gangway.images.node.notices import NoticeFile
from gangway.trainer.preemption.notices import STALE_SEC, Kind, NoticesFile


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
        assert list(NoticesFile(tmp_path / "held").poll()) == notices
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
