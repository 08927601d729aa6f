"""What of Gangway's extras is not installed, said in one line with the command that brings it."""

from collections.abc import Mapping
from importlib.util import find_spec
from types import MappingProxyType

from components.core.findings import InputError

_OF_NO_PROVIDER: Mapping[str, str] = MappingProxyType(
    {
        "matplotlib": "report",
        "numpy": "report",
        "scipy": "report",
        "PIL": "report",
        "torch": "train",
        "sklearn": "forecast",
        "prometheus_client": "forecast",
        "moto": "demo",
        "pulumi_policy": "policy",
        "pulumi_kubernetes": "kubernetes",
        # In several clouds' extras; who asks for a cloud says which.
        "obstore": "aws",
        "pulumi_docker_build": "aws",
        "requests": "aws",
    }
)


def extras() -> Mapping[str, str]:
    """A package as it is imported -> the extra that brings it."""
    # `gangway --help` imports this file, and asks nobody.
    from stacks.base.registry import all_providers

    of_providers = {name: p.name for p in all_providers() for name in (p.sdk_module, *p.packages)}
    return {**of_providers, **_OF_NO_PROVIDER}


def missing_extra(error: ModuleNotFoundError, extra: str = "") -> InputError | None:
    """The mistake behind an import that failed; None where no extra brings what is missing. `extra`: the one to name,
    where the package is in several.
    """
    package = (error.name or "").partition(".")[0]
    brought_by = extras()
    if package not in brought_by:
        return None
    extra = extra or brought_by[package]
    return InputError(
        f"extra {extra!r}", f"{package} is not installed: in Gangway's checkout, pip install '.[{extra}]'"
    )


def need(*packages: str) -> None:
    """For what imports late, or in another process: asks before anything is begun. InputError: one is not installed."""
    for package in packages:
        try:
            found = find_spec(package) is not None
        except ModuleNotFoundError:
            found = False
        if not found:
            problem = missing_extra(ModuleNotFoundError(name=package))
            assert problem is not None, f"no extra brings {package}"
            raise problem
