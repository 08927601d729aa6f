"""Existing machines, set up over SSH: no network, identity, registry or budget; they mount their own file systems."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gangway.components import importer

if TYPE_CHECKING:
    from gangway.components.hosts.node_pool import HostPool as HostPool

MODULES: Mapping[str, tuple[str, ...]] = {
    "node_pool": ("HostPool",),
}  # the public components, by module
__all__ = [name for names in MODULES.values() for name in names]

if not TYPE_CHECKING:
    __getattr__ = importer(__name__, MODULES)
