"""Teams as they are written: names of namespaces, and shares that fit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.findings import InputError
from gangway.components.kubernetes.spec import (
    Allocatable,
    ClusterSpec,
    Node,
    Team,
    aks_allocatable,
    check_teams,
    eks_allocatable,
    gke_allocatable,
)


@pytest.mark.parametrize(
    ("teams", "place"),
    [
        ((Team("kube-vision", 1),), "teams[0].name"),
        ((Team("vision", 1), Team("default", 1)), "teams[1].name"),
        ((Team("Vision", 1),), "teams[0].name"),
        ((Team("vision-", 1),), "teams[0].name"),
        ((Team("v" * 64, 1),), "teams[0].name"),
        ((Team("vision", 1), Team("vision", 1)), "teams[1].name"),
        ((Team("vision", 3), Team("speech", 2)), "teams"),
    ],
)
def test_a_team_that_cannot_be_is_named(teams: tuple[Team, ...], place: str) -> None:
    with pytest.raises(InputError) as caught:
        check_teams(teams, 4, "teams")
    assert caught.value.place == place
    assert caught.value.fix


def test_teams_that_fit_are_taken() -> None:
    check_teams((Team("vision", 3), Team("v" * 63, 1)), 4, "teams")
    check_teams((), 4, "teams")


def test_without_teams_there_is_one_queue_for_all() -> None:
    spec = ClusterSpec((), Node(4, 16), 3, ())
    assert spec.queues == (Team("main", 3),)
    assert spec.shared_nodes == 0


def test_quantities_are_of_so_many_nodes() -> None:
    assert Node(96, 1024, disk_gib=100).quantities(3)["ephemeral-storage"] == "300Gi"
    assert Node(96, 1024, {"nvidia.com/gpu": 8}).quantities(3) == {
        "cpu": "288",
        "memory": "3072Gi",
        "nvidia.com/gpu": "24",
    }


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
