"""The contract of every component, on which people, other programs and other languages rely."""

import importlib
import inspect
import pkgutil
import typing
from types import ModuleType
from typing import Any

import pulumi
from pulumi.provider.experimental.analyzer import Analyzer, is_output

Component = type[pulumi.ComponentResource]


def components_in(package: ModuleType) -> list[Component]:
    """Every ComponentResource that a module of the package defines."""
    found = []
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(info.name)
        found += [
            member
            for _, member in inspect.getmembers(module, inspect.isclass)
            if issubclass(member, pulumi.ComponentResource) and member.__module__ == module.__name__
        ]
    return found


def arguments_of(component: Component) -> Any:
    """The TypedDict of its `args`."""
    return typing.get_type_hints(component.__init__)["args"]


def keys_of(component: Component) -> frozenset[str]:
    """Its arguments' names."""
    args = arguments_of(component)
    return frozenset(args.__required_keys__ | args.__optional_keys__)


def check_signature(component: Component) -> None:
    """Name, args and opts; both classes are described."""
    assert list(inspect.signature(component.__init__).parameters) == ["self", "name", "args", "opts"]
    args = arguments_of(component)
    assert typing.is_typeddict(args)
    assert args.__name__ == f"{component.__name__}Args"
    assert args.__doc__
    assert component.__doc__ not in (None, "", pulumi.ComponentResource.__doc__)


def check_declared(component: Component, provider: str, made: Any) -> None:
    """All that it declares as `demo` is below it and named after it, its outputs are annotated and registered, and
    other languages can use it.
    """
    (own,) = [r for r in made.resources if r.type == f"gangway:{provider}:{component.__name__}"]
    children = [r for r in made.resources if r is not own]
    assert own.name == "demo"
    assert children
    assert {child.parent for child in children} == {own.urn}
    assert all(child.name.startswith("demo") for child in children)
    assert len({child.urn for child in children}) == len(children)
    annotated = inspect.get_annotations(component, eval_str=True)
    assert all(is_output(annotation) for annotation in annotated.values())
    assert made.outputs[own.urn] == set(annotated)
    definition = Analyzer("gangway").analyze_component(component)
    assert definition.name == component.__name__
    assert set(definition.inputs_mapping.values()) == keys_of(component)
    assert set(definition.outputs_mapping.values()) == set(inspect.get_annotations(component))
