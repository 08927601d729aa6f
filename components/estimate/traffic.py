"""Prices of data transfer: by pair between regions of a provider, elsewhere by the internet price; None if unknown."""

from collections.abc import Mapping
from datetime import date
from types import MappingProxyType
from typing import Final

from gangway.components.catalog.loader import PROVIDERS, Provider, load_provider
from gangway.components.catalog.schema import Confidence, Fact
from gangway.components.catalog.transfer import load_transfer, transfer_price
from gangway.components.estimate.regions import Place

__all__ = ["traffic_price"]

_EGRESS: Final = "egress-internet"
_PRICED: Final[Mapping[str, Provider]] = MappingProxyType({provider: provider for provider in PROVIDERS})


def traffic_price(source: Place, target: Place) -> Fact[float | None]:
    """US dollars a GiB, at the first tier; ingress is free at all these providers."""
    day = load_transfer(source.provider).as_of
    if source.name == target.name:
        return _fact(0.0, "within one region; between zones it may cost", day, "assumed")
    if source.provider not in _PRICED:
        return _fact(None, f"nobody here knows what a line out of {source.name} costs", day, "recalled")
    if source.provider == target.provider:
        return transfer_price(source.provider, source.region, target.region)
    return _internet(_PRICED[source.provider], source.region)


def _internet(provider: Provider, region: str) -> Fact[float | None]:
    """The region's price, or another region's, marked as assumed."""
    price = load_provider(provider).service_price(provider, region, _EGRESS)
    if price.region == region:
        return price.usd
    instead = f"{price.usd.source}; price of {price.region}, none of {region} in the catalogue"
    return price.usd.model_copy(update={"source": instead, "confidence": "assumed"})


def _fact(value: float | None, source: str, day: date, confidence: Confidence) -> Fact[float | None]:
    return Fact[float | None](value=value, source=source, as_of=day, confidence=confidence)
