"""The list of providers, which are imported on demand."""

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType

from gangway.components.core.findings import InputError
from gangway.stacks.base.provider import Provider

PROVIDERS: Mapping[str, str] = {
    "aws": "gangway.stacks.providers.aws.provider",
    "gcp": "gangway.stacks.providers.gcp.provider",
    "azure": "gangway.stacks.providers.azure.provider",
    "openstack": "gangway.stacks.providers.openstack.provider",
    "hosts": "gangway.stacks.providers.hosts.provider",
}
"""`gangway:provider` -> the module with its PROVIDER, in the order of messages."""


def provider_names() -> tuple[str, ...]:
    """Values of `gangway:provider`."""
    return tuple(PROVIDERS)


def get_provider(name: str) -> Provider:
    """The provider called `name`, without loading its SDK."""
    provider: Provider = import_module(PROVIDERS[name]).PROVIDER
    return provider


def all_providers() -> tuple[Provider, ...]:
    """All providers, in the registry's order."""
    return tuple(get_provider(name) for name in provider_names())


def sellers() -> tuple[Provider, ...]:
    """Providers with a catalogue of machines and prices."""
    return tuple(provider for provider in all_providers() if provider.catalog is not None)


def chosen_sellers(name: str | None, place: str) -> tuple[Provider, ...]:
    """The seller called `name`, or all. InputError, at `place`: no such seller."""
    every = sellers()
    found = tuple(provider for provider in every if name in (None, provider.name))
    if not found:
        raise InputError.not_among(place, "no such provider", str(name), [provider.name for provider in every])
    return found


def providers_with_adapter(purpose: str) -> tuple[str, ...]:
    """Names of the providers that have an adapter for `purpose`."""
    return tuple(provider.name for provider in all_providers() if purpose in provider.adapters)


def load_adapter(name: str, purpose: str) -> ModuleType:
    """A provider's adapter for `purpose`, which must exist."""
    return import_module(get_provider(name).adapters[purpose])
