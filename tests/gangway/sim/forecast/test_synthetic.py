"""Made-up histories: they say so, have the published statistics, and are the same each time."""

import pytest

from gangway.components.catalog.geography import load_grids
from gangway.components.catalog.machine_facts import load_reliability
from gangway.sim.forecast.synthetic import SIMULATED, simulate


@pytest.mark.parametrize("kind", SIMULATED)
def test_each_says_that_it_is_simulated_and_what_is_assumed(kind: str) -> None:
    series = simulate(kind, 200)
    assert series.note.startswith("SIMULATED")
    assert "assumed" in series.note
    assert series == simulate(kind, 200)
    assert series.values != simulate(kind, 200, seed=2).values
    assert min(series.values) >= 0


def test_the_grids_mean_is_near_the_published_one() -> None:
    """Sun and weekends take a tenth off it; a year of weather leaves a few percent."""
    series = simulate("grid", 8760)
    published = load_grids().grids["US-CAL-CISO"].average.value
    assert sum(series.values) / 8760 == pytest.approx(0.9 * published, rel=0.05)


def test_interruptions_come_as_often_as_published() -> None:
    """Nodes are there for the published share of the hours, or a little less: working hours take more."""
    spot = load_reliability().spot
    series = simulate("interruptions", 8760)
    expected = 8 * spot.there.value * spot.most_taken_per_hour.value
    assert sum(series.values) / 8760 == pytest.approx(expected, rel=0.1)


def test_the_spot_price_is_within_reach_of_the_published_ends() -> None:
    series = simulate("spot-price", 8760)
    inside = sum(11.2276 <= value <= 15.4417 for value in series.values) / 8760
    assert 0.5 < inside < 0.9
