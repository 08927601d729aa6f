"""Cost and duration of reading a job's data from another place."""

from dataclasses import dataclass

from gangway.components.catalog.routes import Route, load_routes
from gangway.components.catalog.schema import Fact
from gangway.components.estimate.regions import Place
from gangway.components.estimate.traffic import traffic_price

__all__ = ["Carried", "DataAt", "carried"]

_MBIT_PER_GIB = 8 * 2**30 / 1e6


@dataclass(frozen=True)
class DataAt:
    """The place of the data, and the amount that a job reads once."""

    place: Place
    gib: float


@dataclass(frozen=True)
class Carried:
    """A transfer to one place.

    Attributes:
        usd: None if the price is unknown.
        price: US dollars a GiB.
        stream_hours: by one stream as measured between small machines; parallel streams or larger machines are faster.
            None if unmeasured, and within a region.
        route: the measurement.
    """

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
