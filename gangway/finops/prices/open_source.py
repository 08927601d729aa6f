"""Opens a provider's price source with the available credentials."""

from datetime import datetime

from gangway.finops.prices.source import PriceSource, SourceError
from gangway.stacks.base.registry import load_adapter, providers_with_adapter


def open_source(provider: str, now: datetime) -> PriceSource:
    """Open the source of `provider`. SourceError: it has none, or it needs credentials and there are none."""
    if provider not in providers_with_adapter("prices"):
        raise SourceError("no price list is read for this provider; the catalogue's prices stay in use")
    source: PriceSource = load_adapter(provider, "prices").open_source(now)
    return source
