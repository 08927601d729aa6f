"""What the classes of Pulumi's SDKs take."""

import inspect
import keyword
from importlib import import_module


def sdk_arguments(type_token: str) -> frozenset[str]:
    """The arguments of the SDK's class of `package:module/x:Class` or `package:module:Class`."""
    package, path, class_name = type_token.split(":")
    module = path.partition("/")[0].lower()
    module = f"{module}_" if keyword.iskeyword(module) else module  # `lambda`
    resource = getattr(import_module(f"pulumi_{package.replace('-', '_')}.{module}"), class_name)
    return frozenset(inspect.signature(resource._internal_init).parameters)
