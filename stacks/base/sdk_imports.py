"""Loads Pulumi's SDKs by name: `ec2.Vpc` loads that class and what it refers to, not 1,500 others, which would take
more than half of a plan's time. Modules with another form than the generator's are loaded whole.
"""

import builtins
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypedDict

import pulumi

from gangway.stacks.base.registry import all_providers

TYPES = ("_inputs", "outputs")
"""The modules with a service's property types, which are the largest and the least used."""
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def packages() -> frozenset[str]:
    """Module names of the SDKs that the finder handles."""
    return frozenset(provider.sdk_module for provider in all_providers() if provider.loads_by_name)


def import_by_name() -> None:
    """Makes this process load Pulumi's SDKs by name from now on."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(packages()))


class _Finder(MetaPathFinder):
    """Finds the services of the SDKs and their modules, and nothing else."""

    def __init__(self, packages: frozenset[str]) -> None:
        self._packages = packages

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, *below = fullname.split(".")
        if package not in self._packages or not 1 <= len(below) <= 2:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or not isinstance(spec.loader, SourceFileLoader):
            return spec
        is_package = spec.submodule_search_locations is not None
        if len(below) == 1 and is_package:
            spec.loader = _Service(fullname, spec.loader.path)
        elif len(below) == 2 and not is_package and below[1] != "_enums" and _is_by_name(f"{package}.{below[0]}"):
            kind = _Types if below[1] in TYPES else _Resource
            spec.loader = kind(fullname, spec.loader.path)
        return spec


def _is_by_name(service: str) -> bool:
    """Whether a service was found after `import_by_name`; others run their `__init__`, which needs all modules."""
    spec = sys.modules[service].__spec__
    loader = spec.loader if spec else None
    # Pulumi wraps the loader of an unused service.
    return isinstance(getattr(loader, "loader", loader), _Service)


class _Service(SourceFileLoader):
    """Loads a service without its modules, which are loaded on access to one of their names."""

    def exec_module(self, module: ModuleType) -> None:
        folder = Path(self.path).parent
        here = {path.stem for path in folder.iterdir() if path.suffix == ".py" or path.is_dir()}

        def find(name: str) -> Any:
            if name in here:
                found = import_module(f"{module.__name__}.{name}")
                # A function has its module's name and hides it.
                setattr(module, name, vars(found).get(name, found))
                return vars(module)[name]
            if name.startswith("__") and name != "__all__":
                raise AttributeError(name)
            for home in (home for home in _homes(name) if home in here):
                holder = import_module(f"{module.__name__}.{home}")
                if name in vars(holder) or name in _types_in(holder):
                    return getattr(holder, name)
            self._load_whole(module)
            return getattr(module, name)

        # PEP 562: for missing attributes.
        module.__getattr__ = find  # type: ignore[method-assign]

    def _load_whole(self, module: ModuleType) -> None:
        """Runs the package's own `__init__`, which imports every module, and `*` of the types."""
        del module.__getattr__
        if "_inputs" in {path.stem for path in Path(self.path).parent.iterdir()}:
            inputs = import_module(f"{module.__name__}._inputs")
            for name in _types_in(inputs):
                getattr(inputs, name)
                inputs.__all__.append(name)
        super().exec_module(module)


def _homes(name: str) -> tuple[str, ...]:
    resource = name.removesuffix("Dict").removesuffix("Args")
    return (_WORDS.sub("_", resource).lower().removesuffix("_output"), "_enums", "_inputs")


class _Resource(SourceFileLoader):
    """Loads a resource or a function, and the property types in its annotations."""

    def exec_module(self, module: ModuleType) -> None:
        code = self.get_code(self.name)
        assert code is not None, "a module of source has code"
        exec(code, vars(module))
        inputs = sys.modules.get(f"{self.name.rpartition('.')[0]}._inputs")
        for name in _types_in(inputs).keys() & _texts(code) if inputs else ():
            setattr(module, name, getattr(inputs, name))


class _Types(SourceFileLoader):
    """Loads property types one by one, from the bytecode of their module."""

    def exec_module(self, module: ModuleType) -> None:
        self.types: dict[str, CodeType] = {}
        code = self.get_code(self.name)
        assert code is not None, "a module of source has code"
        imports, generated, _ = self.get_data(self.path).partition(b"\n__all__ = [")
        types = {body.co_name: body for body in code.co_consts if isinstance(body, CodeType)}
        if not generated or any(body.co_freevars for body in types.values()):
            exec(code, vars(module))
            return
        exec(compile(imports, self.path, "exec", dont_inherit=True), vars(module))
        self.types = types
        # `import *` imports nothing: _Resource gives each module the types that it names.
        module.__all__ = []  # type: ignore[attr-defined]

        def find(name: str) -> Any:
            if name not in types:
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            return _define(module, name, types)

        module.__getattr__ = find  # type: ignore[method-assign]


def _types_in(module: ModuleType) -> dict[str, CodeType]:
    loader = module.__loader__
    return loader.types if isinstance(loader, _Types) else {}


def _define(module: ModuleType, name: str, types: Mapping[str, CodeType]) -> type:
    """Defines a property type in `module`, as its statement does, and the types that it names."""
    body = FunctionType(types[name], vars(module), name)
    defined: type
    if module.__name__.endswith(".outputs"):
        defined = pulumi.output_type(builtins.__build_class__(body, name, dict))
    elif name.endswith("ArgsDict"):
        defined = builtins.__build_class__(body, name, TypedDict)
    else:
        defined = pulumi.input_type(builtins.__build_class__(body, name))
    setattr(module, name, defined)
    if not module.__name__.endswith(".outputs"):  # whose types name each other as `outputs.Name`
        for named in (types.keys() & _texts(types[name])) - vars(module).keys():
            getattr(module, named)
    return defined


def _texts(code: CodeType) -> Iterator[str]:
    """The strings among the constants of `code`, also nested ones; annotations of later types are strings."""
    for constant in code.co_consts:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, tuple):  # of a union
            yield from (one for one in constant if isinstance(one, str))
        elif isinstance(constant, CodeType):
            yield from _texts(constant)
