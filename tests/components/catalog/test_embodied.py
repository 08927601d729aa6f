"""Emissions of making the cards, and the share of them that a run has."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.catalog.loader import load
from components.catalog.tables import card_kg, life_hours
from components.estimate.energy import estimate_embodied


def test_cards_with_a_study_and_those_without() -> None:
    assert card_kg("H100x8").value == 575
    assert card_kg("A100x8").value == 319
    for unknown in ("A100-80Gx8", "H200x8", "v5p-64", "TPUx"):
        assert card_kg(unknown).value is None
    assert life_hours().value == 4 * 365 * 24
    assert life_hours().confidence == "assumed"


def test_two_p5_for_a_day_by_hand() -> None:
    """16 cards x 575 kg x 24 / 35040 hours = 6.3014 kg."""
    found = estimate_embodied(load().machine("p5.48xlarge"), 2, 24)
    assert found.gco2e == pytest.approx(16 * 575_000 * 24 / 35040)
    assert found.gco2e == pytest.approx(6301.4, abs=0.1)
    assert (found.kg_per_card, found.life_hours, found.confidence) == (575, 35040, "recalled")
    assert list(found.to_json()) == ["gco2e", "kg_per_card", "life_hours", "source", "as_of", "confidence"]


def test_an_unknown_card_has_no_share() -> None:
    found = estimate_embodied(load().machine("g5.xlarge"), 1, 10)
    assert found.gco2e is None
    assert "No life-cycle assessment" in found.source


@given(st.integers(1, 512), st.floats(0, 1e4), st.floats(0, 1e4))
def test_the_share_adds_up_over_hours(num_nodes: int, first: float, more: float) -> None:
    machine = load().machine("p4d.24xlarge")
    parts = [estimate_embodied(machine, num_nodes, hours).gco2e or 0.0 for hours in (first, more)]
    assert estimate_embodied(machine, num_nodes, first + more).gco2e == pytest.approx(sum(parts))
