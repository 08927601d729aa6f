"""Every component keeps one contract, so that people, other programs and other languages can rely on it."""

from typing import Any

import pulumi
import pytest

import gangway.components.aws
from tests.components.contract import check_declared, check_signature, components_in
from tests.components.fixture_types import Make
from tests.sdk_arguments import sdk_arguments

COMPONENTS = components_in(gangway.components.aws)
every_component = pytest.mark.parametrize("component", COMPONENTS, ids=lambda component: component.__name__)


def test_the_walk_finds_the_package(example_args: dict[str, dict[str, Any]]) -> None:
    """A component without an example here would be tested by nothing below."""
    assert {component.__name__ for component in COMPONENTS} == set(example_args)


@every_component
def test_the_contract(component: type[pulumi.ComponentResource], make: Make) -> None:
    check_signature(component)
    check_declared(component, "aws", make(component))


# What AWS gives no tags: a cost allocation tag is itself one.
UNTAGGABLE = {"CostTagActivation"}


@every_component
def test_whatever_can_carry_a_tag_carries_them_all(
    component: type[pulumi.ComponentResource], make: Make, tags: dict[str, str]
) -> None:
    checked = 0
    for resource in make(component).resources:
        if not resource.type.startswith("aws:") or "tags" not in sdk_arguments(resource.type):
            continue
        carried = resource.inputs["tags"]
        if isinstance(carried, list):
            assert not any(tag["propagateAtLaunch"] for tag in carried), "the launch template tags the instances"
            carried = {tag["key"]: tag["value"] for tag in carried}
        assert tags.items() <= carried.items(), resource.name
        checked += 1
    assert bool(checked) is (component.__name__ not in UNTAGGABLE), "no taggable resource: the test would prove nothing"
