"""The base of dynamic providers: Pulumi pickles them by the name of their module, and loads them in another process."""

import sys
from typing import Any

from pulumi.dynamic import ResourceProvider

__all__ = ["DynamicProvider"]


class DynamicProvider(ResourceProvider):
    """A provider without state that Pulumi's process finds wherever Gangway is installed."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        # A process that the engine starts has an installed Gangway's modules only by way of its package.
        package = sys.modules.get("gangway_iac")
        if package is None:
            return super().__reduce_ex__(protocol)
        return package.load, (type(self).__module__, type(self).__qualname__)
