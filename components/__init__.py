"""Gangway's Pulumi components: clusters, file systems, capacity and budgets as reusable resources.

A folder a provider holds the resources; `core`, `estimate` and `catalog` are pure. Nothing here imports the trainer,
torch or a stack file.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def importer(package: str, modules: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """The `__getattr__` of a package (PEP 562), which imports names on first use: a plan must not load a cloud's SDK.
    `modules`: public names by the module that defines them.
    """
    places = {name: module for module, names in modules.items() for name in names}

    def import_name(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{places[name]}"), name)

    return import_name
