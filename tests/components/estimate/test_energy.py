"""Energy and carbon envelopes against figures worked out by hand."""

from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.catalog.loader import load, load_provider
from gangway.components.catalog.machine_facts import load_power
from gangway.components.estimate.energy import (
    RunHours,
    board_share,
    estimate_carbon,
    estimate_embodied,
    estimate_energy,
    estimate_footprint,
    estimate_sci,
)
from gangway.components.gcp.slices import plan_slice, slice_machine

UTILISATION, ERROR_BAND = load_power().busy_share.value, load_power().error_band.value
MACHINES = st.sampled_from(sorted(load().machines))
REGIONS = st.sampled_from(sorted(load().regions))
HOURS = st.floats(min_value=0, max_value=1e4)


def test_two_p5_for_an_hour_in_ohio() -> None:
    """2 x (8 x 700 W x 0.76 + 3500 W) x 1 h = 15.512 kWh; x PUE 1.13 = 17.52856 kWh; x 396.25 g/kWh = 6945.69 g.

    A node so draws 7,756 W: 76 % of 10.2 kW are 7,752 W. At the most it draws what boards and host are rated for.
    """
    catalog = load()
    region = catalog.region("us-east-2", "aws")
    energy = estimate_energy(catalog.machine("p5.48xlarge"), 2, 1, region)
    assert energy.it_kwh == pytest.approx(15.512)
    assert energy.kwh == pytest.approx(17.52856)
    assert (energy.kwh_low, energy.kwh_high) == pytest.approx((17.52856 * 0.63, 17.52856 / 0.76))
    assert energy.source == "estimated: 8 x 700 W (recalled) x 0.76 + 3500 W host (assumed) per node"
    carbon = estimate_carbon(energy, region)
    assert carbon.gco2e == pytest.approx(6945.692)
    assert carbon.intensity_g_per_kwh == 396.25
    assert carbon.method.startswith("location-based")
    assert carbon.as_of == "2023-12-31"
    assert "Green Software Foundation" in carbon.source


@given(MACHINES, REGIONS, st.integers(1, 512), HOURS)
def test_it_energy_and_pue_stay_apart(machine: str, region: str, nodes: int, hours: float) -> None:
    place = load().regions[region]
    energy = estimate_energy(load().machines[machine], nodes, hours, place)
    facts = load().machines[machine]
    board = facts.accelerator_watts.value
    assert board is not None
    watts = nodes * (facts.num_accelerators.value * board * UTILISATION + facts.host_watts.value)
    assert energy.it_kwh is not None
    assert energy.kwh is not None
    assert energy.it_kwh == pytest.approx(watts * hours / 1000)
    assert energy.kwh == pytest.approx(energy.it_kwh * energy.pue)
    assert energy.pue == place.pue.value >= 1
    assert energy.kwh_low is not None
    assert energy.kwh_high is not None
    assert energy.kwh_low <= energy.kwh <= energy.kwh_high
    grams, gco2e = place.intensity_g_per_kwh.value, estimate_carbon(energy, place).gco2e
    assert gco2e == (None if grams is None else pytest.approx(energy.it_kwh * place.pue.value * grams))


@given(MACHINES, REGIONS, st.integers(1, 100), HOURS, HOURS)
def test_more_hours_and_nodes_never_use_less(machine: str, region: str, nodes: int, hours: float, more: float) -> None:
    facts, place = load().machines[machine], load().regions[region]
    base, longer, larger = (
        estimate_energy(facts, *sizes, place).kwh
        for sizes in ((nodes, hours), (nodes, hours + more), (nodes + 1, hours))
    )
    assert base is not None
    assert longer is not None
    assert larger is not None
    assert min(longer, larger) >= base


def test_the_json_is_what_the_plan_prints() -> None:
    catalog = load()
    region = catalog.region("eu-north-1", "aws")
    energy = estimate_energy(catalog.machine("g5.xlarge"), 1, 10, region)
    assert list(asdict(energy)) == [
        "kwh", "it_kwh", "pue", "kwh_low", "kwh_high", "kwh_most", "hours", "hours_most", "waiting", "source",
        "pue_source", "pue_as_of", "pue_confidence",
    ]  # fmt: skip
    assert "Green Software Foundation" in energy.pue_source
    assert list(asdict(estimate_carbon(energy, region))) == [
        "gco2e", "gco2e_low", "gco2e_high", "gco2e_most", "intensity_g_per_kwh", "method", "source", "as_of", "grid",
        "marginal_g_per_kwh", "marginal_source", "market_g_per_kwh", "market_source",
    ]  # fmt: skip
    assert 0.27 <= ERROR_BAND <= 0.37, "the studies' error against meters"


