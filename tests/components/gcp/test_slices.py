"""TPU slices: all ways to describe one agree, sizes and hosts are the documented, a wrong word finds its neighbours."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.catalog.loader import load_provider, load_tpus
from gangway.components.core.findings import InputError
from gangway.components.estimate.energy import estimate_carbon, estimate_energy
from gangway.components.gcp.slices import (
    SlicePlan,
    plan_slice,
    slice_machine,
    slice_prices,
    slice_topologies,
    worker_tflops,
)

GENERATIONS = ("v4", "v5e", "v5p", "v6e", "tpu7x")
SIZES = [(name, chips) for name in GENERATIONS for chips in slice_topologies(name)]
TOPOLOGIES = [
    (name, topology) for name in GENERATIONS for shapes in slice_topologies(name).values() for topology in shapes
]

DOCUMENTED = [
    # accelerator type, topology, chips, TensorCores, hosts: the tables of Google's pages.
    ("v4-8", "2x2x1", 4, 8, 1),
    ("v4-4096", "8x16x16", 2048, 4096, 512),
    ("v5p-8", "2x2x1", 4, 8, 1),
    ("v5p-16", "2x2x2", 8, 16, 2),
    ("v5p-64", "2x4x4", 32, 64, 8),
    ("v5p-128", "4x4x4", 64, 128, 16),
    ("v5p-256", "4x4x8", 128, 256, 32),
    ("v5p-512", "4x8x8", 256, 512, 64),
    ("v5p-1024", "8x8x8", 512, 1024, 128),
    ("v5p-2048", "8x8x16", 1024, 2048, 256),
    ("v5p-4096", "8x16x16", 2048, 4096, 512),
    ("v5p-8192", "16x16x16", 4096, 8192, 1024),
    ("v5p-12288", "16x16x24", 6144, 12288, 1536),
    ("v5litepod-1", "1x1", 1, 1, 1),
    ("v5litepod-4", "2x2", 4, 4, 1),
    ("v5litepod-8", "2x4", 8, 8, 1),
    ("v5litepod-16", "4x4", 16, 16, 4),
    ("v6e-1", "1x1", 1, 1, 1),
    ("v6e-8", "2x4", 8, 8, 1),
    ("v6e-16", "4x4", 16, 16, 4),
    ("v6e-256", "16x16", 256, 256, 64),
    ("tpu7x-8", "2x2x1", 4, 8, 1),
    ("tpu7x-128", "4x4x4", 64, 128, 16),
]


def mistake(**words: object) -> InputError:
    """The InputError that these words raise."""
    with pytest.raises(InputError) as caught:
        plan_slice(**words)  # type: ignore[arg-type]  # keywords by name, so that a table of wrong ones stays short
    return caught.value


@pytest.mark.parametrize(("accelerator_type", "topology", "chips", "cores", "hosts"), DOCUMENTED)
def test_slices_are_those_of_the_documentation(
    accelerator_type: str, topology: str, chips: int, cores: int, hosts: int
) -> None:
    plan = plan_slice(accelerator_type=accelerator_type)
    assert (plan.topology, plan.chips, plan.tensor_cores, plan.hosts) == (topology, chips, cores, hosts)


def test_the_example_of_the_config_words() -> None:
    assert plan_slice("v5p", chips=256, topology="4x8x8") == SlicePlan(
        generation="v5p",
        chips=256,
        tensor_cores=512,
        accelerator_type="v5p-512",
        topology="4x8x8",
        default_topology=True,
        hosts=64,
        chips_per_host=4,
        processes=256,
        runtime_version="v2-alpha-tpuv5",
        api_type="V5P",
    )


@given(st.sampled_from(SIZES))
def test_generation_with_chips_accelerator_type_and_topology_agree(size: tuple[str, int]) -> None:
    name, chips = size
    plan = plan_slice(name, chips=chips)
    assert plan_slice(accelerator_type=plan.accelerator_type) == plan
    assert plan_slice(name, topology=plan.topology) == plan
    assert plan_slice(name, chips, plan.accelerator_type, plan.topology) == plan
    assert plan.default_topology


@given(st.sampled_from(TOPOLOGIES))
def test_every_topology_holds_its_chips_on_whole_hosts(shape: tuple[str, str]) -> None:
    name, topology = shape
    plan = plan_slice(name, topology=topology)
    assert plan.topology == topology
    assert prod(map(int, topology.split("x"))) == plan.chips == plan.hosts * plan.chips_per_host
    assert plan.default_topology == (slice_topologies(name)[plan.chips][0] == topology)
    assert plan_slice(name, plan.chips).accelerator_type == plan.accelerator_type
    assert plan.tensor_cores % plan.chips == 0
    assert plan.processes >= plan.chips


@given(st.sampled_from([name for name in GENERATIONS if load_tpus().generations[name].max_cubes.value]))
def test_large_topologies_are_ascending_cubes_and_default_to_the_most_like_a_cube(name: str) -> None:
    tpu = load_tpus().generations[name]
    for chips, shapes in slice_topologies(name).items():
        sides = [tuple(map(int, topology.split("x"))) for topology in shapes]
        assert sum(sides[0]) == min(map(sum, sides))
        assert len(set(sides)) == len(sides)
        if chips >= 64:
            assert all(side % 4 == 0 and 4 <= side <= 256 for three in sides for side in three)
            assert all(list(three) == sorted(three) for three in sides)
    assert max(slice_topologies(name)) == tpu.max_cubes.value * 64


@given(st.sampled_from(GENERATIONS), st.integers(min_value=-5, max_value=20_000))
def test_a_number_of_chips_is_planned_or_both_neighbours_are_named(name: str, chips: int) -> None:
    sizes = list(slice_topologies(name))
    if chips in sizes:
        assert plan_slice(name, chips=chips).chips == chips
        return
    fix = mistake(generation=name, chips=chips).fix
    for neighbour in ([s for s in sizes if s < chips][-1:], [s for s in sizes if s > chips][:1]):
        for size in neighbour:
            assert f"chips: {size})" in fix
            assert plan_slice(name, chips=size).accelerator_type in fix
    assert fix.count("chips:") == (2 if sizes[0] < chips < sizes[-1] else 1)


def test_a_wrong_suffix_names_both_neighbours() -> None:
    found = mistake(accelerator_type="v5p-500")
    assert (found.place, found.value) == ("gangway:cluster.accelerator", "v5p-500")
    assert found.fix == "nearest: v5p-384 (4x4x12, chips: 192) or v5p-512 (4x8x8, chips: 256)"
    assert mistake(accelerator_type="v5p-9").fix == "nearest: v5p-8 (2x2x1, chips: 4) or v5p-16 (2x2x2, chips: 8)"
    assert mistake(accelerator_type="v6e-512").fix == "nearest: v6e-256 (16x16, chips: 256)"
    assert mistake(accelerator_type="v6e-512").allowed == "1, 4, 8, 16, 32, 64, 128, 256 chips"


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("v5e-16", "write v5litepod-16"),
        ("v5e", "write v5litepod-NUMBER"),
        ("v5p512", "did you mean 'v5p-512'?"),
        ("V6E-16", "did you mean 'v6e-16'?"),
        ("H100x8:spot!", "choose one of the allowed values"),
    ],
)
def test_a_mistyped_accelerator_type_is_mended(text: str, fix: str) -> None:
    found = mistake(accelerator_type=text)
    assert found.fix == fix
    assert found.allowed == "v4-NUMBER, v5litepod-NUMBER, v5p-NUMBER, v6e-NUMBER, tpu7x-NUMBER"


def test_an_unknown_generation_names_the_nearest() -> None:
    found = mistake(generation="v5pp", chips=4, place="gangway:cluster.tpu")
    assert (found.place, found.fix) == ("gangway:cluster.tpu.tpu", "did you mean 'v5p'?")
    assert found.allowed == "v4, v5e, v5p, v6e, tpu7x"


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        ({"generation": "v5p", "chips": 256, "topology": "8x4x8"}, "write 4x8x8: sides ascend"),
        ({"generation": "v6e", "topology": "4x2"}, "write 2x4: sides ascend"),
        ({"generation": "v5p", "chips": 256, "topology": "3x8x8"}, "topologies of 256 chips: 4x8x8, 4x4x16"),
        ({"generation": "v6e", "topology": "2x2x1"}, "topologies of 4 chips: 2x2"),
        ({"generation": "v6e", "topology": "3x3"}, "nearest: v6e-8 (2x4, chips: 8) or v6e-16 (4x4, chips: 16)"),
        ({"generation": "v4", "topology": "16x16x32"}, "nearest: v4-8192 (16x16x16, chips: 4096)"),
    ],
)
def test_a_wrong_topology_is_mended(words: dict[str, object], fix: str) -> None:
    found = mistake(**words)
    assert found.place == "gangway:cluster.topology"
    assert found.fix == fix


def test_what_is_no_topology_says_what_one_is() -> None:
    assert mistake(generation="v5p", topology="four by four").allowed == "sides joined by x, such as 4x8x8"
    rule = mistake(generation="v5p", topology="1x1x1").allowed
    assert rule == "2x2x1, 2x2x2, 2x2x4, 2x4x4, or AxBxC with A <= B <= C, multiples of 4, up to 6144 chips"


def test_words_that_contradict_each_other_are_refused() -> None:
    found = mistake(accelerator_type="v5p-512", chips=512)
    assert found.value == "accelerator type: 256 chips, chips: 512 chips"
    assert found.fix == "leave all but one out; topologies of 256 chips: 4x8x8, 4x4x16"
    assert mistake(generation="v5p", accelerator_type="v4-8").fix == "write v4"
    many = mistake(generation="v5p", chips=6144, topology="4x4x4").fix
    assert many.endswith(", ...")


def test_too_few_words_are_refused() -> None:
    assert mistake(chips=8).allowed == "v4, v5e, v5p, v6e, tpu7x"
    found = mistake(generation="v5p")
    assert found.fix == "add chips or topology"
    assert found.allowed == "4, 8, 16, 32, 64, 128, 192, 256, 320, 384, ... up to 6144 chips"


def test_a_topology_other_than_the_default_has_to_be_asked_for_by_api_type() -> None:
    plan = plan_slice(accelerator_type="v5p-512", topology="4x4x16")
    assert (plan.topology, plan.default_topology, plan.api_type) == ("4x4x16", False, "V5P")


def test_ironwood_has_two_devices_a_chip_and_no_cloud_tpu_api() -> None:
    plan = plan_slice("tpu7x", chips=64)
    assert (plan.processes, plan.tensor_cores, plan.api_type) == (128, 128, None)
    assert plan_slice("v5p", chips=64).processes == 64


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
