"""What an installed Pulumi SDK declares: the resource types of a package, their inputs and outputs by wire name.

Read from the SDK's own classes, so that nothing here has to follow a new version. Knows nothing of values: a text of
the wrong content passes, a list in the place of an object does not.
"""

import importlib
import typing
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import pulumi
from pulumi import _types as sdk_types  # the SDK's only door to the wire names of an argument class
from pulumi.runtime import rpc
from pulumi.runtime.rpc import UNKNOWN, get_resource_module

# Provider inputs that belong to the engine, not to the SDK's class.
ENGINE_INPUTS = frozenset({"version", "pluginDownloadURL"})

Fault = tuple[str, str]
"""A path within the inputs, and what is wrong there."""


@cache
def _sdk_classes(type_token: str) -> tuple[Any, Any] | None:
    """The SDK's resource class for a type token and the class of its arguments; None for a token it does not know."""
    package, path, _ = type_token.split(":")
    registered = get_resource_module(package, path, "")
    if registered is None:
        return None
    info = registered.mod_info  # type: ignore[attr-defined]  # each SDK's own subclass keeps its record here
    name = info["classes"][type_token]
    module = importlib.import_module(info["fqn"])
    # BucketArgs may be the arguments of Bucket or a nested object of that name; then the arguments are BucketInitArgs.
    return getattr(module, name), getattr(module, f"{name}InitArgs", None) or getattr(module, f"{name}Args")


@cache
def _inputs_of(args_class: type) -> dict[str, Any]:
    """Wire name -> type hint of every input of an argument class."""
    return sdk_types.input_type_types(args_class)


@cache
def outputs_of(type_token: str) -> frozenset[str]:
    """The wire names of a type's outputs, inputs among them."""
    classes = _sdk_classes(type_token)
    assert classes is not None, "Check has let it pass"
    return frozenset(sdk_types.resource_types(classes[0]))


def _alternatives(hint: Any) -> Iterator[Any]:
    """The types a hint allows, without the Awaitable and Output that never reach the wire."""
    if typing.get_origin(hint) is typing.Union:
        for part in typing.get_args(hint):
            yield from _alternatives(part)
    elif getattr(hint, "__module__", "") != "pulumi.output":
        yield hint


def _faults(hint: Any, value: Any, path: str) -> Iterator[Fault]:
    """Every undeclared key, and every list or mapping that stands in the wrong place."""
    if value == UNKNOWN or value is None:
        return
    hints = list(_alternatives(hint))
    classes = [h for h in hints if isinstance(h, type) and sdk_types.is_input_type(h)]
    lists = [h for h in hints if typing.get_origin(h) is Sequence]
    mappings = [h for h in hints if typing.get_origin(h) is Mapping]
    if isinstance(value, dict) and value.get(rpc._special_sig_key) == rpc._special_archive_sig:
        if pulumi.Archive not in hints:
            yield path, "an archive is not expected here"
    elif isinstance(value, dict) and classes:
        yield from _object_faults(_inputs_of(classes[0]), value, f"{path}.")
    elif isinstance(value, dict) and not mappings and typing.Any not in hints:
        yield path, "an object is not expected here"
    elif isinstance(value, list) and lists:
        for index, item in enumerate(value):
            yield from _faults(typing.get_args(lists[0])[0], item, f"{path}[{index}]")
    elif isinstance(value, list) and typing.Any not in hints:
        yield path, "a list is not expected here"
    elif not isinstance(value, dict | list) and hints and len(hints) == len(classes + lists + mappings):
        yield path, f"a list or an object is expected here, not {value!r}"


def _object_faults(declared: Mapping[str, Any], value: Mapping[str, Any], prefix: str) -> Iterator[Fault]:
    for key, item in value.items():
        if key in declared:
            yield from _faults(declared[key], item, f"{prefix}{key}")
        elif not key.startswith("__"):
            yield f"{prefix}{key}", f"no such input; there are: {', '.join(sorted(declared))}"


def input_faults(type_token: str, inputs: Mapping[str, Any], sdk: str) -> list[Fault]:
    """What the argument class of `type_token` does not allow in `inputs`."""
    classes = _sdk_classes(type_token)
    if classes is None:
        return [("", f"no resource type {type_token} in {sdk}")]
    return list(_object_faults(_inputs_of(classes[1]), inputs, ""))


def provider_faults(sdk: str, inputs: Mapping[str, Any]) -> list[Fault]:
    """What the SDK's provider does not take."""
    unknown = set(inputs) - set(_inputs_of(importlib.import_module(sdk).ProviderArgs)) - ENGINE_INPUTS
    return [(key, "no such provider input") for key in sorted(unknown)]


def name_input(type_token: str) -> str | None:
    """The input by which the real plugin names a resource that was given no name; None for those that have none."""
    classes = _sdk_classes(type_token)
    key = "bucket" if type_token == "aws:s3/bucket:Bucket" else "name"
    return key if classes and key in _inputs_of(classes[1]) else None
