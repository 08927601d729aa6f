"""The providers there are: a line each. Nothing is imported before somebody asks."""

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType

from stacks.base.provider import Provider

PROVIDERS: Mapping[str, str] = MappingProxyType(
    {
        "aws": "stacks.providers.aws.provider",
        "gcp": "stacks.providers.gcp.provider",
        "azure": "stacks.providers.azure.provider",
        "openstack": "stacks.providers.openstack.provider",
        "hosts": "stacks.providers.hosts.provider",
    }
)
"""`gangway:provider` -> the module whose PROVIDER it is, in the order in which messages name them."""


def provider_names() -> tuple[str, ...]:
    """What `gangway:provider` may be."""
    return tuple(PROVIDERS)


def get_provider(name: str) -> Provider:
    """The provider that a stack file calls `name`; its SDK is not loaded."""
    provider: Provider = import_module(PROVIDERS[name]).PROVIDER
    return provider


def all_providers() -> tuple[Provider, ...]:
    """All of them, in the registry's order."""
    return tuple(get_provider(name) for name in provider_names())
