"""Prices of data transfer (by pair between a provider's regions, elsewhere by the internet price; None if unknown),
and cost and duration of reading a job's data from another place.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from types import MappingProxyType
from typing import Final

from gangway.components.catalog.geography import Route, load_routes, load_transfer, transfer_price
from gangway.components.catalog.loader import PROVIDERS, Provider, load_provider
from gangway.components.catalog.schema import Confidence, Fact
from gangway.components.estimate.regions import Place

_MBIT_PER_GIB = 8 * 2**30 / 1e6


@dataclass(frozen=True)
class DataAt:
    """The place of the data, and the amount that a job reads once."""

    place: Place
    gib: float


@dataclass(frozen=True)
class Carried:
    """A transfer to one place. `price`: US dollars a GiB; `stream_hours`: by one stream; None within a region."""

    usd: float | None
    price: Fact[float | None]
    stream_hours: float | None
    route: Route | None

    def in_words(self, data: DataAt) -> str:
        """Such as `40 GiB from aws:us-east-1 at 0.02 USD, 1.2 h by one stream (88 ms, 95 Mbit/s, 2022-02-14)`."""
        cost = "which nobody has priced" if self.price.value is None else f"at {self.price.value:g} USD"
        text = f"{data.gib:g} GiB from {data.place.name} {cost}"
        if self.route is None:
            return text
        rtt, stream = self.route.rtt_ms, self.route.stream_mbps
        if stream is None or self.stream_hours is None:
            return f"{text}, {rtt.value:g} ms there and back ({rtt.dated})"
        one = f"{rtt.value:g} ms, {stream.value:g} Mbit/s, {stream.dated}"
        return f"{text}, {self.stream_hours:.2g} h by one stream ({one})"


def carried(data: DataAt, target: Place) -> Carried:
    """The transfer to that region."""
    price = traffic_price(data.place, target)
    route = None if data.place.name == target.name else load_routes().route(data.place.name, target.name)
    stream = None if route is None else route.stream_mbps
    hours = None if stream is None else data.gib * _MBIT_PER_GIB / stream.value / 3600
    return Carried(None if price.value is None else price.value * data.gib, price, hours, route)


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
