"""What a scaling study projects to, by the names that people write."""

import pytest

from gangway.bench.scaling import MAX_WORKERS, find_target
from gangway.components.catalog.loader import load_tpus
from gangway.components.core.findings import InputError
from gangway.components.estimate.scaling import Links, Torus


def test_a_machine_type_of_any_provider() -> None:
    for name in ("p5.48xlarge", "a3-megagpu-8g", "Standard_ND96isr_H100_v5"):
        found = find_target(name)
        assert isinstance(found.network, Links)
        assert (found.name, found.note) == (name, "")
        assert found.counts == tuple(2**power for power in range(10))


def test_a_slice_by_its_type_and_as_everybody_writes_it() -> None:
    found = find_target("v5litepod-256")
    assert found == find_target("v5e-256")
    assert isinstance(found.network, Torus)
    assert found.name == "v5litepod-256"
    assert found.counts == (1, 4, 8, 16, 32, 64, 128, 256)
    assert found.note.startswith("one slice: the network between slices (DCN)")


def test_a_slice_of_no_power_of_two_is_its_own_last() -> None:
    """v5p counts TensorCores: 384 of them are 192 chips."""
    found = find_target("v5p-384")
    assert found.counts == (1, 4, 8, 16, 32, 64, 128, 192)
    assert isinstance(found.network, Torus)
    assert [one.chips for one in found.network.slices] == list(found.counts[1:])
    assert found.network.slices[-1].sides == (4, 4, 12), "the default topology"


def test_one_chip_has_nothing_to_reduce() -> None:
    assert find_target("v6e-1").counts == (1,)


@pytest.mark.parametrize("generation", load_tpus().generations)
def test_every_generation_can_be_named(generation: str) -> None:
    found = find_target(generation)
    assert found.name == generation
    assert found.counts[0] == 1
    assert found.counts[-1] == (256 if generation in ("v5e", "v6e") else MAX_WORKERS)
    times = [found.network.all_reduce_sec(n, 1e8) for n in found.counts]
    assert times[0] == 0
    assert all(seconds > 0 for seconds in times[1:])


def test_devices_of_one_chip_are_one_accelerator() -> None:
    assert find_target("tpu7x").note.endswith("an accelerator is a chip, its 2 devices together")
    assert "devices" not in find_target("v5p").note


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("p5.48xlarg", "did you mean 'p5.48xlarge'"),
        ("v5x", "no such machine type, TPU generation or slice"),
        ("v5litepd-256", "did you mean 'v5litepod-256'"),
        ("v5e-255", "no v5e slice has this size"),
        ("v5e-255", "v5litepod-256"),
        ("v5e-", "no such machine type, TPU generation or slice"),
        ("dl1.24xlarge", "the catalogue knows no bandwidth"),
    ],
)
def test_unknown_names_are_told_with_the_nearest(name: str, message: str) -> None:
    with pytest.raises(InputError) as told:
        find_target(name)
    assert message in str(told.value)
