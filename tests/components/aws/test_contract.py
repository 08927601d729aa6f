"""Every component keeps one contract, so that people, other programs and other languages can rely on it."""

import importlib
import inspect
import keyword
import pkgutil
import typing
from collections.abc import Callable
from typing import Any

import pulumi
import pytest
from pulumi.provider.experimental.analyzer import Analyzer, is_output

import components.aws


def components_of_the_package() -> list[type[pulumi.ComponentResource]]:
    """Every ComponentResource that a module of `components.aws` defines."""
    found = []
    for info in pkgutil.iter_modules(components.aws.__path__):
        module = importlib.import_module(f"components.aws.{info.name}")
        found += [
            member
            for _, member in inspect.getmembers(module, inspect.isclass)
            if issubclass(member, pulumi.ComponentResource) and member.__module__ == module.__name__
        ]
    return found


COMPONENTS = components_of_the_package()
every_component = pytest.mark.parametrize("component", COMPONENTS, ids=lambda component: component.__name__)


def test_the_walk_finds_the_package(example_args: dict[str, dict[str, Any]]) -> None:
    """A component without an example here would be tested by nothing below."""
    assert {component.__name__ for component in COMPONENTS} == set(example_args)


@every_component
def test_the_signature_is_name_args_opts(component: type[pulumi.ComponentResource]) -> None:
    parameters = list(inspect.signature(component.__init__).parameters)
    assert parameters == ["self", "name", "args", "opts"]
    args = typing.get_type_hints(component.__init__)["args"]
    assert typing.is_typeddict(args)
    assert args.__name__ == f"{component.__name__}Args"
    assert args.__doc__


@every_component
def test_the_class_is_public_and_described(component: type[pulumi.ComponentResource]) -> None:
    module = inspect.getmodule(component)
    assert module is not None
    assert component.__name__ in module.__all__
    assert f"{component.__name__}Args" in module.__all__
    assert len(component.__doc__ or "") > 20
    assert component.__doc__ != pulumi.ComponentResource.__doc__


@every_component
def test_what_it_declares_is_its_own(component: type[pulumi.ComponentResource], make: Callable[..., Any]) -> None:
    made = make(component)
    (own,) = [r for r in made.resources if r.type == f"gangway:aws:{component.__name__}"]
    children = [r for r in made.resources if r is not own]
    assert own.name == "demo"
    assert children
    assert {child.parent for child in children} == {own.urn}
    assert all(child.name.startswith("demo") for child in children)
    assert len({child.urn for child in children}) == len(children)


@every_component
def test_its_outputs_are_annotated_and_registered(
    component: type[pulumi.ComponentResource], make: Callable[..., Any]
) -> None:
    made = make(component)
    annotated = inspect.get_annotations(component, eval_str=True)
    assert annotated
    assert all(is_output(annotation) for annotation in annotated.values())
    (own,) = [r for r in made.resources if r.type == f"gangway:aws:{component.__name__}"]
    assert made.outputs[own.urn] == set(annotated)


@every_component
def test_other_languages_can_use_it(component: type[pulumi.ComponentResource]) -> None:
    definition = Analyzer("gangway").analyze_component(component)
    assert definition.name == component.__name__
    args = typing.get_type_hints(component.__init__)["args"]
    assert set(definition.inputs_mapping.values()) == args.__required_keys__ | args.__optional_keys__
    assert set(definition.outputs_mapping.values()) == set(inspect.get_annotations(component))


# What AWS gives no tags: a cost allocation tag is itself one.
UNTAGGABLE = {"CostTagActivation"}


def accepts_tags(type_token: str) -> bool:
    """Whether the pulumi_aws class of `aws:module/x:Class` has a `tags` argument."""
    _, path, class_name = type_token.split(":")
    module = path.partition("/")[0]
    # Python has the word `lambda` for itself.
    module = f"{module}_" if keyword.iskeyword(module) else module
    resource = getattr(importlib.import_module(f"pulumi_aws.{module}"), class_name)
    overload: Callable[..., Any] = resource._internal_init
    return "tags" in inspect.signature(overload).parameters


@every_component
def test_whatever_can_carry_a_tag_carries_them_all(
    component: type[pulumi.ComponentResource], make: Callable[..., Any], tags: dict[str, str]
) -> None:
    checked = 0
    for resource in make(component).resources:
        if not resource.type.startswith("aws:") or not accepts_tags(resource.type):
            continue
        carried = resource.inputs["tags"]
        if isinstance(carried, list):
            assert not any(tag["propagateAtLaunch"] for tag in carried), "the launch template tags the instances"
            carried = {tag["key"]: tag["value"] for tag in carried}
        assert tags.items() <= carried.items(), resource.name
        checked += 1
    assert bool(checked) is (component.__name__ not in UNTAGGABLE), "no taggable resource: the test would prove nothing"
