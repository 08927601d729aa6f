"""What every component of OpenStack keeps to: names, arguments, outputs, parents, tags, other languages."""

from collections.abc import Callable
from typing import Any

import pulumi
import pytest

from gangway.components.core.tags import header_tags, tag_words
from gangway.components.openstack.launch import HeadNode
from gangway.components.openstack.machine_secrets import MachineSecrets, NodeIdentity
from gangway.components.openstack.network import ExistingNetwork, TrainingNetwork
from gangway.components.openstack.node_pool import NodePool
from gangway.components.openstack.storage import ManilaShare, RunBucket
from tests.components.contract import check_declared, check_signature, keys_of
from tests.components.fixture_types import Make
from tests.sdk_arguments import sdk_arguments

COMPONENTS: list[type[pulumi.ComponentResource]] = [
    ExistingNetwork,
    HeadNode,
    MachineSecrets,
    ManilaShare,
    NodeIdentity,
    NodePool,
    RunBucket,
    TrainingNetwork,
]
# What takes tags, but not as a mapping of ours.
UNTAGGED = {
    *("RouterInterface", "SecGroupRule", "ServerGroup", "ShareAccess", "ShareNetwork", "ApplicationCredential"),
    # An object is told from others by its container.
    *("ContainerObject", "TempUrl"),
}
every_component = pytest.mark.parametrize("component", COMPONENTS, ids=lambda component: component.__name__)
Example = Callable[[type[pulumi.ComponentResource]], dict[str, Any]]


@pytest.fixture
def example(everything: dict[str, Any]) -> Example:
    """Arguments that make each component declare everything it can."""

    return lambda component: {key: everything[key] for key in keys_of(component)}


@every_component
def test_the_contract(component: type[pulumi.ComponentResource], make: Make, example: Example) -> None:
    check_signature(component)
    check_declared(component, "openstack", make(component, example(component)))


@every_component
def test_the_providers_schema_takes_everything_it_can_declare(
    component: type[pulumi.ComponentResource], make: Make, example: Example
) -> None:
    checked = 0
    for resource in make(component, example(component)).resources:
        if resource.custom:
            assert set(resource.inputs) <= _arguments(resource.type), resource.name
            checked += 1
    assert checked


@every_component
def test_whatever_can_carry_a_tag_carries_them_all(
    component: type[pulumi.ComponentResource], make: Make, example: Example, tags: dict[str, str]
) -> None:
    spelled: dict[str, Any] = {"Instance": tags, "Share": tags, "Container": header_tags(tags)}
    for resource in make(component, example(component)).resources:
        kind = resource.type.rpartition(":")[2]
        if not resource.custom or kind in UNTAGGED:
            continue
        if kind in spelled:
            assert spelled[kind].items() <= resource.inputs["metadata"].items(), resource.name
        else:
            assert resource.inputs["tags"] == tag_words(tags), resource.name


@pytest.mark.parametrize("kind", ["compute/serverGroup:ServerGroup", "sharedfilesystem/shareNetwork:ShareNetwork"])
def test_what_carries_none_could_not(kind: str) -> None:
    assert not {"tags", "metadata"} & _arguments(f"openstack:{kind}")


def _arguments(type_token: str) -> set[str]:
    """Wire names of the arguments of the SDK's class of `openstack:module/class:Class`."""
    names = [name.split("_") for name in sdk_arguments(type_token)]
    return {first + "".join(part.capitalize() for part in rest) for first, *rest in names}
