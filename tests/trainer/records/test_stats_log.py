"""stats.jsonl survives torn lines and full disks, and counts what it lost."""

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from gangway.trainer.core.errors import TrainerError
from gangway.trainer.records.stats_log import Line, SessionClock, StatsWriter, read_stats_log, require_run


def _line(images: int, **more: Any) -> dict[str, Any]:
    return {"images": images, "time": 1.5, "session": 0, **more}


TICK = _line(1, loss_g=1, loss_d=1, r1=None, grad_norm_g=1, grad_norm_d=1, energy={}, rss_gib=1, gpu_gib=None)


def test_lines_are_read_back_as_written(tmp_path: Path) -> None:
    StatsWriter(tmp_path).write(TICK)
    StatsWriter(tmp_path).event("checkpoint", 1, 0, file="a.pt")
    stats_log = read_stats_log(tmp_path)
    tick, event = stats_log.lines
    assert (tick, stats_log.unreadable) == (TICK, 0)
    assert (event["event"], event["session"], event["file"]) == ("checkpoint", 0, "a.pt")
    assert event["time"] > 1e9
    assert read_stats_log(tmp_path / "none") == ([], 0)


def test_listeners_get_the_very_lines_that_are_written_and_none_that_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    heard: list[Line] = []
    writer = StatsWriter(tmp_path, echo=True, listeners=[heard.append, heard.append])
    writer.write({**TICK, "images": 2})
    writer.event("checkpoint", 2, 0)
    assert heard[::2] == heard[1::2] == read_stats_log(tmp_path).lines
    assert [json.loads(text) for text in capsys.readouterr().out.splitlines()] == heard[::2]
    (tmp_path / "stats.jsonl").unlink()
    (tmp_path / "stats.jsonl").symlink_to("/dev/full")  # every write there fails as on a full disk
    with pytest.raises(TrainerError, match="cannot be written"):
        writer.write(TICK)
    assert len(heard) == 4


def test_lines_of_several_threads_stay_whole(tmp_path: Path) -> None:
    writer = StatsWriter(tmp_path)

    def write() -> None:
        for _ in range(20):
            writer.event("checkpoint", 1, 0, text="x" * 20_000)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stats_log = read_stats_log(tmp_path)
    assert (len(stats_log.lines), stats_log.unreadable) == (80, 0)


def test_a_line_torn_by_a_killed_session_is_counted_and_kept_apart(tmp_path: Path) -> None:
    StatsWriter(tmp_path).write(TICK)
    with (tmp_path / "stats.jsonl").open("a") as file:
        file.write('{"images": 2, "lo')
    StatsWriter(tmp_path).write({**TICK, "images": 3})
    stats_log = read_stats_log(tmp_path)
    assert [line["images"] for line in stats_log.lines] == [1, 3]
    assert stats_log.unreadable == 1


@pytest.mark.parametrize(
    "text",
    ["null", "[1]", '"text"', '{"images": 1}', '{"images": "1", "time": 1, "session": 0}', "\x00\x00", "[" * 9999],
)
def test_what_is_json_but_no_line_is_damaged_too(tmp_path: Path, text: str) -> None:
    (tmp_path / "stats.jsonl").write_text(text + "\n")
    assert read_stats_log(tmp_path) == ([], 1)


def test_bytes_that_are_no_text_are_damaged(tmp_path: Path) -> None:
    (tmp_path / "stats.jsonl").write_bytes(bytes(range(128, 256)))
    assert read_stats_log(tmp_path).unreadable == 1


def test_losses_are_put_in_words(tmp_path: Path) -> None:
    (tmp_path / "stats.jsonl").write_text("{\n{\n")
    assert read_stats_log(tmp_path).losses(2) == "2 unreadable line(s) and no beginning of session(s) 0, 1"
    assert read_stats_log(tmp_path / "none").losses(1) == "no beginning of session(s) 0"
    assert read_stats_log(tmp_path / "none").losses(0) == ""


def test_a_full_disk_is_a_user_error(tmp_path: Path) -> None:
    (tmp_path / "stats.jsonl").symlink_to("/dev/full")
    with pytest.raises(TrainerError, match=r"stats\.jsonl: cannot be written: No space left on device"):
        StatsWriter(tmp_path).write({"images": 1})


def test_a_folder_in_its_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "stats.jsonl").mkdir()
    with pytest.raises(TrainerError, match=r"stats\.jsonl: is a folder, not a file"):
        read_stats_log(tmp_path)


def test_a_directory_without_a_run_is_named_by_its_flag(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path, problem in (("none", "no such folder"), ("file", "is a file"), ("", "holds no run")):
        with pytest.raises(TrainerError, match=f"--run-dir: {problem}") as caught:
            require_run(tmp_path / path, ("stats.jsonl",))
        assert caught.value.fix
        assert caught.value.value == str(tmp_path / path)
    StatsWriter(tmp_path).write(TICK)
    require_run(tmp_path, ("stats.jsonl",))


def test_it_begins_with_the_time_of_day() -> None:
    before = time.time()
    assert before - 1 <= SessionClock().now() <= time.time() + 1


@pytest.mark.parametrize("jump", [-86_400.0, 86_400.0])
def test_a_jump_of_the_time_of_day_is_not_seen(monkeypatch: pytest.MonkeyPatch, jump: float) -> None:
    clock = SessionClock()
    before = clock.now()
    honest = time.time
    monkeypatch.setattr(time, "time", lambda: honest() + jump)
    assert 0 <= clock.now() - before < 60
