"""The journal: on disk before the deed, readable after any end, and of one process at a time."""

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gangway.bench.journal import Journal, Progress, State
from gangway.components.core.findings import InputError

HEADER = {"stamp": "t"}


def at(hour: float) -> Callable[[], datetime]:
    return lambda: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=hour)


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    with Journal.create(tmp_path, HEADER, at(0)) as journal:
        journal.enter("a", State.PLANNED)
        journal.enter("a", State.UP_BEGUN, usd_per_hour=3.0, usd_at_once=1.0)
        journal.note("a", process={"pid": 7})
        journal.enter("a", State.UP, facts={"runs_url": "s3://b"})
        journal.enter("b", State.PLANNED)
        written = dict(journal.items)
    with Journal.open(tmp_path, at(2)) as journal:
        assert journal.header == HEADER
        assert journal.items == written
        a = journal["a"]
        assert a.is_up
        assert a.facts == {"process": {"pid": 7}, "runs_url": "s3://b"}
        assert a.attempts[0].usd(journal.now()) == pytest.approx(7.0)
        assert journal["c"] == Progress()


def test_a_line_is_on_disk_when_it_is_written(tmp_path: Path) -> None:
    with Journal.create(tmp_path, HEADER) as journal:
        journal.enter("a", State.PLANNED)
        lines = [json.loads(text) for text in (tmp_path / "journal.jsonl").read_text("utf-8").splitlines()]
    assert [line.get("state") for line in lines] == [None, "planned"]
    assert all(datetime.fromisoformat(line["at"]).tzinfo is not None for line in lines)


def test_half_a_line_at_the_end_was_never_done(tmp_path: Path) -> None:
    with Journal.create(tmp_path, HEADER) as journal:
        journal.enter("a", State.PLANNED)
    file = tmp_path / "journal.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"at": "2026-01-01T00:00:00+00:00", "item": "a", "sta')
    with Journal.open(tmp_path) as journal:
        assert journal["a"].state is State.PLANNED
        journal.enter("a", State.UP_BEGUN)
    with Journal.open(tmp_path) as journal:
        assert journal["a"].is_up
    assert file.read_bytes().startswith(whole)


@pytest.mark.parametrize("damage", ["garbage\n", "[]\n", '{"item": "a"}\n', '{"at": "2026-01-01T00:00:00+00:00"}\n'])
def test_a_damaged_line_within_is_told(tmp_path: Path, damage: str) -> None:
    with Journal.create(tmp_path, HEADER):
        pass
    with (tmp_path / "journal.jsonl").open("a") as file:
        file.write(damage)
    with pytest.raises(InputError, match="line 2: cannot be read") as told, Journal.open(tmp_path):
        pass
    assert "pulumi stack ls" in told.value.fix


@pytest.mark.parametrize("content", [b"", b'{"precious": 1}'])
def test_a_journal_without_a_whole_line_is_damaged_and_stays(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "journal.jsonl").write_bytes(content)
    with pytest.raises(InputError, match="line 1"), Journal.open(tmp_path):
        pass
    assert (tmp_path / "journal.jsonl").read_bytes() == content


def test_two_processes_do_not_share_it(tmp_path: Path) -> None:
    with (
        Journal.create(tmp_path, HEADER),
        pytest.raises(InputError, match="is in use by another `gangway bench`"),
        Journal.open(tmp_path),
    ):
        pass
    with Journal.open(tmp_path):
        pass


def test_a_folder_without_a_journal(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="contains no journal of a suite") as told, Journal.open(tmp_path):
        pass
    assert told.value.place == str(tmp_path)


def test_a_journal_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").mkdir()
    with pytest.raises(InputError, match="cannot be opened"), Journal.open(tmp_path):
        pass


def test_no_state_may_be_left_out(tmp_path: Path) -> None:
    with Journal.create(tmp_path, HEADER) as journal:
        with pytest.raises(AssertionError):
            journal.enter("a", State.UP)
        journal.enter("a", State.PLANNED)
        with pytest.raises(AssertionError):
            journal.enter("a", State.DESTROYED)


def test_the_first_reason_is_kept_and_planning_anew_forgets_it(tmp_path: Path) -> None:
    with Journal.create(tmp_path, HEADER) as journal:
        journal.enter("a", State.PLANNED)
        journal.enter("a", State.UP_BEGUN)
        journal.enter("a", State.FAILED, reason="stopped by SIGINT", stopped=True)
        journal.enter("a", State.DESTROY_BEGUN)
        journal.enter("a", State.FAILED, reason="destroy: locked")
        assert (journal["a"].reason, journal["a"].stopped) == ("stopped by SIGINT", True)
        journal.enter("a", State.DESTROY_BEGUN)
        journal.enter("a", State.DESTROYED)
        assert not journal["a"].is_up
        assert not journal["a"].is_finished, "somebody's wish, so it may be tried again"
        journal.enter("a", State.PLANNED)
        assert journal["a"].reason == ""
        assert len(journal["a"].attempts) == 1, "what it cost is not forgotten"


def test_a_full_disk_begins_nothing_and_keeps_nothing_standing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that does not fit is taken back, so that the journal stays whole."""
    with Journal.create(tmp_path, HEADER) as journal:
        journal.enter("a", State.PLANNED)
        journal.enter("a", State.UP_BEGUN)
        journal.enter("b", State.PLANNED)
        before = (tmp_path / "journal.jsonl").read_bytes()
        real = os.write
        monkeypatch.setattr(os, "write", lambda descriptor, text: real(descriptor, text[:10]))
        with pytest.raises(OSError, match="no space left"):
            journal.enter("b", State.UP_BEGUN)
        assert not journal["b"].is_up
        journal.enter("a", State.DESTROY_BEGUN)
        journal.note("a", process={"pid": 1})
        journal.enter("a", State.DESTROYED)
        assert not journal["a"].is_up
        assert (tmp_path / "journal.jsonl").read_bytes() == before
        monkeypatch.undo()
    with Journal.open(tmp_path) as journal:
        assert journal["a"].is_up, "a later resume looks once more"
