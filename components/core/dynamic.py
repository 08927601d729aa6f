"""The base of dynamic providers, which Pulumi pickles by module name and loads in another process."""

import sys
from typing import Any

from pulumi.dynamic import ResourceProvider

__all__ = ["DynamicProvider"]


class DynamicProvider(ResourceProvider):
    """A stateless provider that Pulumi's process can load wherever Gangway is installed."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        # A process started by the engine finds an installed Gangway's modules only through its package.
        package = sys.modules.get("gangway_iac")
        if package is None:
            return super().__reduce_ex__(protocol)
        return package.load, (type(self).__module__, type(self).__qualname__)
