"""SIMULATED histories for trying out forecasts. Their level is a published statistic of the catalogue; their variation
is assumed, and described in each note. This project ships no public trace of hourly values.
"""

import math
import random
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Final

from gangway.components.catalog.geography import load_grids
from gangway.components.catalog.loader import load_provider
from gangway.components.catalog.machine_facts import load_reliability
from gangway.sim.forecast.series import Series

_START: Final = datetime(2026, 1, 5, tzinfo=UTC)
"""A Monday."""
_HOUR: Final = timedelta(hours=1)
_ZONE, _MACHINE, _REGION = "US-CAL-CISO", "p5.48xlarge", "us-east-2"
_NODES: Final = 8
_JOBS: Final = 6.0


def simulate(kind: str, hours: int, seed: int = 1) -> Series:
    """Simulate a series of SIMULATED; deterministic per seed."""
    return SIMULATED[kind](hours, random.Random(seed))


def _grid(hours: int, draw: random.Random) -> Series:
    fact = load_grids().grids[_ZONE].average
    weather = _wander(draw, keep=0.97, spread=0.10)
    values = [
        fact.value * max(0.05, 1 - 0.25 * _sun(hour) - 0.08 * _weekend(hour) + next(weather) + draw.gauss(0, 0.02))
        for hour in range(hours)
    ]
    note = (
        f"SIMULATED: mean of {_ZONE} about {fact.value:g} g/kWh ({fact.source}, {fact.as_of}); assumed: a quarter less "
        "at noon, 8 % less on weekends, weather that lasts for a day, noise"
    )
    return _hourly("g_per_kwh", values, note)


def _spot_price(hours: int, draw: random.Random) -> Series:
    price = load_provider("aws").price(_MACHINE, _REGION, "spot")
    assert price is not None, "the catalogue has it: a test"
    low, high = price.low, price.high
    assert low is not None, "likewise"
    assert high is not None, "likewise"
    market = _wander(draw, keep=0.995, spread=1.0)
    middle, half = (low + high) / 2, (high - low) / 2
    value, values = middle, []
    for hour in range(hours):
        moved = middle + half * (next(market) + 0.3 * _working(hour))
        # List prices change now and then, not every hour.
        value = round(max(0.5 * low, moved), 2) if draw.random() < 0.15 else value
        values.append(value)
    note = (
        f"SIMULATED: AWS {_MACHINE} in {_REGION}, spot between {low:g} and {high:g} USD an hour "
        f"({price.expected.source}, {price.expected.dated}); assumed: that is one standard deviation, it wanders over "
        "days, is dearer in working hours, and changes in 15 % of hours"
    )
    return _hourly("usd_per_hour", values, note)


def _interruptions(hours: int, draw: random.Random) -> Series:
    spot = load_reliability().spot
    share, rate = spot.there.value, spot.most_taken_per_hour.value
    nodes, values = 0, []
    # The mean availability: a missing node returns at the rate that keeps the published share.
    back = rate * share / (1 - share)
    for hour in range(hours):
        busier = 1 + 0.5 * _working(hour)
        taken = sum(draw.random() < 1 - math.exp(-rate * busier) for _ in range(nodes))
        nodes += sum(draw.random() < 1 - math.exp(-back) for _ in range(_NODES - nodes)) - taken
        values.append(float(taken))
    note = (
        f"SIMULATED: of {_NODES} spot nodes, {rate:g} taken a node and hour ({spot.most_taken_per_hour.source}), there "
        f"{share:.0%} of the time ({spot.there.source}); assumed: each node alone, half as often again in working hours"
    )
    return _hourly("interruptions", values, note)


def _demand(hours: int, draw: random.Random) -> Series:
    queue, values = _JOBS, []
    for hour in range(hours):
        arrivals = _poisson(draw, 2.0 * (0.5 + 1.2 * _working(hour)))
        done = _poisson(draw, 0.16 * queue + 0.2)
        queue = max(0.0, queue + arrivals - done)
        values.append(queue)
    note = (
        "SIMULATED: jobs waiting or running; no statistic of a cluster's queue is in the catalogue, so all is assumed: "
        "Poisson arrivals, 3.4 an hour at the busiest, on working days, and a sixth of all jobs done each hour"
    )
    return _hourly("jobs", values, note)


SIMULATED: Mapping[str, Callable[[int, random.Random], Series]] = MappingProxyType(
    {"grid": _grid, "spot-price": _spot_price, "interruptions": _interruptions, "demand": _demand}
)
"""Simulators by name, in hourly steps."""


def _hourly(name: str, values: list[float], note: str) -> Series:
    return Series(name, _START, _HOUR, tuple(values), note, of="simulated")


def _sun(hour: int) -> float:
    """California's, 0 at night to 1 at noon, which is 20:00 UTC."""
    return max(0.0, math.cos((hour % 24 - 20) / 24 * 2 * math.pi))


def _weekend(hour: int) -> float:
    return float(hour // 24 % 7 >= 5)


def _working(hour: int) -> float:
    """0 to 1, highest in the middle of a working day, 18:00 UTC."""
    return (1 - _weekend(hour)) * max(0.0, math.cos((hour % 24 - 18) / 24 * 2 * math.pi))


def _wander(draw: random.Random, keep: float, spread: float) -> Iterator[float]:
    """An AR(1) process with that standard deviation, starting at its mean."""
    value, step = 0.0, spread * math.sqrt(1 - keep**2)
    while True:
        value = keep * value + draw.gauss(0, step)
        yield value


def _poisson(draw: random.Random, mean: float) -> int:
    """Knuth's algorithm, for the small means here."""
    limit, product, number = math.exp(-mean), draw.random(), 0
    while product > limit:
        product *= draw.random()
        number += 1
    return number
