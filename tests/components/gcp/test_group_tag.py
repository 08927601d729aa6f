"""GroupTag: one key and value of the stack's own, and what IAM asks of a group."""

from collections.abc import Callable
from typing import Any

import pytest

from gangway.components.gcp.group_tag import GroupTag, tag_condition


@pytest.fixture
def made(declare: Callable[..., Any]) -> Any:
    """The tag of the stack `demo`; `seen` are its outputs."""
    seen: dict[str, Any] = {}

    def program() -> None:
        tag = GroupTag("demo", {"project_number": "123456789012", "stack": "demo"})
        tag.bound.apply(lambda bound: seen.update(bound=bound))
        tag.condition.apply(lambda condition: seen.update(condition=condition))

    recorded = declare(program)
    recorded.seen = seen
    return recorded


def test_the_key_is_the_stacks_own_in_the_project(made: Any) -> None:
    key = made.one("TagKey").inputs
    assert (key["parent"], key["shortName"]) == ("projects/123456789012", "gangway-demo")
    assert "purpose" not in key, "a key for firewalls may be bound to networks and machines alone"


def test_groups_carry_what_the_condition_asks(made: Any) -> None:
    key, value = made.one("TagKey").id, made.one("TagValue").id
    assert made.seen == {"bound": {key: value}, "condition": tag_condition(key, value)}


def test_what_is_declared_is_what_the_apis_know(
    made: Any, api_document: Callable[[str], dict[str, Any]], api_mistakes: Callable[..., list[str]]
) -> None:
    for kind in ("TagKey", "TagValue"):
        assert api_mistakes("cloudresourcemanager.v3", kind, dict(made.one(kind).inputs)) == []
    assert "params" in api_document("compute.beta")["schemas"]["InstanceGroupManager"]["properties"]
    params = {"resourceManagerTags": {"tagKeys/1": "tagValues/2"}}
    assert api_mistakes("compute.beta", "InstanceGroupManagerParams", params) == []
