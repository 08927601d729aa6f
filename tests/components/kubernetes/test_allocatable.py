"""What machines leave to pods, against what was seen on some and the rules' own examples."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.kubernetes.allocatable import Allocatable, aks_allocatable, eks_allocatable, gke_allocatable

SEEN: dict[str, tuple[Allocatable, float, float]] = {
    # what is computed, GiB that were seen or are Google's own upper bound, how far below is fine
    "p4de.24xlarge": (eks_allocatable(96, 1152, 8000), 1093, 3),
    "p5.48xlarge": (eks_allocatable(192, 2048, 28000), 1957, 11),
    "n2-highmem-64": (gke_allocatable(64, 512, 100), 486.95, 4),
    "n2-highmem-16": (gke_allocatable(16, 128, 100), 116.55, 4),
    "a3-megagpu-8g": (gke_allocatable(208, 1872, 200, 16), 1828, 36),
    "Standard_D4s_v3 with 64 pods": (aks_allocatable(4, 16, 128, 64), 14.3, 3),
}


@pytest.mark.parametrize("name", SEEN)
def test_memory_is_never_overstated_and_little_is_lost(name: str) -> None:
    computed, seen_gib, below = SEEN[name]
    assert seen_gib - below <= computed.memory_gib <= seen_gib


def test_a_boot_disk_of_gke_leaves_less_than_half() -> None:
    assert gke_allocatable(4, 16, 100).disk_gib == 43
    assert gke_allocatable(208, 1872, 200, 16).disk_gib > 4500


def test_cores_are_whole_and_fewer_than_sold() -> None:
    assert eks_allocatable(192, 2048, 28000).cpus == 190
    assert gke_allocatable(208, 1872, 200, 16).cpus == 206
    assert aks_allocatable(96, 1900, 200, 64).cpus == 94


@given(st.integers(4, 512), st.floats(16, 4096), st.floats(100, 4096))
def test_more_is_never_left_than_there_is(vcpus: int, memory_gib: float, disk_gib: float) -> None:
    for left in (
        gke_allocatable(vcpus, memory_gib, disk_gib),
        eks_allocatable(vcpus, memory_gib, disk_gib),
        aks_allocatable(vcpus, memory_gib, disk_gib, 64),
    ):
        assert left.cpus < vcpus
        assert left.memory_gib < memory_gib
        assert 0 <= left.disk_gib < disk_gib
