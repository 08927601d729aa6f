"""Progress: a line each 2 s on a terminal and each 10 s elsewhere, with rate and time left."""

import io

from gangway.trainer.core.console import Progress


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _run(out: io.StringIO, seconds: int, per_second: int = 50, done: int = 0) -> str:
    now = [0.0]
    progress = Progress("faces", 10_000, out=out, clock=lambda: now[0])
    progress.go_on(done, ())
    for _ in range(seconds):
        now[0] += 1
        progress.add(per_second)
    progress.close()
    return out.getvalue()


def test_a_log_gets_a_line_every_ten_seconds() -> None:
    lines = _run(io.StringIO(), 25, done=1000).splitlines()
    assert lines == [
        "faces: resuming, 1,000 of 10,000 files are done",
        "faces: 1,500 of 10,000 files (15 %), 50/s, 2 min 50 s left",
        "faces: 2,000 of 10,000 files (20 %), 50/s, 2 min 40 s left",
    ]


def test_a_terminal_gets_its_line_rewritten_every_two_seconds() -> None:
    text = _run(_Terminal(), 5)
    assert text.count("\r\033[K") == 2
    assert text.endswith("\n")
    assert text.count("\n") == 1


def test_nothing_is_said_of_what_is_done_at_once() -> None:
    assert _run(_Terminal(), 1) == _run(io.StringIO(), 9) == ""


def test_slow_and_long_ones_are_told_as_people_would() -> None:
    assert _run(io.StringIO(), 10, per_second=1) == "faces: 10 of 10,000 files (0 %), 1.0/s, 2 h 46 min left\n"
    assert "no estimate yet" in _run(io.StringIO(), 10, per_second=0)
    assert ", 10 s left" in _run(io.StringIO(), 10, per_second=500)


def test_what_is_made_anew_is_said() -> None:
    out = io.StringIO()
    Progress("faces", 10, out=out).go_on(0, ("00001.npy",))
    assert out.getvalue() == "faces: 00001.npy is damaged or missing and is made again\n"
