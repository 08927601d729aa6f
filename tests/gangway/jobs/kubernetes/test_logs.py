"""Lines of several pods in the order of their times, each once."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.jobs.kubernetes.kubectl import find_log_error, merge_logs

_START_NS = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 10**9


def said(lines: list[tuple[int, str, str]]) -> bytes:
    """As `kubectl logs --prefix --timestamps` has it: pod after pod."""
    text = "".join(
        f"[pod/{pod}/node] {datetime.fromtimestamp(at // 10**9, UTC):%Y-%m-%dT%H:%M:%S}.{at % 10**9:09d}Z {text}\n"
        for at, pod, text in sorted(lines, key=lambda each: each[1])
    )
    return text.encode()


_LINES = st.lists(
    st.tuples(st.integers(0, 20 * 10**9), st.sampled_from("ab"), st.text("xyz ]é\r\u2028\x85\x0b", max_size=6)),
    unique_by=lambda each: each[0],
    max_size=20,
)


@given(_LINES, st.lists(st.integers(0, 25), max_size=4))
def test_however_often_it_is_asked_each_line_comes_once_and_in_order(
    drawn: list[tuple[int, str, str]], asked_sec: list[int]
) -> None:
    lines = [(_START_NS + at, pod, text) for at, pod, text in drawn]
    offset, text = 0, ""
    for at_sec in sorted(asked_sec):
        now = _START_NS + at_sec * 10**9
        part, offset = merge_logs(said([each for each in lines if each[0] <= now]), offset, now)
        text += part
    part, offset = merge_logs(said(lines), offset, None)
    assert text + part == "".join(f"{text}\n" for _, _, text in sorted(lines))
    assert merge_logs(said(lines), offset, None) == ("", offset)


def test_a_pod_whose_lines_come_late_loses_none() -> None:
    early, late = (_START_NS, "a", "first"), (_START_NS - 10**9, "b", "before it")
    text, offset = merge_logs(said([early]), 0, _START_NS)
    assert text == ""
    assert merge_logs(said([early, late]), offset, None)[0] == "before it\nfirst\n"


def test_nodes_tell_the_time_of_where_they_are() -> None:
    lines = (
        b"[pod/a/node] 2026-01-01T02:00:01.000000002+02:00 second\n"
        b"[pod/a/node] 2026-01-01T02:00:02+02:00 last"
        b"[pod/b/node] 2025-12-31T18:30:01.000000001-05:30 first\n"
        b"[pod/c/node] 2026-01-01T00:00:01.000000003Z third\n"
    )
    assert merge_logs(lines, 0, None) == ("first\nsecond\nthird\nlast\n", _START_NS + 2 * 10**9)
    assert merge_logs(lines, _START_NS + 10**9 + 2, None)[0] == "third\nlast\n"


def test_what_is_no_line_of_a_pod_is_left_out() -> None:
    assert merge_logs(b"error: a container in pod b is waiting to start\n", 0, None) == ("", 0)


def test_bytes_that_are_no_text_are_shown_as_such() -> None:
    line = said([(_START_NS, "a", "x")]).replace(b"x\n", b"\xff 10%\r 20%\n")
    assert merge_logs(line, 0, None)[0] == "\ufffd 10%\r 20%\n"


def test_a_last_line_without_an_end_takes_nothing_of_the_next_pods() -> None:
    lines = said([(_START_NS, "a", "last"), (_START_NS + 1, "b", "first")]).replace(b"last\n", b"last")
    assert merge_logs(lines, 0, None)[0] == "last\nfirst\n"


@pytest.mark.parametrize(
    ("error", "is_cut"),
    [
        (b'error: container "node" in pod "b" is waiting to start: ContainerCreating\n', False),
        (b'error: pods "b" not found\n', False),
        (b'error: Get "https://n1:10250/containerLogs": dial tcp: i/o timeout\n', True),
        (
            b"half aerror: deadline exceeded (Client.Timeout or context cancellation while reading body)\n",
            True,
        ),
    ],
)
def test_what_was_cut_short_is_told_from_what_has_not_begun(error: bytes, is_cut: bool) -> None:
    lines = said([(_START_NS, "a", "error: of a job")])
    assert find_log_error(lines) == ""
    assert bool(find_log_error(lines + error)) is is_cut
