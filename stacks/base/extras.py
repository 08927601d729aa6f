"""Reports missing extras of Gangway in one line, with the command to install them."""

from collections.abc import Mapping
from importlib.util import find_spec

from gangway.components.core.findings import InputError

_SHARED_EXTRAS: Mapping[str, str] = {
    "matplotlib": "report",
    "numpy": "report",
    "scipy": "report",
    "PIL": "report",
    "torch": "train",
    "sklearn": "forecast",
    "prometheus_client": "forecast",
    "moto": "demo",
    "pulumi_policy": "policy",
    "starlette": "dashboard",
    "uvicorn": "dashboard",
    "pulumi_kubernetes": "kubernetes",
    # In the extras of several clouds; the caller may name another one.
    "obstore": "aws",
    "pulumi_docker_build": "aws",
    "requests": "aws",
}


def extras() -> Mapping[str, str]:
    """Package, as it is imported -> the extra that installs it."""
    # `gangway --help` imports this file, but no provider.
    from gangway.stacks.base.registry import all_providers

    of_providers = {name: p.name for p in all_providers() for name in (p.sdk_module, *p.packages)}
    return {**of_providers, **_SHARED_EXTRAS}


def missing_extra(error: ModuleNotFoundError, extra: str = "") -> InputError | None:
    """The mistake behind a failed import; None if no extra has the package. `extra`: the one to name if several do."""
    package = (error.name or "").partition(".")[0]
    known = extras()
    if package not in known:
        return None
    extra = extra or known[package]
    return InputError(
        f"extra {extra!r}", f"{package} is not installed: in Gangway's checkout, pip install '.[{extra}]'"
    )


def require(*packages: str) -> None:
    """Checks packages before work that imports them late, or in another process. InputError: one is not installed."""
    for package in packages:
        try:
            found = find_spec(package) is not None
        except ModuleNotFoundError:
            found = False
        if not found:
            problem = missing_extra(ModuleNotFoundError(name=package))
            assert problem is not None, f"no extra has {package}"
            raise problem
