"""What an installed Pulumi SDK declares: the resource types of a package, their inputs and outputs by wire name.

Read from the SDK's own classes, so that nothing here has to follow a new version. Knows little of values: a text of
the wrong content passes, a list in the place of an object does not; nor, where it is strict, does a text in the place
of a number, or a word that is not in the enumeration.
"""

import importlib
import inspect
import typing
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
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
def get_outputs(type_token: str) -> frozenset[str]:
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


@cache
def _needed_by(args_class: type) -> frozenset[str]:
    """The wire names of the inputs that an argument class cannot do without."""
    wire = sdk_types.input_type_py_to_pulumi_names(args_class)
    parameters = inspect.signature(args_class.__init__).parameters.items()  # type: ignore[misc]  # of a class, not of an instance
    return frozenset(wire[key] for key, parameter in parameters if key in wire and parameter.default is parameter.empty)


class _Check:
    """One look at a resource's inputs.

    Attributes:
        open_enums: names of enumerations that other words may stand in too, or None: no value is looked at, since a
            bridged plugin turns numbers into texts, and knows no enumeration.
    """

    def __init__(self, open_enums: frozenset[str] | None) -> None:
        self._open_enums = open_enums

    def object(self, args_class: type, value: Mapping[str, Any], prefix: str) -> Iterator[Fault]:
        """Undeclared keys, missing ones, and what is wrong below the others."""
        declared = _inputs_of(args_class)
        for key, item in value.items():
            if key in declared:
                yield from self._item(declared[key], item, f"{prefix}{key}")
            elif not key.startswith("__"):
                yield f"{prefix}{key}", f"no such input; there are: {', '.join(sorted(declared))}"
        for key in sorted(_needed_by(args_class) - {key for key, item in value.items() if item is not None}):
            yield f"{prefix}{key}", f"missing required property '{prefix}{key}'"

    def _item(self, hint: Any, value: Any, path: str) -> Iterator[Fault]:
        if value == UNKNOWN or value is None:
            return
        hints = list(_alternatives(hint))
        if typing.Any in hints:
            return
        if isinstance(value, dict) and value.get(rpc._special_sig_key) == rpc._special_archive_sig:
            if pulumi.Archive not in hints:
                yield path, "an archive is not expected here"
        elif isinstance(value, dict) and value.get(rpc._special_sig_key) == rpc._special_asset_sig:
            if pulumi.Asset not in hints:
                yield path, "an asset is not expected here"
        elif isinstance(value, dict):
            yield from self._dict(hints, value, path)
        elif isinstance(value, list):
            yield from self._list(hints, value, path)
        else:
            yield from self._scalar(hints, value, path)

    def _dict(self, hints: Sequence[Any], value: dict[str, Any], path: str) -> Iterator[Fault]:
        classes = [hint for hint in hints if isinstance(hint, type) and sdk_types.is_input_type(hint)]
        mappings = [hint for hint in hints if typing.get_origin(hint) is Mapping]
        if classes:
            # Where several kinds of object may stand, the one that fits best is meant.
            yield from min((list(self.object(one, value, f"{path}.")) for one in classes), key=len)
        elif mappings:
            for key, item in value.items():
                yield from self._item(typing.get_args(mappings[0])[1], item, f"{path}.{key}")
        else:
            yield path, "an object is not expected here"

    def _list(self, hints: Sequence[Any], value: list[Any], path: str) -> Iterator[Fault]:
        lists = [hint for hint in hints if typing.get_origin(hint) is Sequence]
        if not lists:
            yield path, "a list is not expected here"
            return
        for index, item in enumerate(value):
            yield from self._item(typing.get_args(lists[0])[0], item, f"{path}[{index}]")

    def _scalar(self, hints: Sequence[Any], value: Any, path: str) -> Iterator[Fault]:
        if words := [
            word for hint in hints if typing.get_origin(hint) is typing.Literal for word in typing.get_args(hint)
        ]:
            if value not in words:
                yield path, f"{value!r} is none of {', '.join(map(str, words))}"
            return
        plain = [hint for hint in hints if isinstance(hint, type) and not sdk_types.is_input_type(hint)]
        if hints and not plain:
            yield path, f"a list or an object is expected here, not {value!r}"
        elif self._open_enums is not None:
            enums = [hint for hint in plain if issubclass(hint, Enum) and hint.__name__ not in self._open_enums]
            yield from self._strictly(enums, plain, value, path)

    @staticmethod
    def _strictly(enums: Sequence[type[Enum]], plain: Sequence[type], value: Any, path: str) -> Iterator[Fault]:
        words = {member.value for enum in enums for member in enum}
        kinds = tuple(hint for hint in plain if hint in (bool, int, float, str))
        if words and value not in words:
            yield path, f"{value!r} is none of {', '.join(sorted(map(str, words)))}"
        elif not words and kinds and not _is_one_of(kinds, value):
            yield path, f"{value!r} is no {' and no '.join(kind.__name__ for kind in kinds)}"


def _is_one_of(kinds: Sequence[type], value: Any) -> bool:
    """Whether a value of the wire, which knows floats only, is of one of these types."""
    if isinstance(value, float):
        return float in kinds or (int in kinds and value.is_integer())
    return type(value) in kinds


def input_faults(
    type_token: str, inputs: Mapping[str, Any], sdk: str, open_enums: frozenset[str] | None = None
) -> list[Fault]:
    """What the argument class of `type_token` does not allow in `inputs`; see Service for `open_enums`."""
    classes = _sdk_classes(type_token)
    if classes is None:
        return [("", f"no resource type {type_token} in {sdk}")]
    return list(_Check(open_enums).object(classes[1], inputs, ""))


def provider_faults(sdk: str, inputs: Mapping[str, Any]) -> list[Fault]:
    """What the SDK's provider does not take."""
    unknown = set(inputs) - set(_inputs_of(importlib.import_module(sdk).ProviderArgs)) - ENGINE_INPUTS
    return [(key, "no such provider input") for key in sorted(unknown)]


def is_input(type_token: str, key: str) -> bool:
    """Whether a type has an input of this wire name."""
    classes = _sdk_classes(type_token)
    return classes is not None and key in _inputs_of(classes[1])


def documentation(type_token: str) -> str:
    """What the SDK says of a type, where its constructor is called."""
    classes = _sdk_classes(type_token)
    ways = typing.get_overloads(classes[0].__init__) if classes else ()
    return "\n".join(way.__doc__ or "" for way in ways)
