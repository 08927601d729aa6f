"""Notices travel through the node's file from the watcher to every worker."""

from pathlib import Path

import pytest

from gangway.trainer.preemption.notices import Notice, notices_file, read_notices, write_notice


def test_notices_are_read_in_the_order_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "notices.jsonl"
    assert read_notices(path) == []
    first = write_notice(path, "rebalance")
    second = write_notice(path, "spot-interruption", "2026-11-21T08:22:00Z")
    assert read_notices(path) == [first, second]
    assert (second.kind, second.deadline) == ("spot-interruption", "2026-11-21T08:22:00Z")
    assert first.seen_at <= second.seen_at


def test_only_a_rebalance_lets_the_run_go_on() -> None:
    kinds = ("spot-interruption", "lifecycle-terminate", "max-hours", "rebalance")
    assert [kind for kind in kinds if not Notice(kind, 0.0).stops] == ["rebalance"]  # type: ignore[arg-type]  # literals


def test_outside_the_launcher_there_is_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("GANGWAY_NOTICES", raising=False)
    assert notices_file() is None
    assert read_notices(None) == []
    monkeypatch.setenv("GANGWAY_NOTICES", str(tmp_path / "x"))
    assert notices_file() == tmp_path / "x"
