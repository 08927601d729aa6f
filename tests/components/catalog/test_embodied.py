"""Emissions of making whole machines, and the share of them that a run has."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.catalog.embodied import life_hours, load_embodied, machine_emissions
from gangway.components.catalog.loader import PROVIDERS, load, load_provider
from gangway.components.estimate.energy import estimate_embodied

MACHINES = [machine for provider in PROVIDERS for machine in load_provider(provider).machines.values()]


def test_machines_with_a_source_and_those_without() -> None:
    machines = {machine.name: machine_emissions(machine) for machine in MACHINES}
    assert {name: machines[name].kg.value for name in ("p5.48xlarge", "p4d.24xlarge", "g4dn.metal")} == {
        "p5.48xlarge": 7011, "p4d.24xlarge": 4677, "g4dn.metal": 3011,
    }  # fmt: skip
    assert machines["p5.48xlarge"].kg.confidence == "secondary", "NVIDIA's report was not read, others quote it"
    for unknown in ("p6e-gb200.36xlarge", "trn2.48xlarge", "Standard_ND128isr_GB300_v6"):
        assert machines[unknown].kg.value is None
    assert life_hours().value == 4 * 365 * 24
    assert life_hours().confidence == "assumed"


def test_every_band_holds_its_figure() -> None:
    for model, whole in load_embodied().machines.items():
        kg, low, high = whole.kg_co2e.value, whole.low.value, whole.high.value
        assert kg is not None
        assert low is not None
        assert high is not None
        assert 1000 < low < kg < high, model


def test_every_listed_model_is_some_machines() -> None:
    models = {machine.accelerator.rpartition("x")[0] for machine in MACHINES}
    assert load_embodied().machines.keys() <= models


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("p5.48xlarge", 1.0), ("p5.4xlarge", 1 / 8), ("g4dn.16xlarge", 64 / 96), ("g4dn.xlarge", 1 / 8),
        ("a3-highgpu-2g", 52 / 192), ("Standard_ND96isr_H100_v5", 1.0),
    ],
)  # fmt: skip
def test_a_part_of_a_machine_has_its_accelerators_or_its_vcpus_share(name: str, share: float) -> None:
    (machine,) = [machine for machine in MACHINES if machine.name == name]
    assert machine_emissions(machine).share == pytest.approx(share)


def test_two_p5_for_a_day_by_hand() -> None:
    """2 machines x 7,011 kg x 24 / 35040 hours = 9.604 kg, between 6.006 and 23.014."""
    found = estimate_embodied(load().machine("p5.48xlarge"), 2, 24)
    assert found.gco2e == pytest.approx(9604.1, abs=0.1)
    assert (found.gco2e_low, found.gco2e_high) == pytest.approx((6005.5, 23013.7), abs=0.1)
    assert (found.kg_per_machine, found.kg_low, found.kg_high, found.machine_share) == (7011, 4384, 16800, 1.0)
    assert (found.life_hours, found.confidence) == (35040, "secondary")
    assert "HGX H100 PCF" in found.source


def test_an_unknown_machine_has_no_share() -> None:
    found = estimate_embodied(load().machine("trn2.48xlarge"), 1, 10)
    assert (found.gco2e, found.gco2e_low, found.gco2e_high) == (None, None, None)
    assert "No life-cycle assessment" in found.source


@given(st.integers(1, 512), st.floats(0, 1e4), st.floats(0, 1e4))
def test_the_share_adds_up_over_hours(num_nodes: int, first: float, more: float) -> None:
    machine = load().machine("p4d.24xlarge")
    parts = [estimate_embodied(machine, num_nodes, hours).gco2e or 0.0 for hours in (first, more)]
    assert estimate_embodied(machine, num_nodes, first + more).gco2e == pytest.approx(sum(parts))
