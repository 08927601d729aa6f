"""Lines of several pods in the order of their times, each once."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from stacks.engines.kubernetes.logs import read

_START_NS = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 10**9


def said(lines: list[tuple[int, str, str]]) -> str:
    """As `kubectl logs --prefix --timestamps` has it: pod after pod."""
    return "".join(
        f"[pod/{pod}/node] {datetime.fromtimestamp(at // 10**9, UTC):%Y-%m-%dT%H:%M:%S}.{at % 10**9:09d}Z {text}\n"
        for at, pod, text in sorted(lines, key=lambda each: each[1])
    )


_LINES = st.lists(
    st.tuples(st.integers(0, 20 * 10**9), st.sampled_from("ab"), st.text("xyz ]é", max_size=6)),
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
        part, offset = read(said([each for each in lines if each[0] <= now]), offset, now)
        text += part
    part, offset = read(said(lines), offset, None)
    assert text + part == "".join(f"{text}\n" for _, _, text in sorted(lines))
    assert read(said(lines), offset, None) == ("", offset)


def test_a_pod_whose_lines_come_late_loses_none() -> None:
    early, late = (_START_NS, "a", "first"), (_START_NS - 10**9, "b", "before it")
    text, offset = read(said([early]), 0, _START_NS)
    assert text == ""
    assert read(said([early, late]), offset, None)[0] == "before it\nfirst\n"


def test_what_is_no_line_of_a_pod_is_left_out() -> None:
    assert read("error: a container in pod b is waiting to start\n", 0, None) == ("", 0)
