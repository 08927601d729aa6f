"""A slice as a machine type: what is added up, what is per worker, and what nobody knows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.catalog.loader import load_provider, load_tpus
from gangway.components.estimate.energy import estimate_carbon, estimate_energy
from gangway.components.gcp.slices import plan_slice, slice_machine, slice_prices, slice_topologies, worker_tflops

SLICES = st.sampled_from(sorted(load_tpus().generations)).flatmap(
    lambda name: st.tuples(st.just(name), st.sampled_from(sorted(slice_topologies(name))))
)


@given(SLICES)
def test_a_slice_adds_up(named: tuple[str, int]) -> None:
    generation, chips = named
    plan, tpu = plan_slice(generation, chips=chips), load_tpus().generations[generation]
    machine = slice_machine(plan)
    assert machine.name == machine.accelerator == plan.accelerator_type
    assert (machine.backend, machine.num_accelerators.value) == ("xla", plan.processes)
    memory = machine.accelerator_memory_gib.value
    assert memory is not None
    assert memory * plan.processes == pytest.approx(tpu.hbm_gib.value * chips)
    assert machine.vcpus.value == plan.hosts * tpu.host_vcpus.value
    assert machine.memory_gib.value == pytest.approx(plan.hosts * tpu.host_memory_gib.value)
    assert (machine.accelerator_watts.value is None) == (tpu.chip_watts.value is None)
    assert machine.accelerator_watts.source == tpu.chip_watts.source


@given(SLICES)
def test_its_workers_reach_together_what_its_chips_do(named: tuple[str, int]) -> None:
    generation, chips = named
    plan, chip = plan_slice(generation, chips=chips), load_tpus().generations[generation].peak_bf16_tflops
    one = worker_tflops(plan)
    assert one.value is not None
    assert one.value * plan.processes == pytest.approx(chips * chip.value)
    assert (one.source, one.confidence) == (chip.source, chip.confidence)


@given(SLICES)
def test_its_price_is_that_of_its_chips(named: tuple[str, int]) -> None:
    generation, chips = named
    chip, price = load_tpus().get_prices(generation)[0], slice_prices(plan_slice(generation, chips=chips))[0]
    assert price.region == chip.region
    for whole, one in ((price.on_demand, chip.on_demand), (price.spot_low, chip.spot), (price.spot_high, chip.spot)):
        assert whole.value == (None if one.value is None else pytest.approx(chips * one.value))
        assert (whole.source, whole.as_of, whole.confidence) == (one.source, one.as_of, one.confidence)


def test_power_that_is_published_is_estimated_and_other_power_is_not_invented() -> None:
    region = load_provider("gcp").region("us-central1", "gcp")
    known = estimate_energy(slice_machine(plan_slice("v4", chips=8)), 1, 1, region)
    assert known.it_kwh == pytest.approx((8 * 170 + 2 * 1243) / 1000)
    unknown = estimate_energy(slice_machine(plan_slice("v5e", chips=64)), 1, 1, region)
    assert (unknown.kwh, unknown.it_kwh, unknown.kwh_low, unknown.kwh_high) == (None, None, None, None)
    assert unknown.source == "absent: Google publishes no power figure for a chip of this generation"
    carbon = estimate_carbon(unknown, region)
    assert (carbon.gco2e, carbon.intensity_g_per_kwh) == (None, 501.42)
