"""The translation of Pulumi's wire inputs into AWS requests, guided by botocore's models."""

from typing import Any

import botocore.session
import pytest
from botocore.model import Shape
from hypothesis import given
from hypothesis import strategies as st

from gangway.sandbox.aws import Wire, enum_errors, to_shape
from gangway.sandbox.rows import Applied, Status, compare, verdict


@pytest.fixture(scope="module")
def template() -> Shape:
    model = botocore.session.get_session().get_service_model("ec2")
    shape = model.operation_model("CreateLaunchTemplate").input_shape
    assert shape is not None
    return shape


def test_names_numbers_booleans_and_tags_take_the_apis_form(template: Shape) -> None:
    inputs = {
        "launchTemplateName": "x",
        "launchTemplateData": {
            "networkInterfaces": [
                {"networkCardIndex": 31.0, "securityGroups": ["sg-1"], "deleteOnTermination": "true"}
            ],
            "tagSpecifications": [{"resourceType": "volume", "tags": {"team": "ml"}}],
        },
    }
    request = to_shape(inputs, template, {"securityGroups": "Groups"})
    assert request == {
        "LaunchTemplateName": "x",
        "LaunchTemplateData": {
            "NetworkInterfaces": [{"NetworkCardIndex": 31, "Groups": ["sg-1"], "DeleteOnTermination": True}],
            "TagSpecifications": [{"ResourceType": "volume", "Tags": [{"Key": "team", "Value": "ml"}]}],
        },
    }
    assert type(request["LaunchTemplateData"]["NetworkInterfaces"][0]["NetworkCardIndex"]) is int


@pytest.mark.parametrize("value", ["many", 1.5, None, {"a": 1}])
def test_what_is_no_whole_number_stays_for_botocore_to_refuse(template: Shape, value: Any) -> None:
    data = {"launchTemplateData": {"networkInterfaces": [{"networkCardIndex": value}]}}
    kept = to_shape(data, template, {})["LaunchTemplateData"]["NetworkInterfaces"][0]["NetworkCardIndex"]
    assert kept == value


def test_an_unknown_member_stays_for_botocore_to_refuse(template: Shape) -> None:
    assert to_shape({"colour": "red"}, template, {}) == {"colour": "red"}


def test_a_word_the_model_does_not_know_is_named_with_the_nearest(template: Shape) -> None:
    data = {"InstanceMarketOptions": {"MarketType": "capacity_block"}, "InstanceType": "p5.48xlarge"}
    (error,) = enum_errors({"LaunchTemplateData": data}, template)
    assert error.startswith("LaunchTemplateData.InstanceMarketOptions.MarketType: 'capacity_block'")
    assert "did you mean 'capacity-block'?" in error


def test_a_word_like_no_other_is_answered_with_examples(template: Shape) -> None:
    data = {"TagSpecifications": [{"ResourceType": "####"}]}
    (error,) = enum_errors({"LaunchTemplateData": data}, template)
    assert error.startswith("LaunchTemplateData.TagSpecifications[0].ResourceType: '####'")
    assert "one of capacity-reservation, " in error


def test_inputs_nobody_took_are_named() -> None:
    wire = Wire("aws:ec2/vpc:Vpc", "x", {"cidrBlock": "10.0.0.0/16", "tags": {"a": "b"}, "ipv6": True, "none": None})
    wire.skip("ipv6")
    assert wire.unsent() == ["cidrBlock", "tags"]
    assert wire.rest() == {"cidrBlock": "10.0.0.0/16"}
    assert wire.unsent() == ["tags"]
    assert wire.tags("TagSet") == {"TagSet": [{"Key": "a", "Value": "b"}]}
    assert wire.unsent() == []


def test_no_tags_make_no_parameter() -> None:
    assert Wire("aws:ec2/vpc:Vpc", "x", {"tags": {}}).tags() == {}


@given(st.from_regex(r"[a-z][a-z0-9-]{0,40}", fullmatch=True))
def test_physical_names_are_stable_and_told_apart_by_type(name: str) -> None:
    policy, role = Wire("aws:iam/rolePolicy:RolePolicy", name, {}), Wire("aws:iam/role:Role", name, {})
    assert policy.physical_name() == Wire(policy.type, name, {}).physical_name()
    assert policy.physical_name() != role.physical_name()
    assert policy.physical_name().startswith(f"{name}-")
    assert len(policy.physical_name()) == len(name) + 8


def test_a_declared_name_is_kept() -> None:
    assert Wire("aws:iam/role:Role", "x", {"name": "mine"}).physical_name() == "mine"


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
