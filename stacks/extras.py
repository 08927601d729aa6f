"""What of Gangway's extras is not installed, said in one line with the command that brings it."""

from collections.abc import Mapping
from importlib.util import find_spec
from types import MappingProxyType

from components.core.findings import InputError

__all__ = ["missing_extra", "need"]

EXTRAS: Mapping[str, str] = MappingProxyType(
    {
        "pulumi_aws": "aws",
        "boto3": "aws",
        "botocore": "aws",
        "pulumi_gcp": "gcp",
        "google": "gcp",
        "pulumi_azure_native": "azure",
        "pulumi_openstack": "openstack",
        "openstack": "openstack",
        "pulumi_command": "hosts",
        "matplotlib": "report",
        "numpy": "report",
        "PIL": "report",
        "torch": "train",
        "moto": "demo",
        "pulumi_policy": "policy",
        # In several clouds' extras; who asks for a cloud says which.
        "obstore": "aws",
        "pulumi_docker_build": "aws",
        "requests": "aws",
    }
)
"""A package as it is imported -> the extra that brings it."""


def missing_extra(error: ModuleNotFoundError, extra: str = "") -> InputError | None:
    """The mistake behind an import that failed; None where no extra brings what is missing.

    Args:
        error: what Python says.
        extra: the one to name, where the package is in several.
    """
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return None
    extra = extra or EXTRAS[package]
    return InputError(f"extra {extra!r}", f"{package} is not installed: pip install 'gangway-iac[{extra}]'")


def need(*packages: str) -> None:
    """For what imports late, or in another process: asks before anything is begun.

    Raises:
        InputError: one is not installed.
    """
    for package in packages:
        try:
            found = find_spec(package) is not None
        except ModuleNotFoundError:
            found = False
        if not found:
            told = missing_extra(ModuleNotFoundError(name=package))
            assert told is not None, f"no extra brings {package}"
            raise told
