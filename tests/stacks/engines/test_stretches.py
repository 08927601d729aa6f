"""When a job was on nodes: what is counted of a start that was killed, and what is no such file."""

import os
from datetime import timedelta
from pathlib import Path

import pytest

from components.core.findings import InputError
from stacks.engines.stretches import begin_stretch, end_stretch, still_on_nodes, stretches_of, used_sec


def test_what_has_ended_is_kept_and_what_goes_on_is_open(tmp_path: Path) -> None:
    assert stretches_of(tmp_path, runs=True) == ()
    begin_stretch(tmp_path, 2)
    still_on_nodes(tmp_path)
    end_stretch(tmp_path)
    begin_stretch(tmp_path, 3)
    first, second = stretches_of(tmp_path, runs=True)
    assert (first.nodes, second.nodes, second.end) == (2, 3, None)
    assert first.end is not None
    assert first.start <= first.end <= second.start
    now = second.start + timedelta(seconds=7)
    assert used_sec([second], now) == 7


def test_one_that_was_killed_came_as_far_as_it_said(tmp_path: Path) -> None:
    begin_stretch(tmp_path, 1)
    still_on_nodes(tmp_path)
    (begun,) = stretches_of(tmp_path, runs=True)
    late = begun.start + timedelta(seconds=100)
    ns = round(late.timestamp() * 1000) * 1_000_000
    os.utime(tmp_path / "on-nodes", ns=(ns, ns))
    (killed,) = stretches_of(tmp_path, runs=False)
    assert killed.end == late
    end_stretch(tmp_path)
    assert stretches_of(tmp_path, runs=True) == (killed,)
    end_stretch(tmp_path)
    assert stretches_of(tmp_path, runs=True) == (killed,), "there is none to end"


def test_a_clock_that_went_back_makes_no_negative_time(tmp_path: Path) -> None:
    begin_stretch(tmp_path, 1)
    os.utime(tmp_path / "on-nodes", (0, 0))
    (found,) = stretches_of(tmp_path, runs=False)
    assert found.end == found.start


def test_one_that_was_half_written_down_is_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin_stretch(tmp_path, 1)
    still_on_nodes(tmp_path)
    with monkeypatch.context() as killed:
        killed.setattr(Path, "unlink", lambda _: (_ for _ in ()).throw(OSError("no")))
        with pytest.raises(OSError, match="no"):
            end_stretch(tmp_path)
    end_stretch(tmp_path)
    assert len(stretches_of(tmp_path, runs=False)) == 1


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin_stretch(tmp_path, 1)
    end_stretch(tmp_path)
    begin_stretch(tmp_path, 2)
    before = (tmp_path / "stretches").read_bytes()
    with monkeypatch.context() as full:
        full.setattr(Path, "write_text", lambda path, text: path.write_bytes(text[:3].encode()) and 1 / 0)
        with pytest.raises(ZeroDivisionError):
            end_stretch(tmp_path)
    assert (tmp_path / "stretches").read_bytes() == before
    end_stretch(tmp_path)
    assert [each.nodes for each in stretches_of(tmp_path, runs=False)] == [1, 2]


@pytest.mark.parametrize("text", ["1 2\n", "a b c\n", "1 2 3 4\n", "1 99999999999999999999 1\n"])
def test_what_somebody_else_wrote_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "stretches").write_text(text)
    with pytest.raises(InputError, match="no stretches of a job"):
        stretches_of(tmp_path, runs=False)
