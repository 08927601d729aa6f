"""The comparison of declared and held fields, and the status it leads to."""

from typing import Any

import pytest

from gangway.sandbox.rows import Applied, Status, compare, verdict


def differing(declared: Any, read_back: Any) -> list[str]:
    return [check.path for check in compare(declared, read_back) if not check.equal]


def test_fields_the_service_adds_are_no_difference() -> None:
    assert differing({"A": 1}, {"A": 1.0, "CreateTime": "now"}) == []


def test_a_changed_leaf_is_found_with_its_path() -> None:
    declared = {"Data": {"Cards": [{"Index": 0}, {"Index": 1}]}}
    assert differing(declared, {"Data": {"Cards": [{"Index": 0}, {"Index": 7}]}}) == ["Data.Cards[1].Index"]


def test_plain_lists_are_compared_without_order_and_with_multiplicity() -> None:
    assert differing({"Ids": ["b", "a"]}, {"Ids": ["a", "b"]}) == []
    assert differing({"Ids": ["a"]}, {"Ids": ["a", "a"]}) == ["Ids"]
    assert differing({"Ids": []}, {"Ids": ["a"]}) == ["Ids"]
    assert differing({"Ids": ["a"]}, {"Ids": [{"Id": "a"}]}) == ["Ids"]


def test_nothing_declared_is_equal_to_nothing_held() -> None:
    assert differing({"Ids": []}, {}) == []
    assert differing({"Ids": ["a"]}, {}) == ["Ids"]


def test_tags_may_be_more_than_declared_but_not_other() -> None:
    tags = [{"Key": "team", "Value": "ml"}]
    assert differing({"Tags": tags}, {"Tags": [{"Key": "aws:x", "Value": "y"}, *tags]}) == []
    assert differing({"Tags": tags}, {"Tags": [{"Key": "team", "Value": "x"}]}) == ["Tags[team].Value"]
    assert differing({"Tags": tags}, {"Tags": []}) == ["Tags[team].Value"]


def test_other_lists_may_not_be_longer_than_declared() -> None:
    one, two = {"Name": "Group", "Value": "a"}, {"Name": "Zone", "Value": "b"}
    assert differing({"Dimensions": [one]}, {"Dimensions": [one, two]}) == ["Dimensions"]
    assert differing({"Steps": [{"Size": 1}]}, {"Steps": [{"Size": 1}, {"Size": 2}]}) == ["Steps"]
    assert differing({"Dimensions": [one, two]}, {"Dimensions": [two, one]}) == []


APPLIED = Applied("id", {}, {"Size": 2, "Alarm": {"Who": ["a"]}}, unkept=("Alarm",))


@pytest.mark.parametrize(
    ("read_back", "unsent", "status", "words"),
    [
        ({"Size": 2, "Alarm": {"Who": ["a"]}}, [], Status.READ_BACK_EQUAL, ""),
        ({"Size": 2}, [], Status.ACCEPTED, "not to be read back from moto: Alarm.Who"),
        ({"Size": 2, "Alarm": {"Who": ["a"]}}, ["colour"], Status.ACCEPTED, "not sent by the sandbox: colour"),
        ({"Size": 3}, [], Status.DIFFERENT, "Size: declared 2, held 3; not to be read back from moto: Alarm.Who"),
        ({"Size": 2, "Alarm": {"Who": ["b"]}}, [], Status.DIFFERENT, "Alarm.Who: declared ['a'], held ['b']"),
        ({"Alarm": {"Who": ["a"]}}, [], Status.DIFFERENT, "Size: declared 2, held nothing"),
    ],
)
def test_judgement(read_back: dict[str, Any], unsent: list[str], status: Status, words: str) -> None:
    assert verdict(APPLIED, read_back, unsent)[:2] == (status, words)


def test_only_what_was_read_back_counts_as_compared() -> None:
    assert verdict(APPLIED, {"Size": 2}, [])[2] == ("Size",)
    assert verdict(APPLIED, {"Size": 2, "Alarm": {"Who": ["a"]}}, [])[2] == ("Size", "Alarm.Who")
