"""Nodes asked of a group: the change that a decision means, whoever carries it out."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.findings import InputError
from gangway.components.estimate.autoscale import Decision
from gangway.jobs.systemd.scaling.base import (
    AT_TAG,
    WHY_TAG,
    Change,
    GroupState,
    Rest,
    find_nodes,
    get_change,
    get_tags,
    read_change_tags,
    since_change_sec,
)

NOW = datetime(2030, 1, 1, tzinfo=UTC)
HOLD_SEC = 900.0


def wants(nodes: int) -> Decision:
    return Decision(nodes, f"{nodes} nodes: enough; 468 of 400 images/s (±5 %)", reached=True, possible=True)


groups = st.builds(
    GroupState,
    name=st.just("demo-0"),
    most=st.integers(0, 16),
    asked=st.integers(0, 16),
    in_service=st.integers(0, 16),
    is_held=st.booleans(),
    changed_at=st.none() | st.integers(0, 7200).map(lambda sec: NOW - timedelta(seconds=sec)),
    why_not_in=st.sampled_from(["", "they hear of nothing"]),
)


@given(st.lists(groups, min_size=1, max_size=4), st.integers(1, 16), st.integers(1, 4))
def test_a_change_is_of_the_first_group_within_bounds_and_moves_something(
    states: Sequence[GroupState], nodes: int, least: int
) -> None:
    first = states[0]
    found = get_change(states, wants(nodes), least, HOLD_SEC, NOW)
    if isinstance(found, str):
        closed, early = first.most == 0 or first.asked == 0, since_change_sec(states, NOW) < HOLD_SEC
        same = first.asked == min(max(nodes, least), first.most)
        held = first.is_held and min(max(nodes, least), first.most) > first.asked
        unheard = bool(first.why_not_in) and min(max(nodes, least), first.most) < first.asked
        assert closed or early or same or held or unheard, "else it is a change"
        return
    assert (found.group, found.was) == (first.name, first.asked)
    assert found.nodes != found.was
    assert found.was > 0, "what somebody has emptied stays empty"
    assert min(least, first.most) <= found.nodes <= first.most
    assert since_change_sec(states, NOW) >= HOLD_SEC
    assert not (first.is_held and found.nodes > found.was), "a breaker that is open lets none in, and some out"
    assert not (first.why_not_in and found.nodes < found.was), "who hears of nothing is not sent away"
    after = [first._replace(asked=found.nodes, changed_at=NOW), *states[1:]]
    assert isinstance(get_change(after, wants(nodes), least, HOLD_SEC, NOW), str), "and nothing more to do"


def test_a_rung_that_makes_up_for_others_counts_as_nodes_of_the_job() -> None:
    states = [GroupState("a", 4, 4, 1), GroupState("b", 2, 2, 2)]
    assert find_nodes(states) == 3
    assert find_nodes([GroupState("a", 4, 4, 0)]) is None


def test_nodes_that_would_hear_of_nothing_stay() -> None:
    state = GroupState("a", 4, 3, 3, why_not_in="they hear of nothing")
    stays = get_change([state], wants(2), 1, HOLD_SEC, NOW)
    assert isinstance(stays, str)
    assert "they hear of nothing" in stays
    assert isinstance(get_change([state], wants(4), 1, HOLD_SEC, NOW), Change), "others may come"


def test_tags_say_when_and_why_in_characters_that_every_cloud_takes() -> None:
    tags = get_tags(Change("a", 3, 2, f"enough; 468 of 400 images/s (±5 %) {'x' * 300}"), NOW)
    assert read_change_tags(tags) == (NOW, tags[WHY_TAG])
    assert tags[WHY_TAG].startswith("3 to 2: enough 468 of 400 images/s 5 x")
    assert max(map(len, tags.values())) == 256
    state = GroupState("a", 4, 2, 2, False, *read_change_tags(tags))
    assert state.last_change.startswith("last changed 2030-01-01 00:00 UTC: 3 to 2")


@pytest.mark.parametrize("text", ["", "yesterday", "2030-01-01T00:00:00"])
def test_a_tag_that_is_no_time_holds_nothing_back(text: str) -> None:
    assert read_change_tags({AT_TAG: text, WHY_TAG: "why"}) == (None, "why")
    assert GroupState("a", 4, 2, 2, False, *read_change_tags({AT_TAG: text})).last_change == ""


class Answer:
    """A reply with a status and a text."""

    def __init__(self, status_code: int, text: str) -> None:
        self.status_code, self.text = status_code, text

    def json(self) -> Any:
        import json

        return json.loads(self.text)


class Cloud:
    """A session that has one answer, or none."""

    def __init__(self, answer: Answer | None) -> None:
        self.answer, self.asked = answer, list[tuple[str, str, Any, Any]]()

    def request(self, method: str, url: str, *, params: Any = None, json: Any = None, timeout: Any = None) -> Answer:
        self.asked.append((method, url, params, json))
        if self.answer is None:
            raise ConnectionError
        return self.answer


def test_an_answer_is_its_data() -> None:
    cloud = Cloud(Answer(200, '{"a": 1}'))
    assert Rest(cloud, "https://cloud.example.com", "log in").call("it", "GET", "/it", {"v": "1"}) == {"a": 1}
    assert cloud.asked == [("GET", "https://cloud.example.com/it", {"v": "1"}, None)]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "no answer: ConnectionError"),
        (Answer(404, "{}"), "does not exist"),
        (Answer(403, '{"error": "may not"}'), '403: {"error": "may not"}'),
        (Answer(200, "<html>"), "200: <html>"),
        (Answer(200, "[]"), "200: []"),
        (Answer(503, "x" * 9000), "503: xxx"),
    ],
)
def test_what_is_no_answer_is_told(answer: Answer | None, words: str) -> None:
    with pytest.raises(InputError) as told:
        Rest(Cloud(answer), "https://cloud.example.com", "log in").call("scale set a", "GET", "/it")
    assert told.value.place == "scale set a"
    assert words in str(told.value)
    assert told.value.fix
    assert len(str(told.value)) < 1000
