"""The page about the public components of each provider."""

import inspect
import typing
from importlib import import_module

from gangway.components.core.image import TrainerImage
from gangway.stacks.base.registry import provider_names
from tools.reference.markdown import code, page, section, table, text

_HEAD = """
The public components: `from gangway.components.PROVIDER import NAME`, and `TrainerImage` from
`gangway.components.core.image`. Each takes `(name, args, opts)`; args is a mapping, described in the class. Inputs in
brackets are optional. [Examples](../../examples/README.md) in Python, TypeScript, Go and YAML; in those other languages
names are in camelCase, and there are AWS's components only.
"""


def components() -> str:
    """docs/reference/components.md."""
    sections = []
    for provider in provider_names():
        package = import_module(f"gangway.components.{provider}")
        classes = [getattr(package, name) for name in sorted(package.__all__)]
        sections.append(section(provider, _table(classes)))
    return page("Components", _HEAD, *sections, section("all providers", _table([TrainerImage])))


def _table(classes: list[type]) -> str:
    return table(("component", "what it is", "inputs", "outputs"), map(_row, classes))


def _row(component: type) -> tuple[str, ...]:
    args = typing.get_type_hints(component.__init__)["args"]  # type: ignore[misc]  # of the class, not of an instance
    inputs = (
        code(name) if name in args.__required_keys__ else f"[{code(name)}]" for name in sorted(args.__annotations__)
    )
    outputs = (code(name) for name in inspect.get_annotations(component))
    first = (inspect.getdoc(component) or "").split("\n\n")[0]
    return code(component.__name__), text(first), ", ".join(inputs), ", ".join(outputs)
