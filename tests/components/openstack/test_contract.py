"""What every component of OpenStack keeps to: names, arguments, outputs, parents, tags, other languages."""

import importlib
import inspect
import typing
from collections.abc import Callable
from typing import Any

import pulumi
import pytest
from pulumi.provider.experimental.analyzer import Analyzer, is_output

from components.openstack.identity import NodeIdentity
from components.openstack.launch import HeadNode
from components.openstack.machine_secrets import MachineSecrets
from components.openstack.network import TrainingNetwork
from components.openstack.node_pool import NodePool
from components.openstack.storage import ManilaShare, RunBucket
from components.openstack.tags import header_tags, tag_words

COMPONENTS: list[type[pulumi.ComponentResource]] = [
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

    def choose(component: type[pulumi.ComponentResource]) -> dict[str, Any]:
        hints = typing.get_type_hints(component.__init__)["args"]
        return {key: everything[key] for key in hints.__required_keys__ | hints.__optional_keys__}

    return choose


@every_component
def test_names_and_arguments(component: type[pulumi.ComponentResource]) -> None:
    parameters = inspect.signature(component.__init__).parameters
    assert list(parameters) == ["self", "name", "args", "opts"]
    args = typing.get_type_hints(component.__init__)["args"]
    assert args.__name__ == f"{component.__name__}Args"
    module = inspect.getmodule(component)
    assert module is not None
    assert {component.__name__, args.__name__} <= set(module.__all__)


@every_component
def test_what_it_declares_is_its_own(
    component: type[pulumi.ComponentResource], make: Callable[..., Any], example: Example
) -> None:
    made = make(component, example(component))
    (own,) = [r for r in made.resources if r.type == f"gangway:openstack:{component.__name__}"]
    children = [r for r in made.resources if r is not own]
    assert children
    assert {child.parent for child in children} == {own.urn}
    assert all(child.name.startswith("demo") for child in children)
    annotated = inspect.get_annotations(component, eval_str=True)
    assert all(is_output(annotation) for annotation in annotated.values())
    assert made.outputs[own.urn] == set(annotated)


@every_component
def test_other_languages_can_use_it(component: type[pulumi.ComponentResource]) -> None:
    definition = Analyzer("gangway").analyze_component(component)
    args = typing.get_type_hints(component.__init__)["args"]
    assert set(definition.inputs_mapping.values()) == args.__required_keys__ | args.__optional_keys__
    assert set(definition.outputs_mapping.values()) == set(inspect.get_annotations(component))


@every_component
def test_the_providers_schema_takes_everything_it_can_declare(
    component: type[pulumi.ComponentResource], make: Callable[..., Any], example: Example
) -> None:
    checked = 0
    for resource in make(component, example(component)).resources:
        if resource.custom:
            assert set(resource.inputs) <= _arguments(resource.type), resource.name
            checked += 1
    assert checked


@every_component
def test_whatever_can_carry_a_tag_carries_them_all(
    component: type[pulumi.ComponentResource], make: Callable[..., Any], example: Example, tags: dict[str, str]
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
    _, module, class_name = type_token.split(":")
    resource = getattr(importlib.import_module(f"pulumi_openstack.{module.partition('/')[0]}"), class_name)
    names = [name.split("_") for name in inspect.signature(resource._internal_init).parameters]
    return {first + "".join(part.capitalize() for part in rest) for first, *rest in names}