def test_a_chip_whose_mean_its_maker_measured_is_counted_with_it() -> None:
    """Google on TPU v4: 90, 170 and 192 W at the least, on average and at most; four of them and their host."""
    slice_of_four = slice_machine(plan_slice("v4", chips=4))
    share = board_share(slice_of_four)
    assert share.value == pytest.approx(170 / 192)
    assert share.confidence == "documented"
    region = load_provider("gcp").region("us-central2", "gcp")
    energy = estimate_energy(slice_of_four, 1, 1, region)
    assert energy.it_kwh == pytest.approx((4 * 170 + 1243) / 1000)
    assert energy.kwh is not None
    assert energy.kwh_high == pytest.approx(energy.kwh * 192 / 170)
    assert board_share(load().machine("p5.48xlarge")).value == UTILISATION


def test_a_run_has_a_band_and_a_most_of_its_own_hours() -> None:
    """2 x p5 in Ohio draw 17.52856 kWh an hour on average, and at most a 0.76th of that."""
    catalog = load()
    machine, region = catalog.machine("p5.48xlarge"), catalog.region("us-east-2", "aws")
    energy = estimate_energy(machine, 2, RunHours(1, 2, 4, 12), region)
    per_hour = 17.52856
    assert (energy.kwh_low, energy.kwh, energy.kwh_high, energy.kwh_most) == pytest.approx(
        (per_hour * 0.63, per_hour * 2, per_hour / 0.76 * 4, per_hour / 0.76 * 12)
    )
    carbon, made = estimate_carbon(energy, region), estimate_embodied(machine, 2, RunHours(1, 2, 4, 12))
    assert carbon.gco2e_most == pytest.approx(per_hour / 0.76 * 12 * 396.25)
    assert None not in (made.gco2e, made.gco2e_low, made.gco2e_high, made.gco2e_most)
    assert (made.gco2e_most or 0.0) == pytest.approx((made.gco2e_high or 0.0) * 3)
    sci = estimate_sci(carbon, made, (200.0, 100.0, 50.0))
    assert sci.g_per_kimg == pytest.approx(((carbon.gco2e or 0.0) + (made.gco2e or 0.0)) / 100)
    ends = [sci.g_per_kimg_low, sci.g_per_kimg, sci.g_per_kimg_high, sci.g_per_kimg_most]
    assert [end or 0.0 for end in ends] == sorted(end or 0.0 for end in ends)


def test_the_length_of_a_run_alone_decides_its_intensity() -> None:
    """Twice the images in twice the time emit as much for each of them, whatever the run may take at most."""
    machine, region = load().machine("p5.48xlarge"), load().region("us-east-2", "aws")

    def sci(hours: float, kimg: float, most: float) -> float | None:
        run = RunHours(hours, hours, hours, most)
        carbon = estimate_carbon(estimate_energy(machine, 2, run, region), region)
        return estimate_sci(carbon, estimate_embodied(machine, 2, run), (kimg, kimg, kimg)).g_per_kimg

    assert sci(1, 100, 1) == pytest.approx(sci(2, 200, 12)) == pytest.approx(sci(1, 100, 672))


def test_without_a_speed_only_the_most_is_known() -> None:
    machine, region = load().machine("p5.48xlarge"), load().region("us-east-2", "aws")
    energy = estimate_energy(machine, 2, RunHours.at_most(12), region)
    assert (energy.kwh, energy.kwh_low, energy.kwh_high, energy.hours) == (None, None, None, None)
    assert energy.kwh_most == pytest.approx(17.52856 / 0.76 * 12)
    found = estimate_footprint(machine, 2, RunHours.at_most(12), region, None, unknown_power="no matter")
    assert (found.energy.kwh_most, found.carbon.gco2e_most, found.energy.source) == (None, None, "absent: no matter")


def test_a_board_that_waits_draws_less_and_never_less_than_idle() -> None:
    """An H100 with a CUDA context draws 121.7 W of 700 while it waits; a model without a measurement a fifth."""
    h100, a10g = load().machine("p5.48xlarge"), load().machine("g5.xlarge")
    assert board_share(h100, 1.0).value == pytest.approx(121.7 / 700)
    assert board_share(h100, 0.5).value == pytest.approx((121.7 / 700 + UTILISATION) / 2)
    assert board_share(a10g, 1.0).value == pytest.approx(0.2)
    assert board_share(h100, 0.0).value == UTILISATION
    assert "sglang" in board_share(h100, 0.5).source
